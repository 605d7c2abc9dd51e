"""What asynchronous training orders: each iteration's tasks once, and none for iterations that will not be."""

import pandas as pd
import pytest

from flows.queue_source import QueueSource
from flows.setup import resolve_config
from tasks.drivers import NotStored, StoredDriver
from tasks.run import Run
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
def make_source(profile, curated, tmp_path):
    def make(*overrides, planning=False):
        chosen = ("rollout.mode=async", "rollout.max_staleness=2", f"training.tasks_per_iteration={GROUPS}", *overrides)
        run = Run.of(
            resolve_config(str(profile), list(chosen), str(tmp_path / "runs")), driver=StoredDriver() if planning else None
        )
        ids = pd.read_parquet(curated.path / "tasks.parquet")["id"].tolist()
        return QueueSource(run, curated, TaskSampler(run.config.sampler, ids, run.config.seed), "rl")

    return make


def opened(source):
    start = source.run.adapted("start", Entry("warm_start", "key", source.curated.path, "start", 0.0, {}))
    source._queue = source._open(start)
    return source._queue


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
def test_there_are_orders_for_the_iterations_that_there_will_be(make_source, overrides, iterations):
    source = make_source(*overrides)
    queue = opened(source)
    for iteration in range(1, 9):
        source._issue(iteration)
        source._issue(iteration)
    assert [queue.issued(iteration) for iteration in range(1, 9)] == [GROUPS] * iterations + [0] * (8 - iterations)


def test_orders_are_numbered_through_and_hold_their_tasks(make_source):
    source = make_source("training.iterations=2")
    queue = opened(source)
    chosen = [source.sampler.select(GROUPS, iteration) for iteration in (1, 2)]
    source._issue(1)
    source._issue(2)
    source.updated(source.run.base())
    orders = queue.lease("w", 99)
    assert [order.number for order in orders] == list(range(2 * GROUPS))
    assert [order.task["id"] for order in orders] == [*chosen[0], *chosen[1]]
    assert {order.load_task().id for order in orders} == {order.task["id"] for order in orders}
    assert len({(order.seed, order.iteration) for order in orders}) == 2
    assert {order.samples for order in orders} == {SAMPLES}


def test_a_run_that_goes_on_keeps_what_was_ordered(make_source):
    source = make_source("training.iterations=2")
    opened(source)
    source._issue(1)
    source.sampler.observe(source.sampler.select(1, 1)[0], 50, 0)  # it would choose otherwise now
    again = make_source("training.iterations=2")
    assert opened(again).issued(1) == GROUPS
    again._issue(1)
    assert again.summary()["issued"] == GROUPS


def test_other_settings_have_a_queue_of_their_own(make_source):
    paths = {opened(make_source(*overrides)).path for overrides in ([], ["learner.kl=0.5"], ["rollout.max_staleness=1"])}
    assert len(paths) == 3


def test_a_plan_makes_no_queue(make_source):
    source = make_source(planning=True)
    with pytest.raises(NotStored, match="claim 1"):
        opened(source)
    assert not (source.run.store.root.parent / "queue").exists()
