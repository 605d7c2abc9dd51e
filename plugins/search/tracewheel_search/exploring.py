"""Exploration by tools in training rollouts: turns that are begun by force with the head of a call of a random tool.

Epsilon-greedy, over tools. Forced ids are context, like an observation: mask 0, log-probability 0, and the turn says how many
there were (`forced`). What the policy samples after them is on its own distribution given them, so log-probabilities and ratios
are exact. The choice of the tool itself is not learnt from such a turn; what to do with it is.

Only training tasks are played so: evaluation and the gate make their own engines.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracewheel import (
    ConfigError,
    Count,
    Engine,
    EpisodeSpec,
    Generation,
    PolicyRef,
    Request,
    RolloutSections,
    Strict,
    Task,
    Trajectory,
    content_hash,
    episode_pool,
    make_engine,
    open_environment,
    write_json,
    write_records,
)
from tracewheel_search.continuing import FAILED, EngineInFront, branch_seed, check_scored
from tracewheel_search.pairs import TRAJECTORIES

MOST = 0.5  # of the turns may be begun by force


class Schedule(Strict):
    """A value that goes in a line from `start` at the first iteration to `end` at iteration `over`, and stays there."""

    start: float
    end: float = 0.0
    over: Count = 20

    def at(self, iteration: int) -> float:
        """The value of an iteration, from 1."""
        share = 1.0 if self.over == 1 else min(1.0, (iteration - 1) / (self.over - 1))
        return self.start + (self.end - self.start) * share

    def within(self, most: float, name: str) -> Schedule:
        """The same schedule.

        Raises:
            ConfigError: it leaves 0 to `most`.
        """
        if not all(0.0 <= value <= most for value in (self.start, self.end)):
            raise ConfigError(f"{name} goes from {self.start} to {self.end}: both are from 0 to {most}")
        return self


class ForcedHeads:
    """Which turns of one episode are begun by force, and with what.

    Each turn takes two random numbers, whatever comes of them, so one turn's outcome changes no other's.

    Args:
        epsilon: The probability that a turn is begun by force.
        heads: The ids that begin a call, for each tool.
        seed: The episode's.

    Attributes:
        taken: How many ids were forced in each turn so far.
    """

    def __init__(self, epsilon: float, heads: Sequence[Sequence[int]], seed: int) -> None:
        self._epsilon, self._heads = epsilon, heads
        self._random = random.Random(content_hash(["forced heads", seed]))
        self.taken: list[int] = []

    def next(self, room: int) -> list[int]:
        """The ids that the next turn begins with: none, or a head that leaves room for a token."""
        chance, choice = self._random.random(), self._random.random()
        head = list(self._heads[int(choice * len(self._heads))]) if self._heads else []
        head = head if chance < self._epsilon and len(head) < room else []
        self.taken.append(len(head))
        return head


class ExploringEngine(EngineInFront):
    """An engine in front of the policy's that begins turns of known sessions by force; greedy sessions never.

    Args:
        engine: The policy's.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._heads: dict[int, ForcedHeads] = {}
        self._begun: dict[int, list[int]] = {}

    def explore(self, session: int, heads: ForcedHeads) -> None:
        """Begin turns of a session with these."""
        self._heads[session] = heads

    def submit(self, request: Request) -> None:
        """Queue a turn, its forced ids among those that the policy has read."""
        known = self._heads.get(request.session)
        head = known.next(request.max_new_tokens) if known and not request.greedy and request.grammar is None else []
        self._begun[request.session] = head
        left = request.max_new_tokens - len(head)
        self._engine.submit(replace(request, new_ids=[*request.new_ids, *head], max_new_tokens=left))

    def step(self) -> list[Generation]:
        """The turns that ended, each with what it was begun with."""
        return [self._whole(found) for found in self._engine.step()]

    def _whole(self, found: Generation) -> Generation:
        head = self._begun.pop(found.session)
        return replace(
            found,
            token_ids=[*head, *found.token_ids],
            logprobs=[*[0.0] * len(head), *found.logprobs],
            versions=[*found.versions[:1] * len(head), *found.versions],
        )


def with_forced(trajectory: Trajectory, taken: Sequence[int]) -> Trajectory:
    """The trajectory whose turns begin after so many forced ids each, which are the policy's no more."""
    mask, logprobs, turns = list(trajectory.action_mask), list(trajectory.logprobs), []
    for turn, count in zip(trajectory.turns, taken, strict=True):
        start = turn["start"] + count
        for place in range(turn["start"], start):
            mask[place], logprobs[place] = 0, 0.0
        turns.append({**turn, "start": start, "forced": count})
    return replace(trajectory, action_mask=mask, logprobs=logprobs, turns=turns)


def explore(
    config: RolloutSections, policy: PolicyRef, tasks: Sequence[Task], epsilon: float, out: Path, *, iteration: int
) -> dict[str, Any]:
    """Sample a group of each task, and write `trajectories.parquet` and `metrics.json`.

    Args:
        config: The profile's sections.
        policy: Which policy.
        tasks: Training tasks, played as they are.
        epsilon: The probability that a turn is begun by force.
        out: The folder.
        iteration: Its number; every random number follows from it and the seed.

    Returns:
        The figures: episodes, sampled tokens, turns, and of them the forced ones with their tokens.

    Raises:
        ConfigError: the profile's episodes are programs of their own (`rollout.harness`).
        DataError: most episodes have failed.
    """
    if config.rollout.harness is not None:
        raise ConfigError("rollout.harness: the turns of a program are its own; explore without it")
    settings, seed = config.rollout, int(content_hash(["explore", config.seed, iteration], 15), 16)
    inner, renderer = make_engine(config, policy, greedy=False, slots=len(tasks) * settings.group_size)
    engine = ExploringEngine(inner)
    specs = [
        EpisodeSpec(task, sample, branch_seed(seed, task, sample), settings.temperature)
        for task in tasks
        for sample in range(settings.group_size)
    ]
    known = {task.id: _heads(task, renderer) for task in tasks}
    forced = [ForcedHeads(epsilon, known[spec.task.id], spec.seed) for spec in specs]
    found: dict[int, Trajectory] = {}
    with episode_pool(engine, renderer, settings) as pool:
        for number, spec in enumerate(specs):
            engine.explore(number, forced[number])
            pool.begin(number, spec)
        while pool.open:
            found.update(pool.step())
    check_scored([each.detail for each in found.values() if each.stop_reason == FAILED], len(found))
    played = [with_forced(found[number], heads.taken) for number, heads in enumerate(forced)]
    out.mkdir(parents=True, exist_ok=True)
    write_records(out / TRAJECTORIES, played, Trajectory)
    begun = [turn["forced"] for each in played for turn in each.turns]
    figures = {
        "episodes": len(played),
        "generated_tokens": sum(sum(each.action_mask) for each in played),
        "turns": len(begun),
        "forced_turns": sum(count > 0 for count in begun),
        "forced_tokens": sum(begun),
    }
    write_json(out / "metrics.json", figures)
    return figures


def _heads(task: Task, renderer: Any) -> list[list[int]]:
    """How a call of each tool of a task begins."""
    with open_environment(task.environment) as environment:
        environment.reset(task)
        return [renderer.call_head(tool) for tool in environment.tools()]
