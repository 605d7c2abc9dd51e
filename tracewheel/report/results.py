"""What a run's policies reached, from its files: the rows of the table before and after, and bars by tier and family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_table
from tracewheel.core.inference import rate_interval
from tracewheel.curation.curated_folder import EPISODES_FILE, HARDER, HELD_OUT, TASKS_FILE
from tracewheel.evaluation.changes import paired_rates
from tracewheel.evaluation.paired_outcomes import COMPONENT, RESULTS_FILE, task_pass_at

if TYPE_CHECKING:
    import pandas as pd

# Policy key to its label and its short label.
LABELS = {
    "deployed": ("Deployed agent, as logged", "Deployed"),
    "base": ("Base", "Base"),
    "champion": ("Champion", "Champion"),
    "candidate": ("Candidate", "Candidate"),
    "warm_start": ("Warm start, all logs", "Warm, all"),
    "warm_start_verified": ("Warm start, verified logs", "Warm, verified"),
    "untrained": ("Base, fresh adapter", "Fresh adapter"),
    "control": ("Control, replay text alone", "Control"),
    "rl": ("After RL", "After RL"),
}
DEPLOYED, AFTER = "deployed", "rl"
TASK_COLUMNS = ["id", "split", "family", "tier"]
EVALUATION_COLUMNS = ["task_id", "greedy", "sampled_successes", "sampled_attempts"]


@dataclass(frozen=True)
class Estimate:
    """A rate, or a difference of rates, with its interval over `n` scored tasks."""

    value: float
    low: float
    high: float
    n: int
    unscored: int = 0


@dataclass(frozen=True)
class PolicyResult:
    """One row of the before-and-after table.

    Attributes:
        key: `deployed`, `base`, `warm_start`, `warm_start_verified`, `rl`, `champion` or another.
        greedy: Held-out success with greedy decoding; for the deployed agent, of its logged episodes.
        sampled: Held-out success of sampled rollouts, interval over tasks.
        pass_at: Held-out pass@k by k, of the sampled rollouts; a task with fewer than k scored ones is unscored.
        harder: As `greedy`, on the harder tier.
        gain: Paired difference of the policy after RL minus this one, held-out, greedy.
        gain_harder: The same on the harder tier.
    """

    key: str
    greedy: Estimate | None = None
    sampled: Estimate | None = None
    pass_at: Mapping[int, Estimate] = field(default_factory=dict)
    harder: Estimate | None = None
    gain: Estimate | None = None
    gain_harder: Estimate | None = None

    @property
    def label(self) -> str:
        """Its name."""
        return label_of(self.key)


@dataclass(frozen=True)
class Group:
    """A tier or a family, with each policy's greedy success in it, by policy key."""

    name: str
    n: int
    rates: Mapping[str, Estimate]


@dataclass(frozen=True)
class Results:
    """What the policies of a run reached.

    Attributes:
        policies: In the order they were made.
        groups: By heading, such as "By tier".
        n_held_out: Size of the held-out split.
        n_harder: Size of the harder tier.
    """

    policies: Sequence[PolicyResult] = ()
    groups: Mapping[str, Sequence[Group]] = field(default_factory=dict)
    n_held_out: int = 0
    n_harder: int = 0

    def policy(self, key: str) -> PolicyResult | None:
        """The row of a policy; None where it was not measured."""
        return next((row for row in self.policies if row.key == key), None)


def label_of(policy: str, short: bool = False) -> str:
    """The name of a policy on a page."""
    plain = policy.replace("_", " ").capitalize()
    return LABELS.get(policy, (plain, plain))[short]


def results_of(curated: Path, evaluations: Mapping[str, Sequence[Path]], *, pass_at: Sequence[int] = ()) -> Results:
    """Read what the policies of a run reached.

    Args:
        curated: Output of curate: the splits from its `tasks.parquet`, the deployed agent from its `episodes.parquet`.
        evaluations: Policy key to the folders of its evaluations (held-out and harder tier may share one), each with
            `results.parquet`. In the order of the table's rows.
        pass_at: The k of pass@k.

    Raises:
        DataError: a file is missing, or an evaluation holds a task that was not curated.
    """
    tasks = _tasks(curated)
    tables = {DEPLOYED: _deployed(curated, tasks)}
    tables |= {key: _results(folders, tasks) for key, folders in evaluations.items()}
    return Results(
        [_policy(key, table, tables.get(AFTER), pass_at) for key, table in tables.items()],
        _groups(tables),
        int((tasks["split"] == HELD_OUT).sum()),
        int((tasks["split"] == HARDER).sum()),
    )


