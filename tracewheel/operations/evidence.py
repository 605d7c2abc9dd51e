"""What is new since the last complete run: training tasks, and verified outcomes of those that it knew."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.files import read_table
from tracewheel.curation.curated_folder import EPISODES_FILE, TASKS_FILE, TRAIN

if TYPE_CHECKING:
    import pandas

# A known task counts when new outcomes move the mean of its posterior further. One more outcome does so up to about four.
MOVED = 0.1


@dataclass(frozen=True)
class NewEvidence:
    """What a training set has beyond an earlier one.

    Attributes:
        train_tasks: Tasks in the training set.
        new_tasks: Those that the earlier set did not have.
        moved_tasks: Those that it had, with new verified outcomes that moved the mean of their posterior by more than `MOVED`.
        new_outcomes: New verified outcomes of training tasks. Unscored and failed episodes are none.
    """

    train_tasks: int
    new_tasks: int
    moved_tasks: int = 0
    new_outcomes: int = 0

    @property
    def counted(self) -> int:
        """Tasks that the policy can learn something new from."""
        return self.new_tasks + self.moved_tasks

    def says(self, wanted: int) -> str:
        """In a few words, beside the number of tasks that start a run."""
        moved = f" and {self.moved_tasks} with outcomes that change their pass rate" if self.moved_tasks else ""
        return f"{self.new_tasks} new training tasks{moved} (needs {wanted})"

    def to_record(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)


def new_evidence(curated: Path, earlier: Path | None) -> NewEvidence:
    """Compare the training set of a curation with that of an earlier one.

    Args:
        curated: A folder that `curate` wrote.
        earlier: Another; None when there is none, and everything is new.
    """
    tasks, outcomes = _training(curated)
    if earlier is None:
        return NewEvidence(len(tasks), len(tasks), 0, len(outcomes))
    known, counted = _training(earlier)
    fresh = outcomes.index.difference(counted.index)
    tried = set(fresh.get_level_values("task_id"))
    both = tasks.index.intersection(known.index)
    shift = (tasks.loc[both, "posterior"] - known.loc[both, "posterior"]).abs()
    moved = [task for task in shift.index[shift > MOVED] if task in tried]
    return NewEvidence(len(tasks), len(tasks.index.difference(known.index)), len(moved), len(fresh))


def _training(curated: Path) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Training tasks by id with their `posterior`, and their scored outcomes by trace and task."""
    tasks = read_table(curated / TASKS_FILE, ["id", "split", "posterior"])
    episodes = read_table(curated / EPISODES_FILE, ["trace_id", "task_id", "split", "success"])
    scored = episodes[(episodes["split"] == TRAIN) & episodes["success"].notna()]
    return tasks[tasks["split"] == TRAIN].set_index("id"), scored.set_index(["trace_id", "task_id"])
