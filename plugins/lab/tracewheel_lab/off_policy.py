"""Off-policy estimates: what a challenger would score on logged traffic, before it serves any.

Another policy sampled the episodes. Each is weighted by how much likelier the challenger makes what was sampled, w = exp(sum of
the log-ratios of its sampled tokens); what the tools answered cancels. Tasks and users are drawn at random, as traffic is, and
episodes of one task, or of one user, may depend on each other: intervals are over tasks or over users, whichever is wider.

- Self-normalised importance sampling, sum(w r) / sum(w): Swaminathan & Joachims 2015; Owen 2013, chapter 9. Its bias vanishes
  as 1/n, and its variance stays bounded where that of the plain mean of w r does not.
- Doubly robust (Dudik et al. 2011): mean(q) + sum(w (r - q)) / sum(w), where q is the task's value as its other episodes show
  it. Any q leaves the estimate consistent; a good one takes the difficulty of the tasks out of its variance. It is the estimate
  of Jiang & Li 2016 for a value model that does not look at turns, self-normalised as in Thomas & Brunskill 2016.
- Per decision (Precup et al. 2000), where turns have rewards of their own: a turn's reward is weighted by the turns up to it.

What the log does not hold, no weight can value: episodes without log-probabilities or score, and what the challenger would do
and the logged policy never did. The weights' mean is 1 where the log holds all that, and less by the challenger's probability
of the rest (Owen 2013, chapter 9). Of this unseen share nothing is assumed but that its rewards lie between the lowest and the
highest logged one: intervals are wider by the worst cases (Manski 1990), and a large share is refused. So are estimates that
rest on few effective episodes, (sum w)^2 / sum(w^2) (Kish 1965), whose interval promises more than it holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.intp]
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
        users: [N], names of the users, or of the tasks where none is known; None where none is.
        missing: How many further episodes the log has whose behaviour or reward it does not hold.
    """

    log_ratios: Sequence[Vector]
    rewards: Vector
    tasks: npt.NDArray[np.str_]
    families: npt.NDArray[np.str_]
    turn_rewards: Sequence[Vector] | None = None
    users: npt.NDArray[np.str_] | None = None
    missing: int = 0

    def __len__(self) -> int:
        return len(self.rewards)

    def log_weights(self) -> Vector:
        """[N]: the log-ratio of each whole episode."""
        return np.array([float(np.sum(each)) for each in self.log_ratios])


