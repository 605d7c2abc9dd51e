"""The orders of asynchronous training: each iteration's tasks once, and none beyond the last iteration."""

import pandas as pd
import pytest

from flows.setup import resolve_config
from tasks.engine.queue import RunQueue
from tasks.engine.reading import begin_run
from tracewheel.core.store import Entry
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.sampling.sampler import TaskSampler

GROUPS, SAMPLES = 3, 4


@pytest.fixture
def curated(tmp_path):
    import random

    rng = random.Random(1)
    tasks = [make_task(family, 1, rng) for family in FAMILIES for _ in range(3)]
    pd.DataFrame([{**task.to_record(), "split": "train"} for task in tasks]).to_parquet(tmp_path / "tasks.parquet")
    return Entry("curate", "key", tmp_path, "digest", 0.0, {})


@pytest.fixture
def make_queue(profile, curated, tmp_path):
    def make(*overrides):
        chosen = ("rollout.mode=async", "rollout.max_staleness=2", f"training.tasks_per_iteration={GROUPS}", *overrides)
        config = resolve_config(str(profile), list(chosen), str(tmp_path / "runs"))
        run = begin_run(config)
        ids = pd.read_parquet(curated.path / "tasks.parquet")["id"].tolist()
        sampler = TaskSampler(run.config.sampler, ids, run.config.seed)
        start = run.adapted("start", Entry("warm_start", "key", curated.path, "start", 0.0, {}))
        return RunQueue(run, curated, sampler, start), sampler, run

    return make


@pytest.mark.parametrize(
    ("overrides", "iterations"),
    [
        (["training.iterations=4"], 4),
        (["training.iterations=1"], 1),
        ([f"training.episodes={2 * GROUPS * SAMPLES}", "training.iterations=9"], 2),
        ([f"training.episodes={3 * GROUPS * SAMPLES - 1}", "training.iterations=9"], 2),
        (["training.episodes=1", "training.iterations=9"], 1),
    ],
)
def test_each_iteration_of_the_training_is_ordered_once(make_queue, overrides, iterations):
    queue, _, _ = make_queue(*overrides)
    for iteration in range(1, 9):
        queue.order(iteration)
        queue.order(iteration)
    assert [queue.queue.issued(iteration) for iteration in range(1, 9)] == [GROUPS] * iterations + [0] * (8 - iterations)


def test_orders_are_numbered_consecutively_and_hold_their_tasks(make_queue):
    queue, sampler, run = make_queue("training.iterations=2")
    chosen = [sampler.select(GROUPS, iteration) for iteration in (1, 2)]
    queue.order(1)
    queue.order(2)
    queue.publish(run.base())
    orders = queue.queue.lease("w", 99)
    assert [order.number for order in orders] == list(range(2 * GROUPS))
    assert [order.task["id"] for order in orders] == [*chosen[0], *chosen[1]]
    assert {order.load_task().id for order in orders} == {order.task["id"] for order in orders}
    assert len({(order.seed, order.iteration) for order in orders}) == 2
    assert {order.samples for order in orders} == {SAMPLES}


def test_a_resumed_run_keeps_its_orders(make_queue):
    queue, sampler, _ = make_queue("training.iterations=2")
    queue.order(1)
    sampler.observe(sampler.select(1, 1)[0], 50, 0)  # it would choose other tasks now
    again, _, _ = make_queue("training.iterations=2")
    assert again.queue.issued(1) == GROUPS
    again.order(1)
    assert again.summary()["issued"] == GROUPS


def test_other_settings_have_another_queue(make_queue):
    paths = {make_queue(*overrides)[0].queue.path for overrides in ([], ["learner.kl=0.5"], ["rollout.max_staleness=1"])}
    assert len(paths) == 3
