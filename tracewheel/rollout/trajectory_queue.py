"""The queue between rollout workers and the learner; it survives a kill of either.

Each step is one transaction, and each order is in one state:

    waiting -> leased -> done -> consumed    by exactly one iteration
                              -> stale       kept, never trained on; its next attempt waits instead

A returned lease waits again. So at every moment issued = consumed + stale + open, where open counts the orders that
wait, are leased or are done, and each trajectory is stored once.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tracewheel.core.errors import DataError
from tracewheel.core.types import Task, Trajectory, content_hash, not_failed
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.orders import Order
from tracewheel.rollout.queue_file import Execute, QueueFile

STATES = ("waiting", "leased", "done", "consumed", "stale")
OPEN = STATES[:3]


@dataclass(frozen=True)
class ClaimedGroups:
    """The groups that an iteration claimed, on which it trains.

    Attributes:
        iteration: The iteration that claimed it.
        version: The policy that it updates.
        digest: Hash of the trajectories and of `dropped`.
        dropped: Groups that the iteration found too old.
    """

    iteration: int
    version: int
    digest: str
    dropped: int
    queue: TrajectoryQueue = field(repr=False, compare=False)

    def trajectories(self) -> list[Trajectory]:
        """The trajectories in the order of their orders, then samples."""
        return self.queue.consumed(self.iteration)

    def variants(self) -> list[Task]:
        """The tasks among them that curation did not make."""
        orders = self.queue.orders("consumed", self.iteration)
        return list({order.task["id"]: order.load_task() for order in orders if order.variant}.values())


class TrajectoryQueue:
    """Orders, leases, trajectories, published policies, and what each iteration trained on. It is a `RolloutSource`.

    Threads may share one; every process opens its own.

    Args:
        path: An existing file.

    Raises:
        DataError: it is no queue, or one of another version of Tracewheel.
        InfrastructureError: the disk is full or cannot be written to, or the file stays locked; from every method.
    """

    def __init__(self, path: Path) -> None:
        self._file = QueueFile(path)
        self.path = path
        self.max_staleness = int(self._file.facts()["max_staleness"])

    @classmethod
    def open(cls, path: Path, identity: str, max_staleness: int) -> TrajectoryQueue:
        """The queue of a run, made when it does not exist. All leases are returned: no worker survives a restart.

        Args:
            path: The file.
            identity: Identifies the run; a file of another one is refused.
            max_staleness: How many versions the oldest token that is trained on may be behind the updated policy.

        Raises:
            DataError: the file is another run's.
        """
        if not path.is_file():
            QueueFile.create(path, {"identity": identity, "max_staleness": str(max_staleness)})
        queue = cls(path)
        found = queue._file.facts()["identity"]
        if found != identity:
            raise DataError(f"{path}: is the queue of {found}, not of {identity}; move it away to start over")
        with queue._file.step() as run:
            run("DELETE FROM facts WHERE name = 'ended'")
            run("UPDATE workers SET gone = 1")
            run("UPDATE orders SET state = 'waiting', worker = NULL WHERE state = 'leased'")
        return queue

    def close(self) -> None:
        """Close the file, without telling the workers."""
        self._file.close()

    # The learner's side.

    def issue(self, orders: Sequence[Order]) -> int:
        """Add the orders whose numbers are new. Returns how many were added."""
        with self._file.step() as run:
            return sum(_wait(run, order) for order in orders)

    def issued(self, iteration: int) -> int:
        """How many groups were ordered for an iteration."""
        return int(self._file.number("SELECT COUNT(*) FROM orders WHERE attempt = 0 AND iteration = ?", iteration))

    def publish(self, policy: PolicyRef) -> None:
        """Let workers continue with this policy; one older than the newest changes nothing."""
        with self._file.step() as run:
            newest = run("SELECT MAX(version) FROM policies").fetchone()[0]
            if newest is None or policy.version >= newest:
                run("INSERT OR REPLACE INTO policies VALUES (?, ?, ?)", (policy.version, policy.base, policy.adapter))

    def claim(self, iteration: int, groups: int, version: int, oldest: int = 0) -> ClaimedGroups | None:
        """Claim the oldest groups that are done for an iteration; a repeated call returns the same ones.

        Groups whose oldest token is more than `max_staleness` versions behind, or of a version below `oldest`, are marked
        stale and ordered again.

        Args:
            iteration: Which iteration trains on them.
            groups: How many.
            version: The policy that it updates.
            oldest: The lowest version that may be trained on.

        Returns:
            The groups; None when fewer are done.
        """
        oldest = max(oldest, version - self.max_staleness)
        done, found = self._file.read("SELECT COUNT(*), MIN(oldest) FROM orders WHERE state = 'done'")[0]
        if done < groups and (found is None or found >= oldest) and not self._claimed(iteration):
            return None  # a look costs nothing, a transaction waits for the disk
        with self._file.step() as run:
            claimed = self._claimed(iteration)
            if claimed:
                return claimed
            late = run("SELECT number, attempt, body FROM orders WHERE state = 'done' AND oldest < ?", (oldest,)).fetchall()
            for number, attempt, body in late:
                _end(run, (number, attempt), "stale", iteration)
                _wait(run, replace(_order(body), attempt=attempt + 1))
            ready = run("SELECT number, attempt FROM orders WHERE state = 'done' ORDER BY number LIMIT ?", (groups,)).fetchall()
            if len(ready) < groups:
                return None
            for number, attempt in ready:
                _end(run, (number, attempt), "consumed", iteration)
            dropped = run("SELECT COUNT(*) FROM orders WHERE state = 'stale' AND ended_in = ?", (iteration,)).fetchone()[0]
            digest = content_hash([dropped, [record.to_record() for record in self.consumed(iteration)]])
            run("INSERT INTO batches VALUES (?, ?, ?, ?)", (iteration, version, digest, dropped))
            return self._claimed(iteration)

    def claimed(self, iteration: int) -> ClaimedGroups | None:
        """The groups that an iteration has claimed; None if it has not claimed any."""
        return self._claimed(iteration)

    def release(self, worker: str) -> int:
        """Return the leases of a worker that is gone. Returns how many there were."""
        with self._file.step() as run:
            return _release(run, worker)

    def expire(self, seconds: float) -> list[str]:
        """Return the leases of workers without a heartbeat for `seconds`. Returns the workers' names."""
        with self._file.step() as run:
            lost = run(
                "SELECT name FROM workers WHERE NOT gone AND seen < ? ORDER BY name", (time.time() - seconds,)
            ).fetchall()
            for (name,) in lost:
                _release(run, name)
            return [name for (name,) in lost]

    def end(self) -> None:
        """Tell the workers to end."""
        with self._file.step() as run:
            run("INSERT OR IGNORE INTO facts VALUES ('ended', '1')")

    # The workers' side.

    def policy(self) -> PolicyRef:
        """The newest policy. `ValueError` before one was published."""
        rows = self._file.read("SELECT base, adapter, version FROM policies ORDER BY version DESC LIMIT 1")
        if not rows:
            raise ValueError(f"{self.path}: no policy has been published")
        return PolicyRef(*rows[0])

    def lease(self, worker: str, most: int) -> list[Order]:
        """The oldest waiting orders of iterations within `max_staleness` of the next."""
        if not self._ready(1):  # as in `claim`
            return []
        with self._file.step() as run:
            if self._ended():
                return []
            _seen(run, worker)
            orders = self._ready(most)
            for order in orders:
                place = (order.number, order.attempt)
                run("UPDATE orders SET state = 'leased', worker = ? WHERE number = ? AND attempt = ?", (worker, *place))
            return orders

    def heartbeat(self, worker: str) -> bool:
        """As a `RolloutSource`."""
        with self._file.step() as run:
            _seen(run, worker)
            return not self._ended()

    def complete(self, order: Order, worker: str, trajectories: list[Trajectory]) -> bool:
        """As a `RolloutSource`: the first group handed in for an order counts, whoever holds the lease by then.

        Raises:
            DataError: the group is not whole, or was never ordered.
        """
        if [trajectory.sample for trajectory in trajectories] != list(range(order.samples)):
            raise DataError(f"order {order.id}: a group of {order.samples} samples is handed in whole and in order")
        with self._file.step() as run:
            place = (order.number, order.attempt)
            state = run("SELECT state FROM orders WHERE number = ? AND attempt = ?", place).fetchone()
            if state is None:
                raise DataError(f"{self.path}: order {order.id} was never issued")
            if state[0] not in ("waiting", "leased"):
                return False
            for trajectory in trajectories:
                record = zlib.compress(json.dumps(trajectory.to_record()).encode(), 1)
                run("INSERT INTO trajectories VALUES (?, ?, ?, ?, ?)", (trajectory.id, *place, trajectory.sample, record))
            # A failed episode is not trained on, so its age must not make a group too old.
            counted = not_failed(trajectories) or trajectories
            oldest = min(trajectory.policy_version for trajectory in counted)
            run(
                "UPDATE orders SET state = 'done', worker = ?, oldest = ? WHERE number = ? AND attempt = ?",
                (worker, oldest, *place),
            )
            _seen(run, worker)
            return True

    # Counts and state.

    def counts(self) -> dict[str, int]:
        """How many orders are in each state, `open`, `issued` in all, and how many trajectories there are."""
        with self._file.step() as run:
            found = dict(run("SELECT state, COUNT(*) FROM orders GROUP BY state").fetchall())
            counts = {state: found.get(state, 0) for state in STATES}
            trajectories = run("SELECT COUNT(*) FROM trajectories").fetchone()[0]
        of_open = sum(counts[state] for state in OPEN)
        return {"issued": sum(counts.values()), "open": of_open, **counts, "trajectories": trajectories}

    def worker_seconds(self) -> float:
        """The lifetimes of all workers, added up."""
        return float(self._file.number("SELECT TOTAL(seen - started) FROM workers"))

    def handed_in(self) -> int:
        """How many groups were handed in so far."""
        return int(self._file.number("SELECT COUNT(*) FROM orders WHERE state IN ('done', 'consumed', 'stale')"))

    def orders(self, state: str, ended_in: int) -> list[Order]:
        """The orders that an iteration consumed, or dropped as stale."""
        query = "SELECT body FROM orders WHERE state = ? AND ended_in = ? ORDER BY number, attempt"
        return [_order(body) for (body,) in self._file.read(query, state, ended_in)]

    def consumed(self, iteration: int) -> list[Trajectory]:
        """The trajectories that an iteration trained on, in the order of their orders, then samples."""
        rows = self._file.read(
            "SELECT record FROM trajectories JOIN orders USING (number, attempt) WHERE state = 'consumed' AND ended_in = ? "
            "ORDER BY number, attempt, sample",
            iteration,
        )
        return [Trajectory.from_record(json.loads(zlib.decompress(record))) for (record,) in rows]

    def _ready(self, most: int) -> list[Order]:
        """The oldest orders that may begin."""
        rows = self._file.read(
            "SELECT body FROM orders WHERE state = 'waiting' AND iteration <= (SELECT MAX(version) FROM policies) + 1 + ? "
            "ORDER BY number LIMIT ?",
            self.max_staleness,
            most,
        )
        return [_order(body) for (body,) in rows]

    def _claimed(self, iteration: int) -> ClaimedGroups | None:
        rows = self._file.read("SELECT version, digest, dropped FROM batches WHERE iteration = ?", iteration)
        if not rows:
            return None
        version, digest, dropped = rows[0]
        return ClaimedGroups(iteration, version, digest, dropped, queue=self)

    def _ended(self) -> bool:
        return "ended" in self._file.facts()


def _wait(run: Execute, order: Order) -> int:
    """Add an order unless it exists. Returns how many were added."""
    body = json.dumps(asdict(order))
    row = (order.number, order.attempt, order.iteration, body)
    return run("INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?, 'waiting', NULL, NULL, NULL)", row).rowcount


def _end(run: Execute, place: tuple[int, int], state: str, iteration: int) -> None:
    run("UPDATE orders SET state = ?, ended_in = ? WHERE number = ? AND attempt = ?", (state, iteration, *place))


def _release(run: Execute, worker: str) -> int:
    run("UPDATE workers SET gone = 1 WHERE name = ?", (worker,))
    return run("UPDATE orders SET state = 'waiting', worker = NULL WHERE state = 'leased' AND worker = ?", (worker,)).rowcount


def _seen(run: Execute, worker: str) -> None:
    now = time.time()
    known = "ON CONFLICT (name) DO UPDATE SET seen = excluded.seen, gone = 0"
    run(f"INSERT INTO workers VALUES (?, ?, ?, 0) {known}", (worker, now, now))


def _order(body: str) -> Order:
    return Order(**json.loads(body))
