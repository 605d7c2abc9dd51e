"""Asynchronous training: workers sample all the time, and an iteration claims from the queue what it trains on."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from flows.sources import is_last, score_and_observe
from tasks.collect import collect_batch
from tasks.fleet import make_fleet
from tasks.run import Policy, Run, settings_for
from tracewheel.core.fingerprint import code_version, package_versions
from tracewheel.core.store import Entry
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.rollout.fleet import Fleet
from tracewheel.rollout.orders import Order
from tracewheel.rollout.trajectory_queue import Batch, TrajectoryQueue
from tracewheel.sampling.sampler import TaskSampler
from tracewheel.sampling.schedule import has_room, rollout_seed, rollout_temperature

WAIT_SECONDS = 0.05
CHECK_SECONDS = 0.5
SECTIONS = ("seed", "threads", "policy", "environment", "rollout", "rubric", "sampler", "learner", "training")
CODE = ("tracewheel.rollout.worker", "tracewheel.scoring.score", "tracewheel.learner.update", "tracewheel.sampling.curriculum")


class QueueSource:
    """Orders what the sampler chooses, claims what workers hand in, and publishes each new policy.

    Orders for iteration k are issued as soon as the scores of iteration k - 1 - `max_staleness` are known, and may be
    begun once the policy of that iteration is published. Which groups an iteration claims depends on time; it is
    written down before anything is trained on them, so a run that goes on after a kill claims the same.

    Args:
        run: The run.
        curated: The curation, whose training tasks are rolled out.
        sampler: Chooses them.
        name: Tells the loops of a run apart.
    """

    def __init__(self, run: Run, curated: Entry, sampler: TaskSampler, name: str) -> None:
        self.run, self.curated, self.sampler = run, curated, sampler
        self._name = name
        self._queue: TrajectoryQueue | None = None
        self._workers: Workers | None = None

    def __enter__(self) -> QueueSource:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._end_workers()
        if self._queue:
            self._queue.close()

    def gather(self, policy: Policy, iteration: int, used: int) -> tuple[list[Entry], list[Entry]]:
        if self.run.planning:
            return self._planned(policy, iteration)
        if self._queue is None:
            self._queue = self._open(policy)
            for ahead in range(1, 2 + self._queue.max_staleness):
                self._issue(ahead)
            self.updated(policy)
        batch = self._queue.batch(iteration) or self._wait_for(iteration)
        collected = collect_batch(self.run, batch=batch, iteration=iteration)
        scored = score_and_observe(self, collected, iteration)
        self.sampler.evolve(self.curated.path)
        self._issue(iteration + 1 + self._queue.max_staleness)
        if is_last(self.run, iteration, used + self._ordered(iteration)):
            self._end_workers()
        return [collected], [scored]

    def _planned(self, policy: Policy, iteration: int) -> tuple[list[Entry], list[Entry]]:
        """What is stored of an iteration; without a claim, what a plan takes it for."""
        if iteration == 1 and (path := self._path(policy)).is_file():
            self._queue = TrajectoryQueue(path)
        batch = self._queue.batch(iteration) if self._queue else None
        if batch is None:
            label = self._label(iteration)
            self.run.driver.missing(label)
            batch = Batch(iteration, iteration - 1, f"planned {self._name} {label}", 0, queue=None)  # type: ignore[arg-type]
        collected = collect_batch(self.run, batch=batch, iteration=iteration)
        scored = score_and_observe(self, collected, iteration)
        self.sampler.evolve(self.curated.path)
        return [collected], [scored]

    def updated(self, policy: Policy) -> None:
        if self._queue and not self.run.planning:
            self._queue.publish(policy.ref())

    def summary(self) -> dict[str, Any]:
        """How many orders and trajectories came to what, and for how long there were workers."""
        if self._queue is None:
            return {"mode": "async"}
        seconds = round(self._queue.worker_seconds(), 1)
        return {"mode": "async", **self._queue.counts(), "worker_seconds": seconds, "queue": str(self._queue.path)}

    def _open(self, start: Policy) -> TrajectoryQueue:
        path = self._path(start)
        return TrajectoryQueue.open(path, path.stem, self.run.config.rollout.max_staleness)

    def _path(self, start: Policy) -> Path:
        """The file of this loop's queue. Its name holds a hash of all that decides what becomes of the loop, code included."""
        config = self.run.config
        made_from = {
            "settings": [settings_for(config, SECTIONS), config.rollout.max_staleness],
            "curated": self.curated.digest,
            "start": [start.entry and start.entry.digest, self.sampler.to_state()],
            "code": [code_version(module) for module in CODE],
            "packages": package_versions(),
        }
        identity = f"{self.run.record.run_id}-{self._name}-{content_hash(made_from, 8)}"
        return Path(config.work_dir) / "queue" / f"{identity}.sqlite"

    def _issue(self, iteration: int) -> None:
        """Order an iteration's groups, once; none for an iteration that there will not be."""
        queue, config = self._queue, self.run.config
        assert queue is not None
        if queue.issued(iteration) or iteration > config.training.iterations:
            return
        before = sum(queue.issued(earlier) for earlier in range(1, iteration))
        if before and not has_room(config.training.episodes, before * config.rollout.group_size, config.episodes_per_iteration):
            return
        task_ids = self.sampler.select(config.training.tasks_per_iteration, iteration)
        variants = {task.id: task for task in self.sampler.variants(task_ids)}
        tasks = {task.id: task for task in load_tasks(self.curated.path, "train")} | variants
        queue.issue(
            [
                Order(
                    number,
                    iteration,
                    tasks[task_id].to_record(),
                    variant=task_id in variants,
                    samples=config.rollout.group_size,
                    seed=rollout_seed(config.seed, iteration),
                    temperature=rollout_temperature(config.rollout, config.training.iterations, iteration),
                )
                for number, task_id in enumerate(task_ids, start=before)
            ]
        )

    def _wait_for(self, iteration: int) -> Batch:
        """Claim an iteration's groups as soon as there are enough."""
        queue, label = self._queue, self._label(iteration)
        assert queue is not None
        if self._workers is None:
            self._workers = Workers(make_fleet(self.run.config, queue, self.run.record.path / "workers" / self._name))
        self.run.reporter.start(label)
        started = time.monotonic()
        groups = queue.issued(iteration)
        while not (batch := queue.claim(iteration, groups, version=iteration - 1)):
            self._workers.check()
            self.run.reporter.move(min(groups, queue.counts()["done"]), groups)
            time.sleep(WAIT_SECONDS)
        self.run.reporter.end(label, "Completed", time.monotonic() - started)
        return batch

    def _end_workers(self) -> None:
        if self._workers:
            self._workers.stop()

    def _ordered(self, iteration: int) -> int:
        """Episodes of an iteration."""
        assert self._queue is not None
        return self._queue.issued(iteration) * self.run.config.rollout.group_size

    def _label(self, iteration: int) -> str:
        return f"claim {iteration} of {self.run.config.training.iterations}"


class Workers:
    """A fleet that is started, and checked from a thread, so that updates and evaluations may take their time."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        try:
            fleet.start()
        except BaseException:
            fleet.stop()
            raise
        self._thread = threading.Thread(target=self._watch, name="fleet", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what the fleet's last check has raised."""
        if self._failure:
            raise self._failure

    def stop(self) -> None:
        """Stop the fleet. May be called again."""
        self._stopping.set()
        self._thread.join()
        self._fleet.stop()

    def _watch(self) -> None:
        while not self._stopping.wait(CHECK_SECONDS):
            try:
                self._fleet.check()
            except Exception as error:  # it is raised where somebody waits for the workers
                self._failure = error
                return
