"""Lost tasks: those that the policy never solves, so that no sample of theirs can teach it anything."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from tracewheel.config import LostTasksConfig
from tracewheel.scoring.rubric import success_of
from tracewheel.scoring.score import read_scores

LEAST_GROUPS = 4  # of a family and tier, before they tell of tasks that were not played yet
LOST_FILE = "lost_tasks.json"  # of a run's record: by task its source, from which iteration, and when it was solved last
REMEDY = (
    "imitate solutions of such tasks (learner.lost_tasks={at_start: 8}, with a teacher for what the logs do not solve), "
    "warm-start on more episodes, or begin with easier tasks"
)


def in_words(first: float, last: float, shown: Mapping[str, int] | None, won: int, asked: int, unsolved: int) -> str:
    """What a loop lost and rescued, and what to do.

    Args:
        first: The share of the first iteration's groups that were lost; `last` of the last one's.
        shown: Source to how many lost tasks were shown a solution from it; None where nothing was to be rescued.
        won: How many of these were solved afterwards.
        asked: For how many tasks a teacher was asked.
        unsolved: Lost tasks without a solution.
    """
    said = f"{first:.0%} of the first groups were lost whole, {last:.0%} of the last: samples of theirs teach nothing."
    if shown is None:
        return f"{said} What helps: {REMEDY}."
    by = ", ".join(f"{count} from {source}" for source, count in sorted(shown.items())) or "none"
    said += f" Shown a verified solution: {by}{f' (asked for {asked})' if asked else ''}; solved afterwards: {won}."
    if not unsolved:
        return said
    better = "raise teacher.samples, name a better teacher" if asked else "name a teacher"
    return f"{said} Lost without a solution: {unsolved}. For these {better}, log more users, or add easier tasks."


class LostTasks:
    """Which tasks are lost, by the groups that a loop has scored.

    A group is lost when it has scored samples and all of them failed; unscored ones say nothing.

    Args:
        after_groups: A task is lost once this many of its groups in a row were.
        kin: Family and tier of the training tasks by id.

    Attributes:
        won_in: The last iteration in which each task was solved.
        share: The share of the last iteration's groups that were lost; None where none was scored.
    """

    def __init__(self, after_groups: int, kin: Mapping[str, tuple[str, int]]) -> None:
        self._after, self._kin = after_groups, kin
        self._in_a_row: defaultdict[str, int] = defaultdict(int)
        self._groups: dict[str, Counter[tuple[str, int]]] = {"lost": Counter(), "won": Counter()}
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
            won = any(solved)
            self._in_a_row[task_id] = 0 if won else self._in_a_row[task_id] + 1
            if won:
                self.won_in[task_id] = iteration
            if task_id in self._kin:
                self._groups["won" if won else "lost"][self._kin[task_id]] += 1
        lost = sum(not any(solved) for solved in groups.values())
        self.share = lost / len(groups) if groups else None

    @property
    def played(self) -> list[str]:
        """The ids of the tasks that were played and are lost."""
        return sorted(task_id for task_id, number in self._in_a_row.items() if number >= self._after)

    @property
    def ids(self) -> list[str]:
        """The ids of the tasks that are lost, and of those not played yet whose kin are: over half of its groups were lost."""
        kin = {
            one
            for one, lost in self._groups["lost"].items()
            if (groups := lost + self._groups["won"][one]) >= LEAST_GROUPS and lost > LostTasksConfig.MOST * groups
        }
        unplayed = (task_id for task_id, one in self._kin.items() if one in kin and task_id not in self._in_a_row)
        return sorted({*self.played, *unplayed})
