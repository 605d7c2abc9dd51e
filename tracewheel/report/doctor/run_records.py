"""The records of a run that the checks read: rows of episodes, metrics of updates, validations.

The loop writes to `loop.json` which entries of the store each iteration made. So the doctor can examine a run that is
still running, was stopped or killed, or was made by another version of the code.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import DoctorSections
from tracewheel.core.files import read_json, read_table
from tracewheel.core.fingerprint import digest_file
from tracewheel.core.run_record import LOOP_FILE
from tracewheel.core.types import INFRASTRUCTURE_FAILED
from tracewheel.curation.curated_folder import REPORT_FILE, TASKS_FILE
from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.evaluation.evaluate import HELD_BACK, RESULTS_FILE, TRAINING
from tracewheel.operations.intake_record import read_intake
from tracewheel.policy.adapters import ADAPTER_INFO, MODEL_INFO
from tracewheel.report.doctor.episode_rows import GRADER, episode_rows
from tracewheel.report.doctor.measures import by_iteration
from tracewheel.sampling.validation import MODES
from tracewheel.scoring.flaws import FLAWS, offered_tools
from tracewheel.scoring.rubric import success_of
from tracewheel.scoring.score import SCORES_FILE, read_scores

if TYPE_CHECKING:
    import pandas as pd


RUBRICS = (TRAINING, HELD_BACK)


def marks_of(folder: Path) -> pd.DataFrame | None:
    """Each task's mean over the scored episodes of both modes of an evaluation, NaN without one; None without two rubrics.

    The columns are `training` and `held_back`, the rewards, and `training_success` and `held_back_success`.

    Raises:
        DataError: scores cannot be read.
    """
    import pandas as pd

    beside = next((name for name in RUBRICS if any((folder / mode / name / SCORES_FILE).is_file() for mode in MODES)), None)
    if beside is None:
        return None
    columns: dict[str, pd.Series] = {}
    for rubric in RUBRICS:
        paths = [folder / mode / (rubric if rubric == beside else "") / SCORES_FILE for mode in MODES]
        scores = [score for path in paths if path.is_file() for score in read_scores(path)]
        rows = pd.DataFrame(
            [(one.task_id, one.total, success_of(one) if one.total is not None else None) for one in scores],
            columns=["task_id", "total", "success"],
        ).astype({"total": float, "success": float})
        means = rows.groupby("task_id")[["total", "success"]].mean()
        columns |= {rubric: means["total"], f"{rubric}_success": means["success"]}
    return pd.DataFrame(columns)


def read_judges(validations: Mapping[int, Path]) -> dict[int, pd.DataFrame]:
    """`marks_of` each validation that has both rubrics.

    Raises:
        DataError: scores cannot be read.
    """
    return {number: marks for number, folder in validations.items() if (marks := marks_of(folder)) is not None}


GUARD_FILE = "guard.json"
TRAJECTORIES_FILE = "trajectories.parquet"
# More than an adapter has: hashing whole models after each update would cost more than it is worth.
MOST_BYTES = 4 << 30


@dataclass(frozen=True)
class Weights:
    """The weights that an update left: their policy version, and a digest of their files (empty where they are too large)."""

    version: int
    digest: str


@dataclass(frozen=True)
class Iteration:
    """One iteration: its episodes (see `episode_rows`), and its update's metrics and weights."""

    number: int
    episodes: pd.DataFrame
    metrics: Mapping[str, float]
    weights: Weights | None = None

    @functools.cached_property
    def flaws(self) -> pd.DataFrame:
        """For each kind of flaw, whether each episode has it; once for an iteration, which is examined after each later one."""
        import pandas as pd

        rows: list[Any] = self.episodes.to_dict("records")
        return pd.DataFrame({name: [has(row) for row in rows] for name, has in FLAWS.items()}, dtype=bool)


