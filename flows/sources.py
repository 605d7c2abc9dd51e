"""Where an iteration's trajectories come from: sampled before each update, or continuously."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.engine.queue import RunQueue
from tasks.engine.run import Policy, Run
from tasks.stages.rollout import collect_groups, roll_out
from tasks.stages.score import score_trajectories
from tracewheel.core.store import Entry
from tracewheel.sampling.dynamic_sampling import refill_size
from tracewheel.sampling.sampler import TaskSampler, observe_scores
from tracewheel.sampling.validation import has_room
from tracewheel.scoring.score import SCORES_FILE


@dataclass
class Source:
    """Gives the loop its trajectories and the sampler their outcomes; each new policy is passed to it.

    It rolls out before each update.
    """

    run: Run
    curated: Entry
    sampler: TaskSampler

    def gather(self, policy: Policy, iteration: int, used: int) -> tuple[list[Entry], list[Entry]]:
        """An iteration's trajectories and their scores: one round, or with dynamic sampling until enough groups carry a signal.

        Args:
            policy: The policy that the iteration updates.
            iteration: Its number.
            used: How many episodes of the training's budget earlier iterations took.
        """
        trajectories: list[Entry] = []
        scores: list[Entry] = []
        tried: list[str] = []
        config = self.run.config
        wanted = config.training.tasks_per_iteration
        while task_ids := self.sampler.select(wanted, iteration, exclude=tried):
            rolled_out = roll_out(self.run, **self.round(policy, iteration, task_ids, refill=len(trajectories)))
            trajectories.append(rolled_out)
            scores.append(self.score(rolled_out, iteration))
            tried += task_ids
            wanted = refill_size(
                config.learner,
                config.training,
                score_files(scores),
                group_size=config.episodes_per_task,
                used=used + episodes_of(trajectories),
            )
        self.sampler.evolve(self.curated.path)
        return trajectories, scores

    def updated(self, policy: Policy) -> None:
        """There is a new policy, and another iteration to come."""

    def went_back(self, policy: Policy) -> None:
        """The loop goes on with this policy, or ends; nothing that earlier ones sampled is trained on any more."""

    def summary(self) -> dict[str, Any]:
        """Figures of the whole loop."""
        return {"mode": self.run.config.rollout.mode}

    def first_round(self, policy: Policy, iteration: int) -> dict[str, Any]:
        """What `roll_out` is called with in an iteration's first round."""
        return self.round(policy, iteration, self.sampler.select(self.run.config.training.tasks_per_iteration, iteration))

    def round(self, policy: Policy, iteration: int, task_ids: list[str], refill: int = 0) -> dict[str, Any]:
        """What `roll_out` is called with in a round on these tasks."""
        return {
            "policy": policy,
            "curated": self.curated,
            "task_ids": task_ids,
            "variants": [task.to_record() for task in self.sampler.variants(task_ids)],
            "iteration": iteration,
            **({"greedy_baseline": True} if self.run.config.greedy_baseline else {}),
            "refill": refill,
        }

    def score(self, trajectories: Entry, iteration: int) -> Entry:
        """Score a round, and give the sampler its outcomes."""
        scored = score_trajectories(self.run, curated=self.curated, trajectories=trajectories, iteration=iteration)
        observe_scores(self.sampler, scored.path / SCORES_FILE)
        return scored


@contextmanager
def open_source(run: Run, curated: Entry, sampler: TaskSampler) -> Iterator[Source]:
    """The source that the profile asks for."""
    match run.config.rollout.mode:
        case "sync":
            yield Source(run, curated, sampler)
        case "async":
            with contextlib.closing(QueueSource(run, curated, sampler)) as source:
                yield source


@dataclass
class QueueSource(Source):
    """Orders what the sampler chooses, claims what workers hand in, and publishes each new policy.

    Orders for iteration k are issued as soon as the scores of iteration k - 1 - `max_staleness` are known, and may be
    begun once the policy of that iteration is published. Which groups an iteration claims depends on time; the claim
    is stored before anything is trained on it, so a run that continues after a kill claims the same.
    """

    queue: RunQueue | None = None

    def gather(self, policy: Policy, iteration: int, used: int) -> tuple[list[Entry], list[Entry]]:
        queue = self.queue or self._open(policy)
        collected = collect_groups(self.run, claimed=queue.claim(iteration), iteration=iteration)
        scored = self.score(collected, iteration)
        self.sampler.evolve(self.curated.path)
        queue.order(iteration + 1 + self.run.config.rollout.max_staleness)
        if is_last(self.run, iteration, used + queue.episodes(iteration)):
            queue.stop_workers()
        return [collected], [scored]

    def updated(self, policy: Policy) -> None:
        if self.queue:
            self.queue.publish(policy)

    def went_back(self, policy: Policy) -> None:
        if self.queue:
            self.queue.start_over(policy)

    def summary(self) -> dict[str, Any]:
        return {**super().summary(), **(self.queue.summary() if self.queue else {})}

    def close(self) -> None:
        """Stop the workers and close the queue."""
        if self.queue:
            self.queue.close()

    def _open(self, start: Policy) -> RunQueue:
        self.queue = queue = RunQueue(self.run, self.curated, self.sampler, start)
        for iteration in range(1, 2 + self.run.config.rollout.max_staleness):
            queue.order(iteration)
        queue.publish(start)
        return queue


def is_last(run: Run, iteration: int, used: int) -> bool:
    """Whether no iteration follows: the last one is reached, or the episode budget is exhausted."""
    training = run.config.training
    return iteration == training.iterations or not has_room(training.episodes, used, run.config.episodes_per_iteration)


def episodes_of(trajectories: list[Entry]) -> int:
    return sum(round(entry.result["episodes"]) for entry in trajectories)


def score_files(scores: list[Entry]) -> list[Path]:
    return [entry.path / SCORES_FILE for entry in scores]
