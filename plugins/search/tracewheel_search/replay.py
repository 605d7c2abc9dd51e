"""Priority replay: groups of earlier rollouts join an update, drawn by what they can teach and by their age.

Prioritized experience replay (Schaul et al. 2016, arXiv:1511.05952) for updates that compare a group's episodes. What is drawn
is a whole group with a verified success, because an advantage is a comparison with the others that the same policy sampled.
Its weight is the mean absolute advantage, mean |r - mean r|, halved every `half_life` updates. Groups older than the bound are
never drawn. Ids, log-probabilities and policy versions stay as they were sampled, so the learner can weigh each token by the
policy at the start of the update over the one that sampled it: `off_policy: {proximal: recompute, correction: truncate,
max_staleness: N}`, without which nothing is replayed.

The draw prefers tasks whose groups were divided, as a task sampler does; it is not corrected for. A truncated weight leaves a
bias. The earlier files are the buffer: nothing else is stored.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tracewheel import (
    ConfigError,
    Count,
    Positive,
    RetrainConfig,
    Score,
    Strict,
    Task,
    Trajectory,
    content_hash,
    success_of,
    write_records,
)
from tracewheel_search.pairs import SCORES, TRAJECTORIES, VARIANTS

FAILED = "infrastructure_failed"
Episodes = tuple[Sequence[Trajectory], Sequence[Score]]


class ReplaySettings(Strict):
    """How many `groups` join an update, and after how many updates (`half_life`) a group counts half."""

    groups: Count = 16
    half_life: Positive = 2.0


@dataclass(frozen=True)
class Group:
    """The episodes of a task in one rollout, with their scores."""

    trajectories: tuple[Trajectory, ...]
    scores: tuple[Score, ...]

    @property
    def versions(self) -> tuple[int, int]:
        """The oldest and the newest policy that sampled a token of it."""
        found = [version for each in self.trajectories for version in [each.policy_version, *each.token_versions()]]
        oldest = min(each.policy_version for each in self.trajectories)
        return oldest, max(found)

    @property
    def rewards(self) -> list[float]:
        """Of the episodes that were scored."""
        return [each.total for each in self.scores if each.total is not None]

    @property
    def verified(self) -> bool:
        """Whether an episode of it is a verified success."""
        return any(success_of(each) == 1.0 for each in self.scores)


def groups_of(trajectories: Sequence[Trajectory], scores: Sequence[Score]) -> list[Group]:
    """The groups of one rollout in order, without episodes that the infrastructure failed.

    Args:
        trajectories, scores: In the same order.
    """
    found: dict[str, list[tuple[Trajectory, Score]]] = {}
    for each, judged in zip(trajectories, scores, strict=True):
        if each.stop_reason != FAILED:
            found.setdefault(each.group, []).append((each, judged))
    return [Group(tuple(each for each, _ in rows), tuple(judged for _, judged in rows)) for rows in found.values()]


def most_stale(config: RetrainConfig) -> int:
    """How old what is replayed may be: the learner's own bound.

    Raises:
        ConfigError: the learner would not correct for the policies that sampled, or has no bound.
    """
    off_policy = getattr(config.learner, "off_policy", None)
    if off_policy is None:
        raise ConfigError(
            f"learner.kind '{config.learner.kind}' weighs no token by the policy that sampled it: replay needs that"
        )
    if off_policy.correction == "none" or off_policy.max_staleness is None:
        wanted = "learner.off_policy={proximal: recompute, correction: truncate, max_staleness: 4}"
        raise ConfigError(f"replay needs a correction and a bound on age: set {wanted}")
    return int(off_policy.max_staleness)


def weight(rewards: Sequence[float], age: int, half_life: float) -> float:
    """The mean of |r - mean r| of a group's rewards, times 0.5 to the power of age / half_life.

    Args:
        rewards: Of the scored episodes; fewer than two have no weight.
        age: In updates.
        half_life: The age at which a weight is half, in updates.
    """
    if len(rewards) < 2:
        return 0.0
    mean = sum(rewards) / len(rewards)
    return sum(abs(reward - mean) for reward in rewards) / len(rewards) * 0.5 ** (age / half_life)


def drawn(weights: Sequence[float], count: int, seed: int) -> list[int]:
    """Up to `count` places without replacement, each next one with a probability in proportion to its weight; in order.

    Efraimidis and Spirakis (2006): the largest u^(1/weight). A place without weight is never drawn.
    """
    rng = random.Random(seed)
    keys = [(rng.random() ** (1.0 / each) if each > 0.0 else -1.0, place) for place, each in enumerate(weights)]
    return sorted(place for key, place in sorted(keys, reverse=True)[:count] if key >= 0.0)


def replayed(
    fresh: Episodes,
    earlier: Iterable[Episodes],
    version: int,
    max_age: int,
    settings: ReplaySettings,
    seed: int,
    out: Path,
    made: Iterable[Task] = (),
) -> dict[str, Any]:
    """Write the files of an update: the fresh episodes with their scores, and after them the groups that are replayed.

    A replayed group gets a name of its own, so it is not compared with a fresh group of its task.

    Args:
        fresh: The iteration's own episodes.
        earlier: Those of earlier rollouts, one entry each; what is fresh or was given before is left out.
        version: Of the policy that the update starts from.
        max_age: How many versions the oldest token may be behind that.
        settings: How many, and how age counts.
        seed: Of the draw, with the version.
        out: Folder for `trajectories.parquet` and `scores.parquet`.
        made: The tasks among the episodes' that curation did not make, for `variants.parquet`.

    Returns:
        `groups`, how many earlier ones there are; of them `too_old`, `unknown` (of a policy that is none of this loop's
        earlier ones), `without_success`, `alike` (nothing to compare) and `replayed`; and `mean_age` of those.
    """
    groups, known = list[Group](), {each.id for each in fresh[0]}
    for group in (group for rollout in earlier for group in groups_of(*rollout)):
        ids = {each.id for each in group.trajectories}
        if not known & ids:
            groups.append(group)
        known |= ids
    counts = dict.fromkeys(("too_old", "unknown", "without_success", "alike"), 0)
    weights, ages = [], []
    for group in groups:
        (oldest, newest), rewards = group.versions, group.rewards
        age = version - oldest
        value = weight(rewards, age, settings.half_life)
        why = (
            "unknown" if oldest < 0 or newest > version
            else "too_old" if age > max_age
            else "without_success" if not group.verified
            else "alike" if not value
            else None
        )  # fmt: skip
        if why:
            counts[why] += 1
        weights.append(0.0 if why else value)
        ages.append(age)
    chosen = drawn(weights, settings.groups, int(content_hash(["replay", seed, version], 15), 16))
    trajectories, scores = list(fresh[0]), list(fresh[1])
    for place in chosen:
        group = groups[place]
        name = content_hash(["replay", *(each.id for each in group.trajectories)])
        trajectories += [replace(each, group=name) for each in group.trajectories]
        scores += [replace(each, group=name) for each in group.scores]
    out.mkdir(parents=True, exist_ok=True)
    write_records(out / TRAJECTORIES, trajectories, Trajectory)
    write_records(out / SCORES, scores, Score)
    if by_id := {task.id: task for task in made}:
        write_records(out / VARIANTS, list(by_id.values()), Task)
    mean = sum(ages[place] for place in chosen) / len(chosen) if chosen else None
    return {"groups": len(groups), **counts, "replayed": len(chosen), "mean_age": mean}
