"""The learner's side of asynchronous training: the orders of each iteration, and the wait until it can be claimed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tracewheel.config import RetrainConfig
from tracewheel.rollout.fleet import WatchedFleet
from tracewheel.rollout.orders import Order
from tracewheel.rollout.rollout import Progress
from tracewheel.rollout.training_tasks import training_tasks
from tracewheel.rollout.trajectory_queue import ClaimedGroups, TrajectoryQueue
from tracewheel.sampling.sampler import TaskSampler
from tracewheel.sampling.seeds import rollout_seed
from tracewheel.sampling.validation import has_room

POLL_SECONDS = 0.05


@dataclass(frozen=True)
class OrderBook:
    """Orders groups of episodes for the iterations of a training loop, and claims them.

    Attributes:
        queue: The loop's queue.
        config: The profile.
        curated: The folder of the curation stage, whose training tasks are rolled out.
        sampler: Chooses the tasks.
    """

    queue: TrajectoryQueue
    config: RetrainConfig
    curated: Path
    sampler: TaskSampler

    def order(self, iteration: int) -> None:
        """Order an iteration's groups, once; none when the training ends before that iteration."""
        queue, config = self.queue, self.config
        if queue.issued(iteration) or iteration > config.training.iterations:
            return
        before = sum(queue.issued(earlier) for earlier in range(1, iteration))
        if before and not has_room(config.training.episodes, before * config.rollout.group_size, config.episodes_per_iteration):
            return
        task_ids = self.sampler.select(config.training.tasks_per_iteration, iteration)
        seed = rollout_seed(config.seed, iteration)
        played = training_tasks(config.rollout.exploration, self.curated, task_ids, self.sampler.variants(task_ids), seed)
        made = {task.id for task in played.made}
        queue.issue(
            [
                Order(
                    number,
                    iteration,
                    task.to_record(),
                    variant=task.id in made,
                    samples=config.rollout.group_size,
                    seed=seed,
                    temperature=config.rollout.temperature,
                )
                for number, task in enumerate(played.tasks, start=before)
            ]
        )

    def episodes(self, iteration: int) -> int:
        """How many episodes were ordered for an iteration."""
        return self.queue.issued(iteration) * self.config.rollout.group_size

    def claim(self, iteration: int, fleet: WatchedFleet, progress: Progress, oldest: int = 0) -> ClaimedGroups:
        """Wait until as many groups are done as were ordered for an iteration, and claim them.

        Args:
            iteration: Which iteration trains on them.
            fleet: The workers; errors of its checks are raised here.
            progress: Called with (groups done, groups ordered).
            oldest: Version of the oldest policy whose groups are claimed, however stale others may be.
        """
        groups = self.queue.issued(iteration)
        while not (claimed := self.queue.claim(iteration, groups, version=iteration - 1, oldest=oldest)):
            fleet.check()
            progress(min(groups, self.queue.counts()["done"]), groups)
            time.sleep(POLL_SECONDS)
        return claimed
