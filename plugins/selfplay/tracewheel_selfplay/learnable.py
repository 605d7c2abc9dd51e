"""What a proposal is worth: how much the solver can learn from its task, less for what is proposed often.

Sources: R-Zero (Huang et al. 2025), uncertainty of the solver and a penalty of repetition; Absolute Zero (Zhao et al. 2025),
learnability. The solver's successes are the task's own verifier's; the proposer has no say in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracewheel import DataError, Strict, Task, canonical_json, content_hash, probe_task, read_json

REPETITION = 0.5  # what a proposal loses whose cluster, of the same family and tier, is all that is proposed


class LearnableArgs(Strict):
    """`table` is the file of what came of each proposal (`worth_of`)."""

    table: str


class Learnable:
    """4p(1-p) of the solver's pass rate p, less the share of proposals that are alike; 0 for none or a refused one.

    >>> proposal = {"family": "list", "tier": 2, "seed": 7}
    >>> (found,) = worth_of([proposal], {}, {canonical_json(proposal): [True, False]}).values()
    >>> found["successes"], found["scored"], found["repetition"]
    (1, 2, 1.0)

    A proposal whose task was played without a score raises, so that it has none either.

    Parts: `pass_rate`, `learnability`, `repetition`, `refused`.
    """

    kind = "learnable"
    Args = LearnableArgs

    def __init__(self, args: LearnableArgs) -> None:
        self._table = read_json(Path(args.table))

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        """The reward of the proposal in a final state.

        Raises:
            DataError: the table does not know it, or its task has no scores.
        """
        proposal = final_state["proposal"]
        if proposal is None:
            return 0.0, {"refused": 1.0}
        found = self._table.get(canonical_json(proposal))
        if found is None:
            raise DataError(f"no result of the proposal {canonical_json(proposal)}")
        if found["refused"]:
            return 0.0, {"refused": 1.0, "repetition": found["repetition"]}
        if not found["scored"]:
            raise DataError("the solver's episodes have no scores")
        rate = found["successes"] / found["scored"]
        worth, parts = 4.0 * rate * (1.0 - rate), {"pass_rate": rate, "repetition": found["repetition"], "refused": 0.0}
        return max(0.0, worth - REPETITION * found["repetition"]), {**parts, "learnability": worth}


def worth_of(
    proposals: Sequence[Mapping[str, Any]], refused: Mapping[str, str], outcomes: Mapping[str, Sequence[bool]]
) -> dict[str, dict[str, Any]]:
    """The table that `learnable` reads.

    Args:
        proposals: Of one iteration, each as often as it was made.
        refused: A proposal's text to why it is not played.
        outcomes: A proposal's text to the success of each scored episode of the solver.
    """
    clusters = Counter((proposal["family"], proposal["tier"]) for proposal in proposals)
    return {
        (text := canonical_json(proposal)): {
            "refused": refused.get(text, ""),
            "successes": sum(outcomes.get(text, ())),
            "scored": len(outcomes.get(text, ())),
            "repetition": clusters[proposal["family"], proposal["tier"]] / len(proposals),
        }
        for proposal in proposals
    }


def identities(task: Task) -> frozenset[str]:
    """What makes two tasks the same: the fingerprint, or the start and the goal."""
    return frozenset({task.fingerprint, content_hash([task.initial_state, task.goal])})


def why_not(task: Task | None, kept_apart: frozenset[str]) -> str:
    """Why a proposed task is not to be played; "" if it is sound.

    Args:
        task: It; None where the generator makes none.
        kept_apart: Identities of tasks outside training.
    """
    if task is None:
        return "the generator makes no such task"
    if identities(task) & kept_apart:
        return "it is a task outside training"
    probe = probe_task(task)
    return "" if probe.valid else f"{probe.verdict}: {probe.reason}"
