"""A rollout worker on a real engine and a real queue: whole groups, in-flight policy changes, reproducible seeds."""

import dataclasses
import shutil
import threading
import time

import pytest

from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.orders import Order
from tracewheel.rollout.rollout import episode_seed
from tracewheel.rollout.trajectory_queue import TrajectoryQueue
from tracewheel.rollout.worker import most_episodes, work

SAMPLES = 2


class Recording:
    """A queue that runs a function between a worker's steps."""

    def __init__(self, queue, on_complete=None):
        self.queue, self.on_complete, self.handed_in = queue, on_complete, []

    def __getattr__(self, name):
        return getattr(self.queue, name)

    def complete(self, order, worker, trajectories):
        self.handed_in.append((order, trajectories))
        accepted = self.queue.complete(order, worker, trajectories)
        if self.on_complete:
            self.on_complete(self)
        return accepted


@pytest.fixture
def profile(config):
    rollout = config.rollout.model_copy(update={"mode": "async", "group_size": SAMPLES, "max_turns": 3})
    training = config.training.model_copy(update={"tasks_per_iteration": 2})
    return config.model_copy(update={"rollout": rollout, "training": training})


@pytest.fixture
def queue(tmp_path, base, adapter):
    queue = TrajectoryQueue.open(tmp_path / "queue.sqlite", "run", max_staleness=1)
    queue.publish(PolicyRef(base, str(adapter), 0))
    return queue


def orders(tasks, iteration=1, start=0):
    return [
        Order(n, iteration, task.to_record(), variant=False, samples=SAMPLES, seed=3, temperature=1.1)
        for n, task in enumerate(tasks, start)
    ]


def run_until(queue, profile, number):
    """Work off the queue until `number` groups are handed in, then end."""
    source = Recording(queue, lambda own: own.queue.end() if len(own.handed_in) == number else None)
    work(source, profile, f"w-{id(source)}")
    return source


def test_groups_are_handed_in_whole_and_repeated_orders_give_the_same_episodes(queue, profile, tasks, tmp_path, base, adapter):
    queue.issue(orders(tasks[:2]))
    found = run_until(queue, profile, 2).handed_in
    for order, group in found:
        task = order.load_task()
        assert [t.sample for t in group] == [0, 1]
        assert {t.group for t in group} == {f"{task.id}#{order.number}.0"}
        assert [t.seed for t in group] == [episode_seed(3, task, sample) for sample in range(SAMPLES)]
        assert {t.temperature for t in group} == {1.1}
    batch = queue.claim(1, 2, 0).trajectories()
    assert batch == [t for _, group in sorted(found, key=lambda pair: pair[0].number) for t in group]
    again = TrajectoryQueue.open(tmp_path / "again.sqlite", "run", max_staleness=1)
    again.publish(PolicyRef(base, str(adapter), 0))
    again.issue(orders(tasks[:2]))
    assert sorted(t.id for _, group in run_until(again, profile, 2).handed_in for t in group) == sorted(t.id for t in batch)


def test_a_new_policy_takes_over_during_open_episodes(queue, profile, tasks, base, adapter, tmp_path, monkeypatch):
    monkeypatch.setattr("tracewheel.rollout.worker.POLL_SECONDS", 0.0)  # on a fast machine the episodes are over in three polls
    newer = tmp_path / "newer"
    shutil.copytree(adapter, newer)
    rollout = profile.rollout.model_copy(update={"max_turns": 20, "max_tokens": 400})
    profile = profile.model_copy(update={"rollout": rollout})
    queue.issue(orders(tasks[:2]))

    class Publishing(Recording):
        polls = 0

        def policy(self):
            self.polls += 1
            if self.polls == 4:  # the engine's own is the first
                self.queue.publish(PolicyRef(base, str(newer), 1))
            return self.queue.policy()

    source = Publishing(queue, lambda own: own.queue.end() if len(own.handed_in) == 2 else None)
    work(source, profile, "w")
    versions = [{v for v in t.token_versions() if v >= 0} for _, group in source.handed_in for t in group]
    assert {0, 1} in versions
    for _, group in source.handed_in:
        for trajectory in group:
            assert trajectory.policy_version == min(v for v in trajectory.token_versions() if v >= 0)


def test_an_idle_worker_waits_for_orders_and_for_the_end(queue, profile, tasks):
    queue.issue(orders(tasks[:1], iteration=3))  # which may not begin yet
    source = Recording(queue)
    thread = threading.Thread(target=work, args=(source, profile, "w"))
    thread.start()
    time.sleep(1.0)
    assert thread.is_alive()
    assert not source.handed_in
    queue.end()
    thread.join(timeout=60)
    assert not thread.is_alive()


@pytest.mark.parametrize(("workers", "slots", "most"), [(1, 256, 8), (2, 256, 4), (1, 5, 5), (4, 256, 2), (4, 1, 2)])
def test_workers_share_the_episodes_that_may_be_sampled_ahead(profile, workers, slots, most):
    rollout = profile.rollout.model_copy(
        update={
            "workers": profile.rollout.workers.model_copy(update={"count": workers}),
            "engine": profile.rollout.engine.model_copy(update={"slots": slots}),
        }
    )
    assert most_episodes(profile.model_copy(update={"rollout": rollout})) == most


class HangsAtReset(WorkspaceEnvironment):
    go_on = threading.Event()

    def reset(self, task):
        self.go_on.wait()


@pytest.mark.parametrize("threads", [0, 2])
def test_a_worker_whose_environment_hangs_hands_in_failed_episodes_and_goes_on(queue, profile, tasks, threads):
    HangsAtReset.go_on.clear()
    hanging = dataclasses.replace(tasks[0], environment=f"{__name__}:{HangsAtReset.__name__}")
    rollout = profile.rollout.model_copy(update={"step_seconds": 0.3, "tool_threads": threads})
    queue.issue(orders([hanging, tasks[1]]))
    found = run_until(queue, profile.model_copy(update={"rollout": rollout}), 2).handed_in
    HangsAtReset.go_on.set()
    failed = {order.number: {episode.stop_reason == "infrastructure_failed" for episode in group} for order, group in found}
    assert failed == {0: {True}, 1: {False}}
