"""The recorded verifier: the similarity of an episode's calls to those of a successful trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rapidfuzz.distance import LCSseq

from tracewheel.core.types import Task


class RecordedVerifier:
    """Step-level matching against the successful traces of the same task.

    >>> goal = {"references": [[{"key": "find"}, {"key": "pay"}]]}
    >>> task = Task("t1", "recorded:logs", "shop", 1, "Pay it.", {}, goal, "recorded", "t1")
    >>> RecordedVerifier().verify(task, {"calls": [{"key": "find"}], "unrecorded": []})
    (0.5, {'recall': 0.5, 'precision': 1.0, 'first_call': 1.0})

    Calls are equal when they have the same key (`recorded.calls.normalised_key`). `matched` is the length of the longest
    common subsequence of the episode's calls and those of a success; of several successes the most similar one counts. The
    total is `matched` over the length of the longer sequence, so it is 1 only for equal sequences, and a missing call costs
    as much as a superfluous one.

    The breakdown:

    - `recall`: the share of the success's calls that the episode made, in order.
    - `precision`: the share of the episode's calls that the success made, in order; 0 for an episode without calls.
    - `first_call`: whether both begin with the same call.

    Raises:
        ValueError: the episode has an unrecorded call, or no success of the task is known.
        KeyError: the state or the goal is not from a recording.
    """

    kind = "recorded"

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        made, references = _keys(task, final_state)
        scored = [_compare(made, reference) for reference in references]
        return max(scored, key=lambda score: score[0])

    def progress(self, task: Task, state: dict[str, Any]) -> float:
        """The total: each call that a success made too is progress, each other call a step back."""
        return self.verify(task, state)[0]


def _keys(task: Task, state: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    if state["unrecorded"]:
        tools = ", ".join(sorted({call["name"] for call in state["unrecorded"]}))
        raise ValueError(f"unrecorded call of {tools}: no log shows its outcome")
    references = [[call["key"] for call in reference] for reference in task.goal["references"]]
    if not references:
        raise ValueError("no successful trace of this task is recorded")
    return [call["key"] for call in state["calls"]], references


def _compare(made: Sequence[str], reference: Sequence[str]) -> tuple[float, dict[str, float]]:
    matched = common_length(made, reference)
    longer = max(len(made), len(reference))
    breakdown = {
        "recall": matched / len(reference) if reference else 1.0,
        "precision": matched / len(made) if made else 0.0,
        "first_call": float(made[:1] == reference[:1]),
    }
    return (matched / longer if longer else 1.0), breakdown


def common_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    numbers: dict[str, int] = {}  # RapidFuzz compares the hashes of strings, which are equal for some that differ
    return LCSseq.similarity(*([numbers.setdefault(item, len(numbers)) for item in items] for items in (one, other)))
