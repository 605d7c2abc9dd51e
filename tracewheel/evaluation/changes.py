"""What differs between two evaluations of the same tasks: the tasks gained and lost, and the noise of an A/A run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.files import read_table
from tracewheel.core.statistics import paired_difference
from tracewheel.evaluation.evaluate import RESULTS_FILE
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


def noise_floor(first: Path, second: Path, *, confidence: float, resamples: int, seed: int) -> dict[str, Any]:
    """The differences between two evaluations of one policy, which are noise: those of a gain should be larger.

    Args:
        first: Folder of an evaluation.
        second: Folder of another one, of the same policy on the same tasks with another seed.
        confidence: Of the intervals.
        resamples: Bootstrap resamples.
        seed: Seed of the bootstrap.

    Returns:
        By mode (`greedy`, `sampled`): `difference` (second minus first) and `interval`, None without a task that is
        scored in both, `pairs`, and `flipped`: how many tasks have another success rate.
    """
    one, other = (_rates(read_table(folder / RESULTS_FILE)) for folder in (first, second))
    noise: dict[str, Any] = {}
    for mode in MODES:
        pairs = one[[mode]].add_suffix("_first").join(other[[mode]].add_suffix("_second"), how="inner").dropna().sort_index()
        before, after = pairs[f"{mode}_first"].to_numpy(), pairs[f"{mode}_second"].to_numpy()
        noise[mode] = {"difference": None, "interval": None, "pairs": len(pairs), "flipped": int((before != after).sum())}
        if len(pairs):
            difference, interval = paired_difference(after, before, confidence=confidence, resamples=resamples, seed=seed)
            noise[mode] |= {"difference": difference, "interval": list(interval)}
    return noise


def _rates(results: pd.DataFrame) -> pd.DataFrame:
    attempts = results["sampled_attempts"].where(results["sampled_attempts"] > 0)
    return results.assign(sampled=results["sampled_successes"] / attempts).set_index("task_id")[list(MODES)]


def _trajectories(evaluation: Path) -> dict[str, str]:
    """The greedy trajectory of each task; empty where the evaluation played no greedy episodes."""
    path = evaluation / GREEDY / SCORES_FILE
    if not path.is_file():
        return {}
    scores = read_table(path)
    return dict(zip(scores["task_id"].map(str), scores["trajectory_id"].map(str), strict=True))
