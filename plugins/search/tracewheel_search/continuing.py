"""Episodes that go on from a turn of an earlier one, token in and token out.

An episode is played from its start by the core's own loop. An engine in front of the policy's gives the earlier turns exactly
as they were sampled, ids and log-probabilities, and asks the policy from the first new turn on. So a branch shares its parent's
ids, and nothing is decoded and tokenised again. The world carries the earlier calls out again; one that answers otherwise is
refused.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tracewheel import (
    ConfigError,
    DataError,
    Engine,
    EpisodeSpec,
    Generation,
    PolicyRef,
    Request,
    RolloutSections,
    Task,
    Trajectory,
    content_hash,
    digest_of,
    episode_pool,
    make_engine,
)

FAILED = "infrastructure_failed"


class SampledTurn(NamedTuple):
    """A turn as it was sampled: ids, log-probabilities and policy versions, each [n]."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]


def sampled_turns(trajectory: Trajectory) -> list[SampledTurn]:
    """The turns of a trajectory.

    Raises:
        DataError: tokens of a turn were not sampled, or programs made its branches.
    """
    versions, found = trajectory.token_versions(), []
    for turn in trajectory.turns:
        start, end = turn["start"], turn["end"]
        if trajectory.branches or turn.get("forced") or turn.get("grammar"):
            raise DataError(f"trajectory {trajectory.id}: only turns that our own loop sampled freely can be played again")
        found.append(
            SampledTurn(
                tuple(trajectory.token_ids[start:end]), tuple(trajectory.logprobs[start:end]), tuple(versions[start:end])
            )
        )
    return found


@dataclass(frozen=True)
class Branch:
    """An episode to play: the first `kept` turns of `parent`, then what the policy samples with `seed`.

    Without a parent it begins with the task. `sample` is its number among the episodes of its task.
    """

    task: Task
    sample: int
    seed: int
    parent: Trajectory | None = None
    kept: int = 0

    @property
    def prefix(self) -> int:
        """How many of the parent's tokens it repeats, up to the end of the last turn kept."""
        return self.parent.turns[self.kept - 1]["end"] if self.parent and self.kept else 0


def branch_seed(seed: int, task: Task, sample: int) -> int:
    """The seed of a branch's random numbers."""
    return int(content_hash(["branch", seed, task.id, sample], 15), 16)


