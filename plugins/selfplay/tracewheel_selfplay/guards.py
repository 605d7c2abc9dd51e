"""When a policy that rewards itself has to stop: pure functions of each round's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from tracewheel import ConfigError, Strict
from tracewheel_selfplay.majority import FEWEST


class Limits(Strict):
    """Where the guards stop.

    Attributes:
        least_agreement: Of the labelled tasks' episodes, the share whose own reward is the true one; stops where it is no
            more, or fell by `most_fall` since the first round. At a half the reward says nothing, so a loop goes on only
            while it has been seen to be above.
        most_fall: That fall.
        most_flips: Share of tasks whose majority may differ from that of the round before; stops after two rounds above.
        most_length: Tokens an episode, as a multiple of the first round's; stops above it and below its inverse.
        least_entropy: Nats a token, as a share of the first round's.
    """

    least_agreement: float = 0.5
    most_fall: float = 0.15
    most_flips: float = 0.5
    most_length: float = 2.0
    least_entropy: float = 0.05


@dataclass(frozen=True)
class Round:
    """The figures of one round.

    Attributes:
        majorities: Of each task with a majority, its end.
        share: Mean share of the majorities.
        agree: Of the labelled tasks' episodes with both, how many have the true reward as their own.
        labelled: How many episodes that are.
        length: Mean tokens that the policy generated an episode.
        entropy: Nats a token, of the update; None where it was not measured.
        true_success: Share of true successes of the labelled tasks' episodes.
    """

    majorities: Mapping[str, str]
    share: float
    agree: int
    labelled: int
    length: float
    entropy: float | None
    true_success: float | None = None
    flips: float | None = field(default=None)

    def to_record(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "majorities"}


def flip_rate(before: Mapping[str, str], now: Mapping[str, str]) -> float | None:
    """The share of tasks with a majority in both rounds whose majority changed; None without any.

    >>> flip_rate({"a": "x", "b": "y"}, {"a": "x", "b": "z", "c": "q"})
    0.5
    """
    both = before.keys() & now.keys()
    return fmean(before[task] != now[task] for task in both) if both else None


def check_groups(size: int) -> None:
    """Check that groups can have a majority.

    Raises:
        ConfigError: groups are too small.
    """
    if size < FEWEST:
        raise ConfigError(f"rollout.group_size: {size} episodes have no majority; at least {FEWEST} are needed")


def stop_reason(rounds: Sequence[Round], limits: Limits) -> str:
    """Why to stop after the last round; "" to go on. Rounds before it have passed."""
    first, last = rounds[0], rounds[-1]
    if last.labelled:
        rate = last.agree / last.labelled
        if rate <= limits.least_agreement:
            return f"its reward is the true one in {rate:.0%} of {last.labelled} labelled episodes"
        seen = next(one for one in rounds if one.labelled)
        began = seen.agree / seen.labelled
        if began - rate > limits.most_fall:
            return f"its reward is the true one in {rate:.0%} of {last.labelled} labelled episodes, {began:.0%} at first"
    if len(rounds) > 1 and not any(one.labelled for one in rounds[-2:]):
        return "no labelled task had a majority, two rounds in a row: whether its reward is the true one is not known"
    if len(rounds) > 2 and all((one.flips or 0.0) > limits.most_flips for one in rounds[-2:]):
        return f"{last.flips:.0%} of the majorities changed, two rounds in a row"
    if not 1 / limits.most_length <= last.length / max(first.length, 1e-9) <= limits.most_length:
        return f"episodes have {last.length:.0f} tokens, {first.length:.0f} at first"
    if last.entropy is not None and first.entropy and last.entropy < limits.least_entropy * first.entropy:
        return f"the entropy is {last.entropy:.3g} nats a token, {first.entropy:.3g} at first"
    return ""
