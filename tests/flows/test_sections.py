"""A stage's key covers the sections of the profile that it says it reads: it must read no others."""

import pytest

from flows.setup import resolve_config
from tasks.collect import collect_batch
from tasks.curate import curate_tasks
from tasks.evaluate import evaluate_policy
from tasks.gate import decide_gate
from tasks.ingest import ingest_traces
from tasks.rollout import roll_out
from tasks.run import Run
from tasks.score import score_trajectories
from tasks.update import update_policy
from tasks.warm_start import warm_start_policy
from tracewheel.core.files import read_records
from tracewheel.core.types import Trajectory
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.orders import Order
from tracewheel.rollout.trajectory_queue import TrajectoryQueue

STAGES = [
    ingest_traces, curate_tasks, warm_start_policy, roll_out, collect_batch, score_trajectories, update_policy,
    evaluate_policy, decide_gate,
]  # fmt: skip


class Watched:
    """A profile that notes which of its sections are read."""

    def __init__(self, config, read=None):
        self._config, self.read = config, set() if read is None else read

    def __getattr__(self, name):
        self.read.add(name)
        return getattr(self._config, name)

    def model_copy(self, **changes):
        return Watched(self._config.model_copy(**changes), self.read)


def batch_of(rollouts, folder):
    """What an asynchronous iteration would have claimed."""
    queue = TrajectoryQueue.open(folder / "queue.sqlite", "run", max_staleness=1)
    queue.publish(PolicyRef("base", None, 0))
    found = read_records(rollouts.path / "trajectories.parquet", Trajectory)
    size = sum(one.group == found[0].group for one in found)
    groups = [found[start : start + size] for start in range(0, len(found), size)]
    queue.issue(
        [Order(n, 1, {"id": g[0].task_id}, variant=False, samples=size, seed=0, temperature=1.0) for n, g in enumerate(groups)]
    )
    for order, group in zip(queue.lease("w", len(groups)), groups, strict=True):
        queue.complete(order, "w", group)
    return queue.claim(1, len(groups), 0)


@pytest.fixture(scope="module")
def calls(profile, tmp_path_factory):
    """Each stage called by its own function on the outputs of the others: what it read of the profile."""
    folder = tmp_path_factory.mktemp("sections")
    run = Run.of(resolve_config(str(profile), ["warm_start.classes=[multi_turn, formatted, negative]"], str(folder)))
    read = {}

    def call(stage, **arguments):
        watched = Watched(run.config)
        seen = Run(watched, run.store, run.record)
        entry = run.store.make(stage.stage, f"{len(read)}", lambda out: stage._function(seen, out, **arguments))
        read.setdefault(stage.stage, set()).update(watched.read)
        return entry

    traces = call(ingest_traces, inputs={})
    curated = call(curate_tasks, traces=traces)
    start = call(warm_start_policy, curated=curated, demonstrations="verified")
    policy = run.adapted("start", start)
    ids = [task.id for task in load_tasks(curated.path, "train")][:4]
    rollouts = call(roll_out, policy=policy, curated=curated, task_ids=ids, variants=[], iteration=1, temperature=1.0)
    call(collect_batch, batch=batch_of(rollouts, folder), iteration=1)
    scores = call(score_trajectories, curated=curated, trajectories=rollouts, iteration=1)
    call(update_policy, trajectories=[rollouts], scores=[scores], state=start, reference=start, iteration=1)
    evaluation = call(evaluate_policy, policy=policy, curated=curated, split="validation", samples=1)
    call(decide_gate, challenger=evaluation, baseline=evaluation, baseline_name="itself")
    return read


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.stage)
def test_a_stage_reads_no_more_than_its_key_covers(stage, calls):
    assert calls[stage.stage]
    assert calls[stage.stage] <= set(stage.sections)
