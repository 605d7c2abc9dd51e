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


def in_words(first: float, last: float, shown: Mapping[str, int] | None, won: int, unsolved: int) -> str:
    """What a loop lost and rescued, and what to do.

    Args:
        first: The share of the first iteration's groups that were lost; `last` of the last one's.
        shown: Source to how many lost tasks were shown a solution from it; None where nothing was to be rescued.
        won: How many of these were solved afterwards.
        unsolved: Lost tasks without a solution.
    """
    said = f"{first:.0%} of the first groups were lost whole, {last:.0%} of the last."
    if shown is None:
        return f"{said} No sample of theirs teaches anything: {REMEDY}."
    by = ", ".join(f"{count} from {source}" for source, count in sorted(shown.items()))
    said += f" {sum(shown.values())} lost tasks were shown a solution{f' ({by})' if by else ''}; {won} were solved later."
    if unsolved:
        said += f" {unsolved} have none: name a teacher or raise teacher.samples, log more users, or add easier tasks."
    return said


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