@dataclass(frozen=True)
class RunRecords:
    """The records of a run so far.

    Attributes:
        config: Its profile.
        iterations: In order.
        validations: Iteration (0 is the start of RL) to the rows of its `results.parquet`.
        start_version: Policy version that RL started from; None where it is unknown.
        tools: Whether the offered tools are known.
        families: The family of each curated task.
        guard: Records of the guard's events; None where the loop had no guard.
        split_ledger: What the curation did to the splits, and whether they leak; None where it is unknown.
        intake: What the run took in and left out (`operations.intake_record`); None where it is unknown.
        judges: Iteration to each validation task's mean reward by the rubrics `training` and `held_back`; empty without an
            `evaluation.rubric`.
    """

    config: DoctorSections
    iterations: Sequence[Iteration] = ()
    validations: Mapping[int, pd.DataFrame] = field(default_factory=dict)
    start_version: int | None = None
    tools: bool = True
    families: Mapping[str, str] = field(default_factory=dict)
    guard: Sequence[Mapping[str, Any]] | None = None
    split_ledger: Mapping[str, Any] | None = None
    intake: Mapping[str, Any] | None = None
    judges: Mapping[int, pd.DataFrame] = field(default_factory=dict)

    @functools.cached_property
    def episodes(self) -> pd.DataFrame:
        """The rows of all episodes but those that the infrastructure failed: these say nothing about the policy."""
        return self._of_the_policy([item.episodes for item in self.iterations])

    @functools.cached_property
    def flaws(self) -> pd.DataFrame:
        """For each kind of flaw, whether each of `episodes` has it."""
        return self._of_the_policy([item.flaws for item in self.iterations])

    def _of_the_policy(self, tables: list[pd.DataFrame]) -> pd.DataFrame:
        import pandas as pd

        if not tables:
            return pd.DataFrame(columns=["iteration", "stop_reason"])
        stopped = pd.concat([item.episodes["stop_reason"] for item in self.iterations], ignore_index=True)
        return pd.concat(tables, ignore_index=True)[stopped != INFRASTRUCTURE_FAILED].reset_index(drop=True)

    @property
    def trained_families(self) -> set[str]:
        """The families of the tasks that were rolled out; empty where they are unknown."""
        if self.episodes.empty:
            return set()
        return {self.families[task] for task in self.episodes["task_id"].unique() if task in self.families}

    @functools.cached_property
    def graders(self) -> list[str]:
        """Columns of `episodes` that hold a verifier's mark; empty unless an episode has marks of two verifiers."""
        marks = [str(column) for column in self.episodes.columns if str(column).startswith(GRADER)]
        judged = self.episodes[marks].notna().sum(axis=1)
        return marks if (judged > 1).any() else []

    def metric(self, name: str) -> dict[int, float]:
        """A metric of the updates by iteration; missing and non-finite values are left out."""
        values = {item.number: item.metrics.get(name) for item in self.iterations}
        return {number: float(value) for number, value in values.items() if value is not None and math.isfinite(value)}

    def count(self, column: str | pd.Series) -> dict[int, int]:
        """The sum by iteration of a column of `episodes`, or of a series along its rows."""
        series = self.episodes[column] if isinstance(column, str) else column
        return {number: int(value) for number, value in by_iteration(series.groupby(self.episodes["iteration"]).sum()).items()}

    def span(self, numbers: Sequence[int]) -> pd.DataFrame:
        """The episodes of some iterations."""
        places = [self._places[number] for number in numbers if number in self._places]
        return self.episodes.iloc[sorted(place for found in places for place in found)]

    @functools.cached_property
    def _places(self) -> Mapping[int, Any]:
        places: Any = self.episodes.groupby("iteration").indices
        return dict(places)

    def group_means(self, column: str) -> pd.Series:
        """The mean of a column over each group's episodes that have it, by `iteration` and `group`."""
        if column not in self._means:
            rows = self.episodes.dropna(subset=[column])
            self._means[column] = rows.groupby(["iteration", "group"])[column].mean()
        return self._means[column]

    @functools.cached_property
    def _means(self) -> dict[str, pd.Series]:
        return {}


