"""The recorded verifier: how near an episode's calls come to those of a trace that succeeded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracewheel.core.types import Task


class RecordedVerifier:
    """Step-level matching against the successful traces of the same task.

    Calls are the same when no tool could tell them apart (`recorded_calls.normalised`). `matched` is the length of the
    longest common subsequence of the episode's calls and those of a success. Of several successes the one counts that the
    episode comes nearest to. The total is `matched` over the longer of the two sequences, so 1 only when they are
    equal: a call that is missing and one that is too many cost the same.

    The breakdown:

    - `recall`: which share of the success's calls was made, in its order.
    - `precision`: which share of the episode's calls the success made too, in its order; 0 for an episode without any.
    - `first_call`: whether it began with the same call.

    Raises:
        ValueError: the episode has an unrecorded call, or no success of the task is known. It is then unscored.
        KeyError: the state or the goal is not one of a recording.
    """

    kind = "recorded"

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        made, references = _keys(task, final_state)
        scored = [_compare(made, reference) for reference in references]
        return max(scored, key=lambda score: score[0])

    def progress(self, task: Task, state: dict[str, Any]) -> float:
        """As the total: every call that a success made too brings the episode on, and every other one puts it back."""
        return self.verify(task, state)[0]


def _keys(task: Task, state: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    if state["unrecorded"]:
        tools = ", ".join(sorted({call["name"] for call in state["unrecorded"]}))
        raise ValueError(f"unrecorded call of {tools}: no log shows where it leads")
    references = [[call["key"] for call in reference] for reference in task.goal["references"]]
    if not references:
        raise ValueError("no successful trace of this task is recorded to compare with")
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
    """Length of the longest common subsequence, in len(one) x len(other) steps."""
    row = [0] * (len(other) + 1)
    for item in one:
        diagonal = 0
        for place, candidate in enumerate(other, start=1):
            above = row[place]
            row[place] = diagonal + 1 if item == candidate else max(above, row[place - 1])
            diagonal = above
    return row[-1]
