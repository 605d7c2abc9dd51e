"""The queue: each order ends once, whatever is killed, claimed again or handed in twice."""

import itertools
import shutil
import sqlite3
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.types import Trajectory, content_hash
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.orders import Order
from tracewheel.rollout.queue_file import QueueFile
from tracewheel.rollout.trajectory_queue import TrajectoryQueue

SAMPLES = 2
GROUPS = 3


def order(number, iteration=1, **changes):
    values = {"task": {"id": f"task-{number}"}, "variant": False, "samples": SAMPLES, "seed": 7, "temperature": 1.0}
    return Order(number, iteration, **{**values, **changes})


def group(ordered, version=0):
    """The group that a worker hands in for an order; its oldest token is of `version`."""
    return [
        Trajectory(
            id=content_hash([ordered.rollout_seed, ordered.number, sample, version]),
            task_id=ordered.task["id"],
            group=ordered.group,
            sample=sample,
            seed=sample,
            policy_version=version,
            temperature=1.0,
            token_ids=[1, 2],
            action_mask=[0, 1],
            logprobs=[0.0, -0.1234567891234567],
            turns=[{"start": 1, "end": 2, "policy_version": version}],
            final_state={"a": ["b"]},
            messages=[{"role": "user", "content": "é"}],
            stop_reason="finished",
        )
        for sample in range(ordered.samples)
    ]


def without_waiting(queue):
    """Turn off waiting for the disk; these tests do not survive a power loss."""
    queue._file.read("PRAGMA synchronous=OFF")
    return queue


@pytest.fixture
def queue(tmp_path):
    queue = without_waiting(TrajectoryQueue.open(tmp_path / "queue.sqlite", "run", max_staleness=1))
    queue.publish(PolicyRef("base", "adapter", 0))
    yield queue
    queue.close()


def finish(queue, orders, version=0, worker="w"):
    return [queue.complete(one, worker, group(one, version)) for one in orders]


class TestOrders:
    def test_an_order_is_issued_once_per_number(self, queue):
        assert queue.issue([order(0), order(1)]) == 2
        assert queue.issue([order(1, seed=99), order(2)]) == 1
        assert [one.seed for one in queue.lease("w", 9)] == [7, 7, 7]
        assert queue.issued(1) == 3

    def test_a_leased_order_is_leased_to_no_other_worker(self, queue):
        queue.issue([order(n) for n in range(5)])
        assert [one.number for one in queue.lease("a", 2)] == [0, 1]
        assert [one.number for one in queue.lease("b", 9)] == [2, 3, 4]
        assert queue.lease("a", 9) == []

    def test_an_order_is_leased_only_within_the_staleness_bound(self, queue):
        queue.issue([order(n, iteration) for n, iteration in enumerate([1, 2, 3, 4])])
        assert [one.iteration for one in queue.lease("a", 9)] == [1, 2]
        queue.publish(PolicyRef("base", "adapter", 1))
        assert [one.iteration for one in queue.lease("a", 9)] == [3]

    def test_nothing_is_leased_before_a_policy_is_published(self, tmp_path):
        queue = TrajectoryQueue.open(tmp_path / "new.sqlite", "run", max_staleness=5)
        queue.issue([order(0)])
        assert queue.lease("a", 9) == []
        with pytest.raises(ValueError, match="no policy"):
            queue.policy()

    def test_a_released_order_is_leased_again_with_the_same_seeds(self, queue):
        queue.issue([order(0), order(1)])
        (first, _) = queue.lease("a", 2)
        finish(queue, [first], worker="a")
        assert queue.release("a") == 1
        (again,) = queue.lease("b", 9)
        assert again == order(1)

    def test_only_silent_workers_lose_their_leases(self, queue):
        queue.issue([order(0), order(1)])
        queue.lease("silent", 1)
        queue.lease("alive", 1)
        assert queue.expire(60.0) == []
        connection = sqlite3.connect(queue.path)
        connection.execute("UPDATE workers SET seen = seen - 100 WHERE name = 'silent'")
        connection.commit()
        connection.close()
        assert queue.expire(60.0) == ["silent"]
        assert queue.expire(60.0) == []
        assert [one.number for one in queue.lease("b", 9)] == [0]

    def test_workers_stop_at_the_end_until_the_run_resumes(self, queue):
        queue.issue([order(0)])
        assert queue.heartbeat("a")
        queue.end()
        assert not queue.heartbeat("a")
        assert queue.lease("a", 1) == []
        again = TrajectoryQueue.open(queue.path, "run", max_staleness=1)
        assert again.heartbeat("a")
        assert len(again.lease("a", 1)) == 1