def read_iteration(
    config: DoctorSections, number: int, rollouts: Sequence[Path], scores: Sequence[Path], update: Path | None
) -> Iteration:
    """Read one iteration.

    Args:
        config: The profile.
        number: The iteration's number.
        rollouts: Folders of its rollouts, each with `trajectories.parquet`.
        scores: Folders of their scores, each with `scores.parquet`.
        update: Folder of the state that the update left; None before there is one.

    Raises:
        DataError: a file is missing or cannot be read.
    """
    import pandas as pd

    tables = [pd.concat([read_table(folder / name) for folder in folders], ignore_index=True) for folders, name in (
        (rollouts, TRAJECTORIES_FILE), (scores, SCORES_FILE))]  # fmt: skip
    kind = config.environment.spec
    episodes = episode_rows(tables[0], tables[1], offered_tools(kind), number, recorded=kind.startswith(RECORDED))
    if update is None:
        return Iteration(number, episodes, {})
    return Iteration(number, episodes, _figures(read_json(update / "metrics.json")), read_weights(update))


def read_records(config: DoctorSections, record: Path, store: Path) -> RunRecords:
    """Read all stored records of a loop.

    Args:
        config: The run's profile.
        record: The folder that holds `loop.json`: one of `loops_of`.
        store: The store that its entries lie in.

    Raises:
        DataError: a file is missing or cannot be read.
    """
    loop = read_json(record / LOOP_FILE)
    iterations = [
        read_iteration(
            config,
            int(number),
            [store / name for name in entries["rollouts"]],
            [store / name for name in entries["scores"]],
            store / entries["update"],
        )
        for number, entries in sorted(loop["iterations"].items(), key=lambda item: int(item[0]))
    ]
    return RunRecords(
        config=config,
        iterations=iterations,
        validations={int(number): read_table(store / name / RESULTS_FILE) for number, name in loop["validations"].items()},
        judges=read_judges({int(number): store / name for number, name in loop["validations"].items()}),
        start_version=loop["start_version"],
        tools=offered_tools(config.environment.spec) is not None,
        families=read_families(store / loop["curated"]),
        guard=read_guard(record),
        split_ledger=read_split_ledger(store / loop["curated"]),
        intake=read_intake(record, store.parent),
    )


def read_guard(record: Path) -> list[dict[str, Any]] | None:
    """Records of the guard's events, from the folder of a loop's record; None where the loop had no guard.

    Raises:
        DataError: the file is not JSON.
    """
    path = record / GUARD_FILE
    found: list[dict[str, Any]] | None = read_json(path) if path.is_file() else None
    return found


def read_families(curated: Path) -> dict[str, str]:
    """The family of each task of a curation.

    Raises:
        DataError: its tasks cannot be read.
    """
    tasks = read_table(curated / TASKS_FILE)
    return dict(zip(tasks["id"].map(str), tasks["family"].map(str), strict=True))


def read_split_ledger(curated: Path) -> dict[str, Any] | None:
    """The ledger of splits of a curation, with whether its splits leak (`leaks`); None where it wrote none."""
    if not (curated / REPORT_FILE).is_file():
        return None
    report = read_json(curated / REPORT_FILE)
    ledger = report.get("split_ledger")
    return {**ledger, "leaks": report["leaks"]["found"]} if ledger else None


def read_weights(state: Path) -> Weights | None:
    """The weights in a state folder, of an adapter or a whole model; None where there are none."""
    for folder, info in ((state / "adapter", ADAPTER_INFO), (state / "model", MODEL_INFO)):
        files = sorted(folder.glob("*.safetensors"))
        if files and (folder / info).is_file():
            small = sum(file.stat().st_size for file in files) <= MOST_BYTES
            return Weights(int(read_json(folder / info)["version"]), "-".join(map(digest_file, files)) if small else "")
    return None


def _figures(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