class EngineInFront:
    """An engine in front of another, which does all that a subclass does not."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def policy_version(self) -> int:
        """Of the policy that samples."""
        return self._engine.policy_version

    @policy_version.setter
    def policy_version(self, version: int) -> None:
        self._engine.policy_version = version

    @property
    def idle(self) -> bool:
        """Whether there is nothing to sample."""
        return self._engine.idle

    def close(self, session: int) -> None:
        """Forget a session."""
        self._engine.close(session)

    def update_weights(self, policy: PolicyRef) -> None:
        """Sample with this policy from now on."""
        self._engine.update_weights(policy)


class ContinuingEngine(EngineInFront):
    """An engine that answers a session's first turns with those it was given, and the others with those of another engine.

    Attributes:
        sampled: Tokens that the policy sampled so far; given ones do not count.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._given: dict[int, deque[SampledTurn]] = {}
        self._rows: dict[int, list[int]] = {}  # what a session's request to the engine will begin with
        self._ready: list[Generation] = []
        self.sampled = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is to be sampled or given."""
        return not self._ready and self._engine.idle

    def give(self, session: int, turns: Sequence[SampledTurn]) -> None:
        """The first turns of a session that has not begun."""
        self._given[session], self._rows[session] = deque(turns), []

    def submit(self, request: Request) -> None:
        """Queue a turn: a given one while there are some."""
        session = request.session
        if session not in self._given:
            self._engine.submit(request)
            return
        row = self._rows[session]
        if request.keep is not None:
            del row[request.keep :]
        row += request.new_ids
        if self._given[session]:
            turn = self._given[session].popleft()
            row += turn.token_ids
            given = Generation(session, list(turn.token_ids), list(turn.logprobs), "stop", list(turn.versions))
            self._ready.append(given)
            return
        self._forget(session)
        self._engine.submit(replace(request, new_ids=row, keep=None))

    def step(self) -> list[Generation]:
        """The given turns that are due, all before the policy samples; else what the policy sampled."""
        if self._ready:
            ready, self._ready = self._ready, []
            return ready
        found = self._engine.step()
        self.sampled += sum(len(generation.token_ids) for generation in found)
        return found

    def close(self, session: int) -> None:
        """Forget a session."""
        if session in self._given:  # it ended among its given turns: the engine never heard of it
            self._forget(session)
        else:
            self._engine.close(session)

    def _forget(self, session: int) -> None:
        del self._given[session], self._rows[session]


class Player:
    """Plays branches with a policy.

    Args:
        config: The profile's sections; `rollout` has the caps and the temperature.
        policy: Which policy.
        slots: The most episodes at once.

    Raises:
        ConfigError: the profile's episodes are programs of their own (`rollout.harness`).
    """

    def __init__(self, config: RolloutSections, policy: PolicyRef, slots: int) -> None:
        if config.rollout.harness is not None:
            raise ConfigError("rollout.harness: a program's episodes cannot go on from a turn; search without it")
        self._settings = config.rollout
        self.policy = content_hash([policy.base, digest_of(Path(policy.adapter)) if policy.adapter else "", policy.version])
        engine, self._renderer = make_engine(config, policy, greedy=False, slots=slots)
        self._engine = ContinuingEngine(engine)

    @property
    def sampled(self) -> int:
        """Tokens sampled so far."""
        return self._engine.sampled

    def most_tokens(self, branch: Branch, turns: int | None = None) -> int:
        """The most that the policy may sample in a branch; see `play`."""
        left = self._settings.max_turns - branch.kept
        turns = (left if turns is None else min(turns, left)) * self._settings.max_turn_tokens
        forks = branch.parent is not None and bool(branch.parent.forks)
        return min(turns, self._settings.max_tokens - (0 if forks else branch.prefix))

    def play(self, branches: Sequence[Branch], turns: int | None = None) -> list[Trajectory]:
        """Play branches; trajectories in their order. The group of each is its task.

        Args:
            branches: What to play.
            turns: New turns after which an episode is left as it stands (stop reason `max_turns`); None: play to the end.

        Raises:
            DataError: the world answered the earlier turns otherwise than before.
        """
        if turns is None:
            found = self._play(list(enumerate(branches)), self._settings)
        else:
            found = {}
            for kept in sorted({branch.kept for branch in branches}):
                some = [(number, branch) for number, branch in enumerate(branches) if branch.kept == kept]
                most = min(self._settings.max_turns, kept + turns)
                found |= self._play(some, self._settings.model_copy(update={"max_turns": most}))
        return [found[number] for number in range(len(branches))]

    def play_again(self, branches: Sequence[Branch]) -> list[Trajectory]:
        """Play branches that keep all turns of their parents under another task's prompt; trajectories in their order.

        Their tokens have the policy version -1: no policy sampled them under this prompt.
        """
        found = self._replayed(list(enumerate(branches)), self._settings, version=-1)
        return [found[number] for number in range(len(branches))]

    def was_left(self, trajectory: Trajectory) -> bool:
        """Whether an episode was left after some turns, and could go on."""
        return trajectory.stop_reason == "max_turns" and len(trajectory.turns) < self._settings.max_turns

    def _play(self, branches: Sequence[tuple[int, Branch]], settings: Any) -> dict[int, Trajectory]:
        found = self._replayed(branches, settings)
        for number, branch in branches:
            _check(branch, found[number])
        return found

    def _replayed(
        self, branches: Sequence[tuple[int, Branch]], settings: Any, version: int | None = None
    ) -> dict[int, Trajectory]:
        """Play branches; the kept turns are of the given policy version, or of those that sampled them."""
        found: dict[int, Trajectory] = {}
        with episode_pool(self._engine, self._renderer, settings) as pool:
            for number, branch in branches:
                if branch.parent is not None:
                    turns = sampled_turns(branch.parent)[: branch.kept]
                    if version is not None:
                        turns = [turn._replace(versions=(version,) * len(turn.token_ids)) for turn in turns]
                    self._engine.give(number, turns)
                pool.begin(number, EpisodeSpec(branch.task, branch.sample, branch.seed, settings.temperature))
            while pool.open:
                found.update(pool.step())
        return found


def _check(branch: Branch, played: Trajectory) -> None:
    """That a branch begins with its parent's tokens, unless its world broke down."""
    end, parent = branch.prefix, branch.parent
    if parent is None or played.stop_reason == FAILED:
        return
    forks = [[fork for fork in each.forks if fork[0] < end] for each in (parent, played)]
    if len(played.turns) < branch.kept or played.token_ids[:end] != parent.token_ids[:end] or forks[0] != forks[1]:
        raise DataError(
            f"environment '{branch.task.environment}': episode {parent.id}, played again, was answered otherwise before turn "
            f"{branch.kept + 1}; search needs an environment that repeats its replies"
        )


def check_scored(causes: Sequence[str], episodes: int) -> None:
    """Check that at least half of the episodes have a score.

    Args:
        causes: Why each of the others has none.
        episodes: How many there are.

    Raises:
        DataError: too many have none.
    """
    if 2 * len(causes) > episodes:
        (cause, most), *_ = Counter(causes).most_common(1)
        raise DataError(
            f"{len(causes)} of {episodes} episodes have no score, {most} of them by {cause}. What is left says too little: "
            "see whose fault a failure is in docs/your-environment.md"
        )


def within(budget: int, most: Sequence[int]) -> int:
    """How many branches, from the first on, cannot sample more than `budget` tokens together.

    Args:
        budget: In tokens.
        most: The most that each may sample.
    """
    return sum(total <= budget for total in itertools.accumulate(most))


def new_tokens(branch: Branch, played: Trajectory) -> int:
    """How many tokens of a played branch were sampled for it."""
    return sum(played.action_mask[branch.prefix :])
