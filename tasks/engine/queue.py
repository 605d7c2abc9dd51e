"""The trajectory queue of a training loop, and the workers that fill it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tasks.engine.fleet import make_fleet
from tasks.engine.kinds import code_of
from tasks.engine.run import Policy, Run, settings_for
from tasks.records.improvement import LOOP
from tracewheel.core.fingerprint import code_parts, package_versions
from tracewheel.core.progress import Progress
from tracewheel.core.store import Entry
from tracewheel.core.types import content_hash
from tracewheel.rollout.fleet import WatchedFleet
from tracewheel.rollout.order_book import OrderBook
from tracewheel.rollout.trajectory_queue import ClaimedGroups, TrajectoryQueue
from tracewheel.sampling.sampler import TaskSampler

SECTIONS = ("seed", "threads", "policy", "environment", "rollout", "rubric", "sampler", "learner", "training")
CODE = ("tracewheel.rollout.worker", "tracewheel.scoring.score", "tracewheel.learner.update", "tracewheel.sampling.curriculum")


class RunQueue:
    """The queue of one training loop. Its workers start when an iteration has to wait for them.

    Args:
        run: The run.
        curated: The curation, whose training tasks are rolled out.
        sampler: Chooses them.
        start: The policy that the loop starts from.
    """

    def __init__(self, run: Run, curated: Entry, sampler: TaskSampler, start: Policy) -> None:
        self._run = run
        self._fleet: WatchedFleet | None = None
        self._oldest = 0  # version of the oldest policy whose groups are trained on
        staleness = run.config.rollout.max_staleness
        code = code_of(CODE, run.config, SECTIONS)
        made_from = {
            "settings": [settings_for(run.config, SECTIONS), staleness],
            "curated": curated.digest,
            "start": [start.entry and start.entry.digest, sampler.to_state()],
            "code": code_parts(*code.modules, plugins=code.plugins),
            "packages": package_versions(),
        }
        queue = f"{run.record.run_id}-{LOOP}-{content_hash(made_from, 8)}.sqlite"
        path = Path(run.config.work_dir) / "queue" / queue
        self.queue = TrajectoryQueue.open(path, path.stem, staleness)
        self._book = OrderBook(self.queue, run.config, curated.path, sampler)

    def order(self, iteration: int) -> None:
        """Order an iteration's groups, once; none when the training ends before that iteration."""
        self._book.order(iteration)

    def episodes(self, iteration: int) -> int:
        """The number of episodes ordered for an iteration."""
        return self._book.episodes(iteration)

    def publish(self, policy: Policy) -> None:
        """Let workers continue with this policy."""
        self.queue.publish(policy.ref())

    def start_over(self, policy: Policy) -> None:
        """Let workers continue with this policy; groups in which an older one sampled are dropped and ordered again."""
        self._oldest = policy.version
        self.publish(policy)

    def claim(self, iteration: int) -> ClaimedGroups:
        """The groups that an iteration trains on, claimed once enough are complete."""
        run, label = self._run, f"claim {iteration} of {self._run.config.training.iterations}"
        if claimed := self.queue.claimed(iteration):
            return claimed
        if self._fleet is None:
            self._fleet = WatchedFleet(make_fleet(run.config, self.queue, run.record.path / "workers" / LOOP))

        def groups_done(done: int, total: int) -> None:
            run.reporter.move(Progress(done, total, "groups"))

        run.reporter.start(label)
        started = time.monotonic()
        claimed = self._book.claim(iteration, self._fleet, groups_done, oldest=self._oldest)
        run.reporter.end(label, "Completed", time.monotonic() - started)
        return claimed

    def summary(self) -> dict[str, Any]:
        """How many orders and trajectories are in which state, and for how long there were workers."""
        seconds = round(self.queue.worker_seconds(), 1)
        return {**self.queue.counts(), "worker_seconds": seconds, "queue": str(self.queue.path)}

    def stop_workers(self) -> None:
        """Stop the workers, if any. May be called again."""
        if self._fleet:
            self._fleet.stop()

    def close(self) -> None:
        """Stop the workers and close the queue's file."""
        self.stop_workers()
        self.queue.close()