def estimate_of(values: pd.Series, components: pd.Series | None = None) -> Estimate | None:
    """The mean of the values that are known with its interval; None where none is."""
    scored = values.dropna()
    if scored.empty:
        return None
    interval = rate_interval(scored, None if components is None else components[values.notna()])
    return Estimate(float(scored.mean()), *interval, n=len(scored), unscored=len(values) - len(scored))


def _tasks(curated: Path) -> pd.DataFrame:
    table = read_table(curated / TASKS_FILE)
    missing = set(TASK_COLUMNS) - set(table.columns)
    if missing:
        raise DataError(f"{curated / TASKS_FILE}: no column {', '.join(sorted(missing))}")
    own = table[COMPONENT] if COMPONENT in table else table["id"]
    return table[TASK_COLUMNS].rename(columns={"id": "task_id"}).assign(**{COMPONENT: own})


def _deployed(curated: Path, tasks: pd.DataFrame) -> pd.DataFrame:
    """The logged episodes in the form of an evaluation: `greedy` is the mean success of a task's episodes."""
    logged = read_table(curated / EPISODES_FILE, ["task_id", "success"])
    means = (logged["success"] >= 1.0).astype(float).where(logged["success"].notna()).groupby(logged["task_id"]).mean()
    table = tasks.merge(means.rename("greedy"), left_on="task_id", right_index=True)
    return table.assign(sampled_successes=0, sampled_attempts=0)


def _results(folders: Sequence[Path], tasks: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    tables = []
    for path in (folder / RESULTS_FILE for folder in folders):
        table = read_table(path)
        missing = set(EVALUATION_COLUMNS) - set(table.columns)
        if missing:
            raise DataError(f"{path}: no column {', '.join(sorted(missing))}")
        unknown = sorted(set(table["task_id"]) - set(tasks["task_id"]))
        if unknown:
            raise DataError(f"{path}: {len(unknown)} tasks were not curated; the first is {unknown[0]}")
        tables.append(table[EVALUATION_COLUMNS])
    return pd.concat(tables, ignore_index=True).drop_duplicates("task_id").merge(tasks, on="task_id")


def _policy(key: str, table: pd.DataFrame, after: pd.DataFrame | None, pass_at: Sequence[int]) -> PolicyResult:
    held_out, harder = (table[table["split"] == split] for split in (HELD_OUT, HARDER))
    sampled = held_out["sampled_successes"] / held_out["sampled_attempts"].replace(0, float("nan"))
    passed = {k: estimate_of(task_pass_at(held_out, k), held_out[COMPONENT]) for k in pass_at}
    return PolicyResult(
        key=key,
        greedy=estimate_of(held_out["greedy"], held_out[COMPONENT]),
        sampled=estimate_of(sampled, held_out[COMPONENT]),
        pass_at={k: rate for k, rate in passed.items() if rate is not None},
        harder=estimate_of(harder["greedy"], harder[COMPONENT]),
        gain=_gain(after, held_out) if key != AFTER else None,
        gain_harder=_gain(after, harder) if key != AFTER else None,
    )


def _gain(after: pd.DataFrame | None, rows: pd.DataFrame) -> Estimate | None:
    if after is None:
        return None
    found, interval = paired_rates(after, rows, "greedy")
    return Estimate(float(found.mean()), *interval, n=len(found)) if interval else None


def _groups(tables: Mapping[str, pd.DataFrame]) -> dict[str, list[Group]]:
    found = {}
    for heading, wanted, column, name in (
        ("By tier", (HELD_OUT, HARDER), "tier", "Tier {}"),
        ("By family, held-out", (HELD_OUT,), "family", "{}"),
        ("By family, harder tier", (HARDER,), "family", "{}"),
    ):
        parts = {key: table[table["split"].isin(wanted)] for key, table in tables.items()}
        values = sorted({value for table in parts.values() for value in table[column]})
        found[heading] = [
            _group(name.format(value), {key: table[table[column] == value] for key, table in parts.items()}) for value in values
        ]
    return {heading: groups for heading, groups in found.items() if groups}


def _group(name: str, tables: Mapping[str, pd.DataFrame]) -> Group:
    rates = {key: rate for key, table in tables.items() if (rate := estimate_of(table["greedy"], table[COMPONENT])) is not None}
    return Group(name, max(len(table) for table in tables.values()), rates)
