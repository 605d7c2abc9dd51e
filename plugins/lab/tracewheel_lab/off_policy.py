"""Off-policy estimates: what a challenger would score on logged traffic, before it serves any.

Another policy sampled the episodes. Each is weighted by how much likelier the challenger makes what was sampled, w = exp(sum of
the log-ratios of its sampled tokens); what the tools answered cancels. Tasks are drawn at random, as traffic is, and episodes
of one task may depend on each other: intervals are over tasks.

- Self-normalised importance sampling, sum(w r) / sum(w): Swaminathan & Joachims 2015; Owen 2013, chapter 9. Its bias vanishes
  as 1/n, and its variance stays bounded where that of the plain mean of w r does not.
- Doubly robust (Dudik et al. 2011): mean(q) + sum(w (r - q)) / sum(w), where q is the task's value as its other episodes show
  it. Any q leaves the estimate consistent; a good one takes the difficulty of the tasks out of its variance. It is the estimate
  of Jiang & Li 2016 for a value model that does not look at turns, self-normalised as in Thomas & Brunskill 2016.
- Per decision (Precup et al. 2000), where turns have rewards of their own: a turn's reward is weighted by the turns up to it.

Weights are not clipped unless a limit is given: clipping lowers the variance and biases towards the logged policy. With few
effective episodes, (sum w)^2 / sum(w^2) (Kish 1965), an interval promises more than it holds, and the estimate is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
SHRINKAGE = 2.0  # episodes of its family that a task's value is mixed with
LARGEST_LOG_WEIGHT = 700.0  # exp of more is infinite


class Interval(NamedTuple):
    """The ends of an interval."""

    low: float
    high: float


@dataclass(frozen=True)
class LoggedEpisodes:
    """N episodes that a policy sampled, as the challenger sees them.

    Attributes:
        log_ratios: For each episode the log-ratio of each of its turns [K_i]: the challenger's log-probability of the turn's
            sampled tokens less that of the policy which sampled them.
        rewards: [N].
        tasks: [N], names of their tasks.
        families: [N], names of the families.
        turn_rewards: For each episode the reward of each turn [K_i], summing to its reward; None without.
    """

    log_ratios: Sequence[Vector]
    rewards: Vector
    tasks: npt.NDArray[np.str_]
    families: npt.NDArray[np.str_]
    turn_rewards: Sequence[Vector] | None = None

    def __len__(self) -> int:
        return len(self.rewards)

    def log_weights(self) -> Vector:
        """[N]: the log-ratio of each whole episode."""
        return np.array([float(np.sum(each)) for each in self.log_ratios])


@dataclass(frozen=True)
class Limits:
    """When an estimate is refused, and how far weights may go.

    Attributes:
        effective: The fewest effective episodes.
        effective_tasks: The fewest effective tasks.
        clip: The largest weight as a multiple of their mean, as in Ionides 2008; None for no limit.
    """

    effective: float = 50.0
    effective_tasks: float = 20.0
    clip: float | None = None


@dataclass(frozen=True)
class Estimate:
    """An estimate of the challenger's mean reward.

    Attributes:
        value: The mean reward.
        interval: Of `value`, 95%.
        gain: `value` less the mean of what was logged.
        gain_interval: Of `gain`, 95%; narrower than those of the two, which share their tasks.
    """

    value: float
    interval: Interval
    gain: float
    gain_interval: Interval


@dataclass(frozen=True)
class Preview:
    """Estimates and what they rest on.

    Attributes:
        logged: Mean reward of the logged episodes.
        estimates: By name: `self_normalised`, `doubly_robust`, and `per_decision` where turns have rewards.
        effective: Effective episodes.
        effective_tasks: The same over the tasks' total weights.
        largest_share: The largest share of all weight that one task has.
        mean_weight: 1 on average where the logged policy could have sampled all that the challenger would.
        clipped: The share of episodes whose weight was cut.
        refusal: Why no estimate is to be relied on; empty where they are.
    """

    logged: float
    estimates: dict[str, Estimate]
    effective: float
    effective_tasks: float
    largest_share: float
    mean_weight: float
    clipped: float
    refusal: str


def preview(episodes: LoggedEpisodes, limits: Limits | None = None) -> Preview:
    """Estimate what a challenger would score on traffic like the logged one.

    Args:
        episodes: What was logged, with the challenger's log-ratios.
        limits: When to refuse.

    Raises:
        ValueError: there are no episodes, or a reward or log-ratio is not finite.
    """
    limits = limits or Limits()
    log_weights = episodes.log_weights()
    if not len(episodes) or not (np.isfinite(log_weights).all() and np.isfinite(episodes.rewards).all()):
        raise ValueError("a preview needs at least one episode, and finite rewards and log-ratios")
    weights, clipped = relative_weights(log_weights, limits.clip)
    _, numbers = np.unique(episodes.tasks, return_inverse=True)
    by_task = _sums(numbers, weights)
    values = task_values(episodes.rewards, episodes.tasks, episodes.families)
    estimates = {
        "self_normalised": _estimate(episodes.rewards, weights, np.zeros(len(episodes)), numbers),
        "doubly_robust": _estimate(episodes.rewards, weights, values, numbers),
    }
    if episodes.turn_rewards is not None:
        estimates["per_decision"] = _per_decision(episodes, limits.clip, numbers)
    found = Preview(
        logged=float(episodes.rewards.mean()),
        estimates=estimates,
        effective=effective(weights),
        effective_tasks=effective(by_task),
        largest_share=float(by_task.max() / by_task.sum()),
        mean_weight=float(np.exp(np.minimum(log_weights, LARGEST_LOG_WEIGHT)).mean()),
        clipped=clipped,
        refusal="",
    )
    return Preview(**{**vars(found), "refusal": _refusal(found, limits)})


def relative_weights(log_weights: Vector, clip: float | None = None) -> tuple[Vector, float]:
    """Weights [N] with a mean of 1 before clipping, and the share that was cut to `clip`.

    Estimates are self-normalised, so a common factor says nothing, and with this one no weight overflows.
    """
    weights = np.exp(log_weights - log_weights.max())
    weights = weights / weights.mean()
    if clip is None:
        return weights, 0.0
    return np.minimum(weights, clip), float((weights > clip).mean())


def effective(weights: Vector) -> float:
    """Kish's effective number of episodes: how many of equal weight would have the variance of a mean with these weights."""
    return float(weights.sum() ** 2 / np.square(weights).sum())


