"""Where an iteration's trajectories come from: sampled before each update, or while the one before is made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from tasks.helper import Helper
from tasks.rollout import roll_out
from tasks.run import Policy, Run
from tasks.score import score_trajectories
from tracewheel.core.store import Entry
from tracewheel.sampling.dynamic_sampling import refill_size
from tracewheel.sampling.sampler import TaskSampler
from tracewheel.sampling.schedule import has_room, observe_scores, rollout_temperature
from tracewheel.scoring.score import SCORES_FILE


class Source(Protocol):
    """Gives the loop its trajectories, and is told of each new policy. It tells the sampler how they went."""

    def gather(self, policy: Policy, iteration: int, used: int) -> tuple[list[Entry], list[Entry]]:
        """An iteration's trajectories and their scores, round by round.

        Args:
            policy: The policy that the iteration updates.
            iteration: Its number.
            used: How many episodes of the training's budget earlier iterations took.
        """
        ...

    def updated(self, policy: Policy) -> None:
        """There is a new policy, and another iteration to come."""
        ...

    def summary(self) -> dict[str, Any]:
        """What is worth telling of the whole loop."""
        ...


@contextmanager
def open_source(run: Run, curated: Entry, sampler: TaskSampler, name: str) -> Iterator[Source]:
    """The source that the profile asks for; `name` tells the loops of a run apart."""
    match run.config.rollout.mode:
        case "sync":
            yield SyncSource(run, curated, sampler)
        case "overlap":
            with contextlib.nullcontext() if run.planning else Helper() as helper:
                yield OverlapSource(replace(run, helper=helper), curated, sampler)
        case "async":
            from flows.queue_source import QueueSource

            with QueueSource(run, curated, sampler, name) as source:
                yield source


@dataclass
class SyncSource:
    """Rolls out, then lets update."""

    run: Run
    curated: Entry
    sampler: TaskSampler

    def gather(self, policy: Policy, iteration: int, used: int) -> tuple[list[Entry], list[Entry]]:
        """One round, or with dynamic sampling until enough groups carry a signal."""
        trajectories: list[Entry] = []
        scores: list[Entry] = []
        tried: list[str] = []
        config = self.run.config
        wanted = config.training.tasks_per_iteration
        while task_ids := self.sampler.select(wanted, iteration, exclude=tried):
            refill = len(trajectories)
            rolled_out = roll_out(self.run, **rollout_arguments(self, policy, iteration, task_ids), refill=refill)
            trajectories.append(rolled_out)
            scores.append(score_and_observe(self, rolled_out, iteration))
            tried += task_ids
            wanted = refill_size(
                config.learner,
                config.training,
                score_files(scores),
                group_size=config.rollout.group_size,
                used=used + episodes_of(trajectories),
            )
        self.sampler.evolve(self.curated.path)
        return trajectories, scores

    def updated(self, policy: Policy) -> None: ...

    def summary(self) -> dict[str, Any]:
        return {"mode": "sync"}


@dataclass
class OverlapSource:
    """Rolls the next iteration out while the update runs, with the policy that there is: one step off-policy.

    What is rolled out with which policy does not depend on time, so a run gives the same bytes whenever it was killed.
    """

    run: Run
    curated: Entry
    sampler: TaskSampler
    pending: Callable[[], Entry] | None = None

    def gather(self, policy: Policy, iteration: int, used: int) -> tuple[list[Entry], list[Entry]]:
        pending = self.pending or self._begin(policy, iteration)
        rolled_out = pending()
        scored = score_and_observe(self, rolled_out, iteration)
        self.sampler.evolve(self.curated.path)
        if not is_last(self.run, iteration, used + episodes_of([rolled_out])):
            self.pending = self._begin(policy, iteration + 1)
        return [rolled_out], [scored]

    def updated(self, policy: Policy) -> None: ...

    def summary(self) -> dict[str, Any]:
        return {"mode": "overlap"}

    def _begin(self, policy: Policy, iteration: int) -> Callable[[], Entry]:
        task_ids = self.sampler.select(self.run.config.training.tasks_per_iteration, iteration)
        return roll_out.ahead(self.run, **rollout_arguments(self, policy, iteration, task_ids))


class _Loop(Protocol):
    run: Run
    curated: Entry
    sampler: TaskSampler


def rollout_arguments(loop: _Loop, policy: Policy, iteration: int, task_ids: list[str]) -> dict[str, Any]:
    """What `roll_out` is called with, `refill` apart."""
    return {
        "policy": policy,
        "curated": loop.curated,
        "task_ids": task_ids,
        "variants": [task.to_record() for task in loop.sampler.variants(task_ids)],
        "iteration": iteration,
        "temperature": rollout_temperature(loop.run.config.rollout, loop.run.config.training.iterations, iteration),
    }


def score_and_observe(loop: _Loop, trajectories: Entry, iteration: int) -> Entry:
    """Score a round, and tell the sampler how it went."""
    scored = score_trajectories(loop.run, curated=loop.curated, trajectories=trajectories, iteration=iteration)
    observe_scores(loop.sampler, scored.path / SCORES_FILE)
    return scored


def is_last(run: Run, iteration: int, used: int) -> bool:
    """Whether no iteration follows: the number is reached, or the budget of episodes has no room, of which some are used."""
    training = run.config.training
    return iteration == training.iterations or not has_room(training.episodes, used, run.config.episodes_per_iteration)


def episodes_of(trajectories: list[Entry]) -> int:
    return sum(round(entry.result["episodes"]) for entry in trajectories)


def score_files(scores: list[Entry]) -> list[Path]:
    return [entry.path / SCORES_FILE for entry in scores]
