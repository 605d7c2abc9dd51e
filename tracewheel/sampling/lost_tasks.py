"""Lost tasks: those that the policy has never solved in their last groups, so that no sample of theirs can teach it anything."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tracewheel.scoring.rubric import success_of
from tracewheel.scoring.score import read_scores


class LostTasks:
    """Which tasks are lost, by the groups that a loop has scored.

    A group is lost when it has scored samples and all of them failed; unscored ones say nothing.

    Args:
        after_groups: A task is lost once this many of its groups in a row were.

    Attributes:
        won_in: The last iteration in which each task was solved.
        share: The share of the last iteration's groups that were lost; None where none was scored.
    """

    def __init__(self, after_groups: int) -> None:
        self._after = after_groups
        self._in_a_row: defaultdict[str, int] = defaultdict(int)
        self.won_in: dict[str, int] = {}
        self.share: float | None = None

    def observe(self, iteration: int, scores: Sequence[Path]) -> None:
        """Take in the scores of an iteration."""
        groups: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)
        for file in scores:
            for score in read_scores(file):
                if not math.isnan(success := success_of(score)):
                    groups[score.task_id, score.group].append(bool(success))
        for (task_id, _), solved in sorted(groups.items()):
            self._in_a_row[task_id] = 0 if any(solved) else self._in_a_row[task_id] + 1
            if any(solved):
                self.won_in[task_id] = iteration
        lost = sum(not any(solved) for solved in groups.values())
        self.share = lost / len(groups) if groups else None

    @property
    def ids(self) -> list[str]:
        """The ids of the tasks that are lost."""
        return sorted(task_id for task_id, number in self._in_a_row.items() if number >= self._after)
