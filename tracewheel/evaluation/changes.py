"""What differs between two evaluations of the same tasks: the tasks gained and lost, and the noise of an A/A run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tracewheel.core.files import read_table
from tracewheel.core.inference import Interval, mean_interval
from tracewheel.evaluation.paired_outcomes import RESULTS_FILE, common_components, task_rates
from tracewheel.rollout.rollout import TRAJECTORIES_FILE
from tracewheel.sampling.validation import MODES
from tracewheel.scoring.score import SCORES_FILE

if TYPE_CHECKING:
    import pandas as pd

CHANGES_FILE = "changes.json"
GREEDY = "greedy"


def changed_tasks(challenger: Path, baseline: Path) -> list[dict[str, Any]]:
    """The tasks whose greedy success differs, the lost ones first, then by family and task.

    A task that is unscored in one evaluation is neither gained nor lost.

    Args:
        challenger: Folder of an evaluation.
        baseline: Folder of an evaluation of the same tasks.

    Returns:
        Per task `task_id`, `family`, `change` ("gained" or "lost"), and for `challenger` and `baseline` the greedy
        `success`, the `trajectory` (id) and the `file` that holds it, from the folder that holds the evaluation's.
    """
    columns = ["task_id", "family", GREEDY]
    new, old = (read_table(folder / RESULTS_FILE)[columns] for folder in (challenger, baseline))
    both = new.merge(old[["task_id", GREEDY]], on="task_id", suffixes=("", "_baseline")).dropna()
    changed = both[both[GREEDY] != both[f"{GREEDY}_baseline"]]
    sides = {name: (folder, _trajectories(folder)) for name, folder in (("challenger", challenger), ("baseline", baseline))}
    rows = []
    for row in changed.to_dict("records"):
        success = {"challenger": float(row[GREEDY]), "baseline": float(row[f"{GREEDY}_baseline"])}
        rows.append(
            {
                "task_id": str(row["task_id"]),
                "family": str(row["family"]),
                "change": "gained" if success["challenger"] > success["baseline"] else "lost",
                **{
                    name: {
                        "success": success[name],
                        "trajectory": ids.get(str(row["task_id"])),
                        "file": f"{folder.name}/{GREEDY}/{TRAJECTORIES_FILE}",
                    }
                    for name, (folder, ids) in sides.items()
                },
            }
        )
    return sorted(rows, key=lambda row: (row["change"] == "gained", row["family"], row["task_id"]))


def noise_floor(first: Path, second: Path, *, confidence: float) -> dict[str, Any]:
    """The differences between two evaluations of one policy, which are noise: those of a gain should be larger.

    Args:
        first: Folder of an evaluation.
        second: Folder of another one, of the same policy on the same tasks with another seed.
        confidence: Of the intervals.

    Returns:
        By mode (`greedy`, `sampled`): `difference` (second minus first) and `interval`, None without a task that is
        scored in both, `pairs`, and `flipped`: how many tasks have another success rate.
    """
    tables = [read_table(folder / RESULTS_FILE) for folder in (first, second)]
    noise: dict[str, Any] = {}
    for mode in MODES:
        found, interval = paired_rates(tables[1], tables[0], mode, confidence)
        noise[mode] = {
            "difference": float(found.mean()) if len(found) else None,
            "interval": list(interval) if interval else None,
            "pairs": len(found),
            "flipped": int((found != 0.0).sum()),
        }
    return noise


def paired_rates(
    new: pd.DataFrame, old: pd.DataFrame, mode: str, confidence: float = 0.95
) -> tuple[npt.NDArray[np.float64], Interval | None]:
    """Differences of a mode's success, new minus old, on the tasks that are scored in both, and the interval of their mean."""
    shared = sorted(set(new["task_id"]) & set(old["task_id"]))
    tables = [table.set_index("task_id", drop=False).loc[shared] for table in (new, old)]
    rates = [task_rates(table)[mode].to_numpy(np.float64) for table in tables]
    differences = rates[0] - rates[1]
    known = ~np.isnan(differences)
    if not known.any():
        return differences[known], None
    components = common_components(*tables)[known]
    return differences[known], mean_interval(differences[known], differences[known], (1.0 - confidence) / 2, components)


def _trajectories(evaluation: Path) -> dict[str, str]:
    """The greedy trajectory of each task; empty where the evaluation played no greedy episodes."""
    path = evaluation / GREEDY / SCORES_FILE
    if not path.is_file():
        return {}
    scores = read_table(path)
    return dict(zip(scores["task_id"].map(str), scores["trajectory_id"].map(str), strict=True))