@dataclass(frozen=True)
class Limits:
    """When an estimate is refused.

    Attributes:
        effective: The fewest effective episodes.
        effective_tasks: The fewest effective tasks, and users.
        unseen: The largest share of what the challenger does that the log does not hold.
        mean_weight: The largest mean of the weights: above 1 the log-probabilities are not those of the logged policy.
    """

    effective: float = 100.0
    effective_tasks: float = 20.0
    unseen: float = 0.2
    mean_weight: float = 1.3


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
        effective_tasks: The same over the tasks' total weights, or the users', whichever are fewer.
        largest_share: The largest share of all weight that one of them has.
        mean_weight: 1 on average where the logged policy could have sampled all that the challenger would.
        missing: The share of the log's episodes that could not be used.
        unseen: What the log does not hold of the challenger's episodes, missing ones included.
        refusal: Why no estimate is to be relied on; empty where they are.
    """

    logged: float
    estimates: dict[str, Estimate]
    effective: float
    effective_tasks: float
    largest_share: float
    mean_weight: float
    missing: float
    unseen: float
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
    weights = relative_weights(log_weights)
    names = [episodes.tasks] if episodes.users is None else [episodes.tasks, episodes.users]
    groups = [np.unique(own, return_inverse=True)[1] for own in names]
    totals = min((_sums(numbers, weights) for numbers in groups), key=effective)
    mean_weight = float(np.exp(np.minimum(log_weights, LARGEST_LOG_WEIGHT)).mean())
    missing = episodes.missing / (episodes.missing + len(episodes))
    unseen = 1.0 - (1.0 - missing) * min(1.0, mean_weight)
    values = task_values(episodes.rewards, episodes.tasks, episodes.families)
    found = {
        "self_normalised": _self_normalised(episodes.rewards, weights, np.zeros(len(episodes))),
        "doubly_robust": _self_normalised(episodes.rewards, weights, values),
    }
    if episodes.turn_rewards is not None:
        found["per_decision"] = _per_decision(episodes, episodes.turn_rewards)
    shown = Preview(
        logged=float(episodes.rewards.mean()),
        estimates={name: _estimate(*own, episodes.rewards, groups, unseen) for name, own in found.items()},
        effective=effective(weights),
        effective_tasks=effective(totals),
        largest_share=float(totals.max() / totals.sum()),
        mean_weight=mean_weight,
        missing=missing,
        unseen=unseen,
        refusal="",
    )
    return replace(shown, refusal=_refusal(shown, limits))


def relative_weights(log_weights: Vector) -> Vector:
    """Weights [N] with a mean of 1.

    Estimates are self-normalised, so a common factor says nothing, and with this one no weight overflows.
    """
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.mean()


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


def _sums(numbers: Numbers, values: Vector) -> Vector:
    """The sum of the values [N] of each number."""
    return np.bincount(numbers, values).astype(np.float64)


def _mean_without(total: Vector | float, count: Vector | float, part: Vector, part_count: Vector, otherwise: Vector) -> Vector:
    left = np.asarray(count - part_count, dtype=np.float64)
    return np.where(left > 0, (total - part) / np.maximum(left, 1.0), otherwise)


def _self_normalised(rewards: Vector, weights: Vector, values: Vector) -> tuple[float, Vector]:
    """mean(values) + sum(w (r - values)) / sum(w), and what each episode [N] adds to its error, to first order."""
    share = weights / weights.sum()
    correction = float(share @ (rewards - values))
    influence = (values - values.mean()) / len(rewards) + share * (rewards - values - correction)
    return float(values.mean()) + correction, influence


def _per_decision(episodes: LoggedEpisodes, turn_rewards: Sequence[Vector]) -> tuple[float, Vector]:
    """The sum over turns t of sum(w_1..t r_t) / sum(w_1..t); an episode that has ended keeps its last weight and gets 0."""
    value, influence = 0.0, np.zeros(len(episodes))
    log_weights = np.zeros(len(episodes))
    for turn in range(max(map(len, episodes.log_ratios))):
        log_weights = log_weights + _at(episodes.log_ratios, turn)
        part, added = _self_normalised(_at(turn_rewards, turn), relative_weights(log_weights), np.zeros(len(episodes)))
        value, influence = value + part, influence + added
    return value, influence


def _at(columns: Sequence[Vector], turn: int) -> Vector:
    return np.array([float(column[turn]) if turn < len(column) else 0.0 for column in columns])


def _estimate(value: float, influence: Vector, rewards: Vector, groups: Sequence[Numbers], unseen: float) -> Estimate:
    """With 95% intervals by the delta method, in which the unseen share has the lowest or the highest logged reward."""
    gain = value - float(rewards.mean())
    against = influence - (rewards - rewards.mean()) / len(rewards)
    half, half_gain = (max(_half_width(own, numbers) for numbers in groups) for own in (influence, against))
    lowest, highest = float(rewards.min()), float(rewards.max())
    range_of = highest - lowest
    return Estimate(
        value,
        Interval((1 - unseen) * (value - half) + unseen * lowest, (1 - unseen) * (value + half) + unseen * highest),
        gain,
        Interval((1 - unseen) * (gain - half_gain) - unseen * range_of, (1 - unseen) * (gain + half_gain) + unseen * range_of),
    )


def _half_width(influence: Vector, numbers: Numbers) -> float:
    """Half of a 95% interval from the influence [N] of single episodes, added up by task or user.

    The quantile is Student's, with as many degrees of freedom as tasks carry the variance: where few tasks have most of the
    weight, few tell how much they vary.
    """
    sums = _sums(numbers, influence)
    count, spread = len(sums), float(np.square(sums).sum())
    if count < 2:
        return math.inf
    if spread == 0.0:
        return 0.0
    freedom = max(1.0, spread**2 / float(np.power(sums, 4).sum()) - 1.0)
    return _student(freedom) * math.sqrt(spread * count / (count - 1))


def _student(freedom: float) -> float:
    """Student's 97.5% quantile."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))


def _refusal(found: Preview, limits: Limits) -> str:
    what = (
        "log more episodes, or more tasks, with the policy that serves; or try a challenger nearer to it (fewer updates, a "
        "larger KL weight), or serve this one to a share of traffic and measure it"
    )
    if found.missing > limits.unseen:
        return (
            f"the log does not hold behaviour or reward of {found.missing:.0%} of its episodes (at most {limits.unseen:.0%} "
            "may be missing), and these may be of another kind: log their tokens with log-probabilities, and score them"
        )
    if found.effective < limits.effective:
        return (
            f"of all episodes about {found.effective:.1f} count (at least {limits.effective:g} are needed): the challenger "
            f"rarely does what was logged; {what}"
        )
    if found.effective_tasks < limits.effective_tasks:
        return (
            f"about {found.effective_tasks:.1f} tasks or users count (at least {limits.effective_tasks:g} are needed); {what}"
        )
    if found.unseen > limits.unseen:
        return (
            f"the mean weight is {found.mean_weight:.2f}: about {found.unseen:.0%} of what the challenger does is not in the "
            f"log (at most {limits.unseen:.0%} may be missing); {what}"
        )
    if found.mean_weight > limits.mean_weight:
        return (
            f"the mean weight is {found.mean_weight:.2f} instead of 1: the log-probabilities are not those of the policy and "
            "temperature that sampled the episodes; log them where they are sampled"
        )
    return ""
