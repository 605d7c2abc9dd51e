"""Orders: the groups of episodes that rollout workers sample, and where workers get them.

An order is one group of episodes of a task. A worker leases orders, runs their episodes, and hands in each
group whole. Orders come from a `RolloutSource`: the queue itself for processes on this machine, a remote handle of it
for workers elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from tracewheel.core.types import Task, Trajectory, content_hash
from tracewheel.policy.adapters import PolicyRef


@dataclass(frozen=True)
class Order:
    """A group of episodes to sample.

    Attributes:
        number: Its place in the run, from 0; older orders are trained on first.
        iteration: The iteration that it was chosen for, which is the earliest that may train on it.
        task: The task's whole record, so that a worker needs no other file.
        variant: Whether the curated folder does not have the task like this: a variant of the curriculum, or one with noise.
        samples: Episodes of the group.
        seed: Fixes the random numbers of its first attempt.
        temperature: Sampling temperature of the iteration.
        attempt: How often groups for this order were dropped as stale. A killed worker does not count: the next one
            samples with the same seeds.
    """

    number: int
    iteration: int
    task: dict[str, Any]
    variant: bool
    samples: int
    seed: int
    temperature: float
    attempt: int = 0

    @property
    def id(self) -> str:
        return f"{self.number}.{self.attempt}"

    @property
    def group(self) -> str:
        """What ties the group's trajectories together: a task may be sampled for several iterations at once."""
        return f"{self.task['id']}#{self.id}"

    @property
    def rollout_seed(self) -> int:
        """The seed of this attempt's rollout, as `rollout.episode_seed` takes it."""
        return self.seed if not self.attempt else int(content_hash([self.seed, "attempt", self.attempt], 8), 16)

    def load_task(self) -> Task:
        return Task.from_record(self.task)

    def own(self, trajectory: Trajectory) -> Trajectory:
        """A trajectory of this order's task as a member of its group."""
        return replace(trajectory, group=self.group, played_in=self.task["environment"] if self.variant else "")


class RolloutSource(Protocol):
    """Where a rollout worker gets its orders. All methods are idempotent, so they may be called again after a failure.

    Raises:
        InfrastructureError: it cannot be reached, or its disk is full; from any method.
    """

    def policy(self) -> PolicyRef:
        """The policy published last, in a folder that the worker can read."""
        ...

    def lease(self, worker: str, most: int) -> list[Order]:
        """At most `most` orders that may begin now, the oldest first. They belong to this worker until it is gone."""
        ...

    def heartbeat(self, worker: str) -> bool:
        """Report that the worker is alive. Returns False when the run has ended."""
        ...

    def complete(self, order: Order, worker: str, trajectories: list[Trajectory]) -> bool:
        """Hand in a whole group. Returns False, and changes nothing, when the order was handed in before."""
        ...