class TestHandingIn:
    def test_a_second_hand_in_is_rejected_and_changes_nothing(self, queue):
        queue.issue([order(0)])
        (leased,) = queue.lease("a", 1)
        assert queue.complete(leased, "a", group(leased, 0))
        before = queue.counts()
        assert not queue.complete(leased, "b", group(leased, 1))
        assert queue.counts() == before
        assert [t.policy_version for t in queue.claim(1, 1, 0).trajectories()] == [0, 0]

    def test_the_first_hand_in_is_accepted_even_after_its_lease_was_released(self, queue):
        queue.issue([order(0)])
        (leased,) = queue.lease("slow", 1)
        queue.release("slow")
        queue.lease("other", 1)
        assert queue.complete(leased, "slow", group(leased))
        assert not queue.complete(leased, "other", group(leased))
        assert queue.counts()["trajectories"] == SAMPLES

    def test_incomplete_groups_and_unknown_orders_are_refused(self, queue):
        queue.issue([order(0)])
        (leased,) = queue.lease("a", 1)
        with pytest.raises(DataError, match="whole"):
            queue.complete(leased, "a", group(leased)[1:])
        with pytest.raises(DataError, match="never issued"):
            queue.complete(order(8), "a", group(order(8)))

    def test_claimed_records_equal_those_handed_in(self, queue):
        queue.issue([order(0)])
        leased = queue.lease("a", 1)
        finish(queue, leased)
        assert queue.claim(1, 1, 0).trajectories() == group(order(0))