def task_values(rewards: Vector, tasks: npt.NDArray[np.str_], families: npt.NDArray[np.str_]) -> Vector:
    """[N]: the value of each episode's task under the logged policy, from other episodes alone.

    The mean of the task's other episodes, mixed with `SHRINKAGE` episodes of the mean of the family's other tasks; of all other
    tasks where the family has none. A task's own reward is in no value of that task's episode, so it biases no correction.
    """
    _, task = np.unique(tasks, return_inverse=True)
    _, family = np.unique(families, return_inverse=True)
    ones = np.ones(len(rewards))
    sums, counts = _sums(task, rewards), _sums(task, ones)
    family_sums, family_counts = _sums(family, rewards), _sums(family, ones)
    all_others = _mean_without(float(rewards.sum()), float(len(rewards)), sums[task], counts[task], np.zeros(len(rewards)))
    prior = _mean_without(family_sums[family], family_counts[family], sums[task], counts[task], all_others)
    own, own_count = sums[task] - rewards, counts[task] - 1.0
    return (own + SHRINKAGE * prior) / (own_count + SHRINKAGE)


def _sums(numbers: npt.NDArray[np.intp], values: Vector) -> Vector:
    """The sum of the values [N] of each number."""
    return np.bincount(numbers, values).astype(np.float64)


def _mean_without(total: Vector | float, count: Vector | float, part: Vector, part_count: Vector, otherwise: Vector) -> Vector:
    left = np.asarray(count - part_count, dtype=np.float64)
    return np.where(left > 0, (total - part) / np.maximum(left, 1.0), otherwise)


def _estimate(rewards: Vector, weights: Vector, values: Vector, tasks: npt.NDArray[np.intp]) -> Estimate:
    """mean(values) + sum(w (r - values)) / sum(w), with intervals by the delta method over tasks."""
    share = weights / weights.sum()
    n = len(rewards)
    correction = float(share @ (rewards - values))
    value = float(values.mean()) + correction
    # What each episode adds to the estimate's error, to first order; these sum to 0.
    influence = (values - values.mean()) / n + share * (rewards - values - correction)
    return _with_intervals(value, influence, rewards, tasks)


def _per_decision(episodes: LoggedEpisodes, clip: float | None, tasks: npt.NDArray[np.intp]) -> Estimate:
    """The sum over turns t of sum(w_1..t r_t) / sum(w_1..t); an episode that has ended keeps its last weight and gets 0."""
    assert episodes.turn_rewards is not None
    value, influence = 0.0, np.zeros(len(episodes))
    log_weights = np.zeros(len(episodes))
    for turn in range(max(map(len, episodes.log_ratios))):
        log_weights = log_weights + _at(episodes.log_ratios, turn)
        rewards = _at(episodes.turn_rewards, turn)
        weights, _ = relative_weights(log_weights, clip)
        share = weights / weights.sum()
        part = float(share @ rewards)
        value += part
        influence += share * (rewards - part)
    return _with_intervals(value, influence, episodes.rewards, tasks)


def _at(columns: Sequence[Vector], turn: int) -> Vector:
    return np.array([float(column[turn]) if turn < len(column) else 0.0 for column in columns])


def _with_intervals(value: float, influence: Vector, rewards: Vector, tasks: npt.NDArray[np.intp]) -> Estimate:
    gain = value - float(rewards.mean())
    against = influence - (rewards - rewards.mean()) / len(rewards)
    return Estimate(value, _interval(value, influence, tasks), gain, _interval(gain, against, tasks))


def _interval(centre: float, influence: Vector, tasks: npt.NDArray[np.intp]) -> Interval:
    """95% interval from the influence [N] of single episodes, added up by task.

    The quantile is Student's, with as many degrees of freedom as tasks carry the variance: where few tasks have most of the
    weight, few tell how much they vary.
    """
    by_task = _sums(tasks, influence)
    count = len(by_task)
    spread = float(np.square(by_task).sum())
    if count < 2:
        return Interval(-math.inf, math.inf)
    if spread == 0.0:
        return Interval(centre, centre)
    freedom = max(1.0, spread**2 / float(np.power(by_task, 4).sum()) - 1.0)
    half = _student(freedom) * math.sqrt(spread * count / (count - 1))
    return Interval(centre - half, centre + half)


def _student(freedom: float) -> float:
    """Student's 97.5% quantile."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))


def _refusal(found: Preview, limits: Limits) -> str:
    what = (
        "log more episodes, or more tasks, with the policy that serves; or try a challenger nearer to it (fewer updates, a "
        "larger KL weight), or serve this one to a share of traffic and measure it"
    )
    if found.effective < limits.effective:
        return (
            f"of all episodes about {found.effective:.1f} count (at least {limits.effective:g} are needed): the challenger "
            f"rarely does what was logged; {what}"
        )
    if found.effective_tasks < limits.effective_tasks:
        return f"about {found.effective_tasks:.1f} tasks count (at least {limits.effective_tasks:g} are needed); {what}"
    return ""
