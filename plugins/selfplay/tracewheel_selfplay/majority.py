"""The verifier `majority`: an episode is right where it ends as most of its group do. For training alone, never at the gate.

Source: TTRL (Zuo et al. 2025), the reward of a majority vote, here over final states or answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from tracewheel import Episode, Strict, Task, Verdict, canonical_json, content_hash

FEWEST = 3  # episodes of a group: one alone would always be right, as a greedy evaluation plays it


class NoMajority(ValueError):
    """A group without a majority: its episodes have no score, which is not a score of 0."""


class MajorityArgs(Strict):
    """`of` says what is compared; `least`, the share of a group that has to end alike."""

    of: Literal["state", "answer"] = "state"
    least: float = 0.5


class Majority:
    """1 for the episodes that end as the largest part of their group, 0 for the others. One without an answer has no vote.

    >>> vote(["a", "b", "a"], least=0.5)
    ('a', 0.6666666666666666)

    Groups of one or two are unscored, so a greedy evaluation by it has no figure and the gate refuses to decide.

    Example:
        rubric: {verifiers: [{kind: majority, args: {of: answer}}]}

    Parts: `share`, the share of the group that ends like the majority. The answer is the hash of the end.
    """

    kind = "majority"
    Args = MajorityArgs

    def __init__(self, args: MajorityArgs) -> None:
        self._args = args

    def verify_group(self, task: Task, episodes: Sequence[Episode]) -> Sequence[Verdict | Exception]:
        """The verdict of each episode; `NoMajority` for all where the group is divided."""
        ends = [end_of(episode, self._args.of) for episode in episodes]
        try:
            end, share = vote(ends, self._args.least)
        except NoMajority as error:
            return [error] * len(episodes)
        return [Verdict(float(each == end), {"share": share}, answer=content_hash(each)) for each in ends]


def end_of(episode: Episode, of: str) -> str:
    """What is compared of an episode, as text; "" of one without an answer."""
    return canonical_json(episode.final_state) if of == "state" else " ".join(episode.final_text.split())


def vote(ends: Sequence[str], least: float) -> tuple[str, float]:
    """The most frequent end, and the share of the group that has it; "" is no vote.

    Raises:
        NoMajority: fewer than three vote, two ends are equally frequent, or the share is below `least`.
    """
    votes = Counter(filter(None, ends))
    if votes.total() < FEWEST:
        raise NoMajority(f"no majority: the group has {votes.total()} of at least {FEWEST} episodes with an end")
    (end, count), *others = votes.most_common()
    share = count / len(ends)
    if share < least or (others and others[0][1] == count):
        raise NoMajority(f"no majority: {count} of {len(ends)} episodes of the group end alike")
    return end, share