class TestClaims:
    def test_a_claim_takes_the_oldest_groups_and_is_repeatable(self, queue):
        queue.issue([order(n, 1 + n // 2) for n in range(4)])
        leased = queue.lease("a", 4)
        finish(queue, [leased[3], leased[1]])
        assert queue.claim(1, 3, 0) is None
        finish(queue, [leased[2]])
        batch = queue.claim(1, 2, 0)
        assert [t.task_id for t in batch.trajectories()[::SAMPLES]] == ["task-1", "task-2"]
        finish(queue, [leased[0]])
        again = TrajectoryQueue.open(queue.path, "run", max_staleness=1).claim(1, 2, 0)
        assert (again.digest, again.trajectories()) == (batch.digest, batch.trajectories())
        assert [t.task_id for t in queue.claim(2, 2, 1).trajectories()[::SAMPLES]] == ["task-0", "task-3"]

    def test_stale_groups_are_kept_counted_and_ordered_again_with_other_seeds(self, queue):
        queue.issue([order(n) for n in range(3)])
        leased = queue.lease("a", 3)
        finish(queue, leased[:1], version=0)
        finish(queue, leased[1:], version=1)
        assert queue.claim(3, 3, 2) is None
        (reissued,) = queue.lease("a", 9)
        assert (reissued.number, reissued.attempt) == (0, 1)
        assert reissued.rollout_seed != leased[0].rollout_seed
        assert not queue.complete(leased[0], "late", group(leased[0]))
        finish(queue, [reissued], version=2)
        batch = queue.claim(3, 3, 2)
        assert batch.dropped == 1
        assert [t.group for t in batch.trajectories()[::SAMPLES]] == ["task-0#0.1", "task-1#1.0", "task-2#2.0"]
        counts = queue.counts()
        assert (counts["issued"], counts["consumed"], counts["stale"], counts["open"]) == (4, 3, 1, 0)
        assert counts["trajectories"] == 4 * SAMPLES

    def test_groups_of_lost_policies_are_ordered_again_however_fresh_they_are(self, queue):
        queue.publish(PolicyRef("base", None, 5))
        queue.issue([order(number) for number in range(2)])
        leased = queue.lease("w", 2)
        finish(queue, leased[:1], version=5)
        finish(queue, leased[1:], version=6)
        assert queue.claim(7, 2, version=6, oldest=6) is None
        (again,) = queue.lease("w", 9)
        assert (again.number, again.attempt) == (0, 1)
        finish(queue, [again], version=6)
        assert [one.policy_version for one in queue.claim(7, 2, version=6, oldest=6).trajectories()] == [6] * 2 * SAMPLES

    @pytest.mark.parametrize(("staleness", "dropped"), [(0, 0), (1, 0), (2, 1)])
    def test_staleness_equal_to_the_bound_is_accepted(self, queue, staleness, dropped):
        queue.issue([order(0), order(1)])
        leased = queue.lease("a", 2)
        finish(queue, leased[:1], version=5 - staleness)
        finish(queue, leased[1:], version=5)
        assert queue.claim(6, 1, 5).dropped == dropped

    def test_variants_come_with_the_batch(self, queue, tasks):
        queue.issue([order(0), order(1, task=tasks[0].to_record(), variant=True)])
        finish(queue, queue.lease("a", 2))
        assert queue.claim(1, 2, 0).variants() == [tasks[0]]


class TestPolicies:
    def test_the_newest_policy_is_kept_when_older_ones_are_published(self, queue):
        queue.publish(PolicyRef("base", "two", 2))
        queue.publish(PolicyRef("base", "one", 1))
        assert queue.policy() == PolicyRef("base", "two", 2)
        queue.publish(PolicyRef("base", "moved", 2))
        assert queue.policy().adapter == "moved"
        queue.publish(PolicyRef("whole", None, 3))
        assert queue.policy() == PolicyRef("whole", None, 3)


class TestFiles:
    def test_the_file_of_another_run_is_refused(self, queue):
        with pytest.raises(DataError, match="is the queue of run, not of other"):
            TrajectoryQueue.open(queue.path, "other", max_staleness=1)

    @pytest.mark.parametrize("content", [b"no database at all, and long enough to have a header" * 50, b""])
    def test_a_file_that_is_no_queue_is_refused(self, tmp_path, content):
        path = tmp_path / "other.sqlite"
        path.write_bytes(content)
        with pytest.raises(DataError, match="other.sqlite: not a trajectory queue"):
            TrajectoryQueue(path)

    def test_another_schema_is_refused(self, queue):
        connection = sqlite3.connect(queue.path)
        connection.execute("UPDATE facts SET value = '99' WHERE name = 'schema'")
        connection.commit()
        connection.close()
        with pytest.raises(DataError, match="of schema 1, but of 99"):
            TrajectoryQueue(queue.path)

    def test_a_missing_file_is_an_error(self, tmp_path):
        with pytest.raises(DataError, match="no such file"):
            TrajectoryQueue(tmp_path / "none.sqlite")

    def test_a_partially_created_queue_is_created_again(self, tmp_path):
        (tmp_path / ".partial-queue.sqlite").write_bytes(b"half")
        queue = TrajectoryQueue.open(tmp_path / "queue.sqlite", "run", max_staleness=1)
        assert queue.counts()["issued"] == 0
        assert not list(tmp_path.glob(".partial-*"))

    def test_a_full_disk_is_a_clear_error_and_changes_nothing(self, queue):
        queue.issue([order(0)])
        (leased,) = queue.lease("a", 1)
        before = queue.counts()
        pages = queue._file.number("PRAGMA page_count")
        queue._file.read(f"PRAGMA max_page_count = {pages}")
        large = [replace(t, detail="".join(map(str, range(40000)))) for t in group(leased)]
        with pytest.raises(InfrastructureError, match="queue.sqlite: database or disk is full"):
            queue.complete(leased, "a", large)
        assert queue.counts() == before
        queue._file.read("PRAGMA max_page_count = 1000000")
        assert queue.complete(leased, "a", large)

    def test_a_file_that_stays_locked_is_a_clear_error(self, queue, monkeypatch):
        monkeypatch.setattr("tracewheel.rollout.queue_file.BUSY_SECONDS", 0.1)
        other = TrajectoryQueue(queue.path)
        with queue._file.step(), pytest.raises(InfrastructureError, match="locked"):
            other.issue([order(0)])

    def test_an_unwritable_folder_is_an_error(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(InfrastructureError):
            TrajectoryQueue.open(tmp_path / "file" / "queue.sqlite", "run", max_staleness=1)


def test_many_threads_and_connections_leave_exact_counts(queue):
    number = 60
    queue.issue([order(n) for n in range(number)])
    accepted = []

    def worker(name, own):
        while leased := own.lease(name, 2):
            accepted.extend(own.complete(one, name, group(one)) for one in leased for _ in range(2))

    sources = [queue, queue, TrajectoryQueue(queue.path), TrajectoryQueue(queue.path)]
    threads = [threading.Thread(target=worker, args=(f"w{n}", own)) for n, own in enumerate(sources)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (accepted.count(True), accepted.count(False)) == (number, number)
    assert queue.counts()["trajectories"] == number * SAMPLES


class Interleavings(RuleBasedStateMachine):
    """Workers, a learner and crashes in any order. The model holds what each side believes it has done."""

    @initialize(staleness=st.integers(1, 2))
    def begin(self, staleness):
        self.folder = Path(tempfile.mkdtemp())
        self.staleness, self.version, self.iteration = staleness, 0, 1
        self.queue = without_waiting(TrajectoryQueue.open(self.folder / "queue.sqlite", "run", staleness))
        self.queue.publish(PolicyRef("base", "a0", 0))
        self.numbers = itertools.count()
        self.issued, self.held, self.late = 0, {"a": [], "b": []}, []
        self.heard, self.batches, self.stale = set(), {}, 0

    def teardown(self):
        if hasattr(self, "queue"):
            self.queue.close()
            shutil.rmtree(self.folder)

    @rule(ahead=st.integers(0, 3))
    def issue(self, ahead):
        made = [order(next(self.numbers), self.iteration + ahead) for _ in range(GROUPS)]
        assert self.queue.issue(made) == GROUPS
        assert self.queue.issue(made) == 0
        self.issued += GROUPS

    @rule(worker=st.sampled_from("ab"), most=st.integers(1, 4))
    def lease(self, worker, most):
        taken = self.queue.lease(worker, most)
        assert all(one.iteration <= self.version + 1 + self.staleness for one in taken)
        others = [id for held in self.held.values() for id, _ in held]
        assert not {one.id for one in taken} & {one.id for one in others}
        self.held[worker] += [(one, self.version) for one in taken]

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data())
    def hand_in(self, data):
        worker = data.draw(st.sampled_from([name for name, held in self.held.items() if held]))
        one, version = self.held[worker].pop(data.draw(st.integers(0, len(self.held[worker]) - 1)))
        assert self.queue.complete(one, worker, group(one, version)) == (one.id not in self.heard)
        self.heard.add(one.id)
        self.late.append((one, version))

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def hand_in_again(self, data):
        one, _ = data.draw(st.sampled_from(self.late))
        assert self.queue.complete(one, "late", group(one, self.version)) == (one.id not in self.heard)
        self.heard.add(one.id)

    @rule(worker=st.sampled_from("ab"), survives=st.booleans())
    def worker_is_given_up(self, worker, survives):
        assert self.queue.release(worker) == sum(one.id not in self.heard for one, _ in self.held[worker])
        if survives:
            self.late += self.held[worker]
        self.held[worker] = []

    @rule()
    def claim_and_update(self):
        batch = self.queue.claim(self.iteration, GROUPS, self.version)
        if batch is None:
            return
        for trajectory in batch.trajectories():
            assert self.version - trajectory.policy_version <= self.staleness
        self.batches[self.iteration] = (batch.digest, [t.id for t in batch.trajectories()])
        self.iteration, self.version = self.iteration + 1, self.version + 1
        self.queue.publish(PolicyRef("base", f"a{self.version}", self.version))

    @rule()
    def claim_and_be_killed(self):
        batch = self.queue.claim(self.iteration, GROUPS, self.version)
        self.crash()
        again = self.queue.claim(self.iteration, GROUPS, self.version)
        assert (batch and batch.digest) == (again and again.digest)

    @rule()
    def crash(self):
        """The driver is killed: its connection closes without notice, and its workers end."""
        self.queue.close()
        self.queue = without_waiting(TrajectoryQueue.open(self.folder / "queue.sqlite", "run", self.staleness))
        self.late += [pair for held in self.held.values() for pair in held]
        self.held = {name: [] for name in self.held}
        assert self.queue.policy().version == self.version

    @invariant()
    def counts_are_exact(self):
        if not hasattr(self, "queue"):
            return
        counts = self.queue.counts()
        claimed = [self.queue.claimed(number) for number in range(1, self.iteration + 1)]
        claimed = [batch for batch in claimed if batch]
        assert counts["issued"] == counts["consumed"] + counts["stale"] + counts["open"]
        assert counts["issued"] == self.issued + counts["stale"]  # each stale order is issued again
        assert counts["consumed"] == GROUPS * len(claimed)
        assert counts["trajectories"] == SAMPLES * len(self.heard)
        assert counts["done"] + counts["consumed"] + counts["stale"] == len(self.heard)
        ids = [t.id for batch in claimed for t in batch.trajectories()]
        assert len(ids) == len(set(ids))
        for number, known in self.batches.items():
            batch = self.queue.claimed(number)
            assert (batch.digest, [t.id for t in batch.trajectories()]) == known


Interleavings.TestCase.settings = settings(max_examples=25, stateful_step_count=30)
TestInterleavings = Interleavings.TestCase


def test_a_queue_is_created_whole_or_not_at_all(tmp_path, monkeypatch):
    """A kill during creation leaves no file; the next run creates it."""

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        QueueFile.create(tmp_path / "queue.sqlite", {"identity": "run", "max_staleness": "1"})
    assert not (tmp_path / "queue.sqlite").exists()
