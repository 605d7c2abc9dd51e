"""Reading what the report of a run shows from the run's files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import RetrainConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_table
from tracewheel.core.statistics import paired_difference, pass_at_k, rate_interval
from tracewheel.curation.curated_folder import EPISODES_FILE, TASKS_FILE
from tracewheel.operations.intake_record import sentences
from tracewheel.report.both_rubrics import rubric_curves, rubrics_of
from tracewheel.report.curves import training_curves
from tracewheel.report.doctor.finding import Finding
from tracewheel.report.examples import choose_examples
from tracewheel.report.report_data import Aim, Changed, Cost, Episode, Estimate, Group, PolicyResult, ReportData

if TYPE_CHECKING:
    import pandas as pd

# Policy key to its label and its short label.
LABELS = {
    "deployed": ("Deployed agent, as logged", "Deployed"),
    "base": ("Base", "Base"),
    "champion": ("Champion", "Champion"),
    "warm_start": ("Warm start, all logs", "Warm, all"),
    "warm_start_verified": ("Warm start, verified logs", "Warm, verified"),
    "untrained": ("Base, fresh adapter", "Fresh adapter"),
    "control": ("Control, replay text alone", "Control"),
    "rl": ("After RL", "After RL"),
}
# The policies that the viewer compares at first.
BEFORE, AFTER = "warm_start", "rl"
MOST_EXAMPLES = 80
EVALUATION_COLUMNS = ["task_id", "greedy", "sampled_successes", "sampled_attempts"]


@dataclass(frozen=True)
class RunResults:
    """What a finished run left for its report.

    Attributes:
        summary: What `tracewheel retrain` prints: `run_id`, `gate`, `seconds` by stage, and where there are any:
            `name`, `tokens` by stage, `cached` (reused stages), `adapter` or `model`, `mlflow_run`, `pareto`, `leaks`,
            `noise_floor`,
            `splits` (the ledger of splits).
        config: The run's profile.
        curated: Output of curate: the splits from its `tasks.parquet`, the deployed agent from its `episodes.parquet`.
        evaluations: Policy key to the folders of its evaluations (held-out and harder tier may share one), each with
            `results.parquet` and `greedy/{trajectories,scores}.parquet`. In the order of the table's rows.
        updates: Iteration to the metrics of its update.
        validation: Iteration (0 is the start of RL) to `greedy`, `sampled` and other named rates on the validation
            split; names with "harder" in them get their own chart.
        best_iteration: The chosen iteration.
        lineage: Heading to name to value.
        findings: The doctor's findings.
        changes: The tasks that the gate's comparison gained and lost; see `evaluation.changes.changed_tasks`.
        audit: What the audit of its graders found; empty without one.
        validations: Iteration to the folder of its evaluation on the validation split, for a rubric that is held back.
        store: Path of the store that holds the evaluations, from the folder of the page; for links.
    """

    summary: Mapping[str, Any]
    config: RetrainConfig
    curated: Path
    evaluations: Mapping[str, Sequence[Path]]
    updates: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    validation: Mapping[int, Mapping[str, float | None]] = field(default_factory=dict)
    best_iteration: int | None = None
    lineage: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    changes: Sequence[Mapping[str, Any]] = ()
    audit: Mapping[str, Any] = field(default_factory=dict)
    validations: Mapping[int, Path] = field(default_factory=dict)
    store: str = ""


def load_report_data(run: RunResults) -> ReportData:
    """Read what the report of a run shows.

    Raises:
        DataError: a file is missing, or an evaluation holds a task that was not curated.
    """
    summary, config = run.summary, run.config
    tasks = _tasks(run.curated)
    results = {"deployed": _deployed(run.curated, tasks)}
    results |= {key: _results(directories, tasks) for key, directories in run.evaluations.items()}
    pass_at = tuple(config.evaluation.pass_at)
    policies = [_policy(key, table, results.get(AFTER), pass_at, config.seed) for key, table in results.items()]
    after = next((row for row in policies if row.key == AFTER), None)
    before = BEFORE if BEFORE in run.evaluations else next(iter(run.evaluations), BEFORE)
    episodes = {key: _episodes(directories) for key, directories in run.evaluations.items()}
    comparisons = choose_examples(tasks, episodes, before, AFTER, MOST_EXAMPLES, pinned(run.changes))
    viewed = {item.task_id for item in comparisons}
    prompts = dict(zip(tasks["task_id"], tasks["prompt"].map(str), strict=True))
    curves = training_curves(run.updates, run.validation, run.best_iteration)
    return ReportData(
        run_id=str(summary.get("run_id", "")),
        name=str(summary.get("name") or config.name),
        gate=summary.get("gate") or {},
        policies=policies,
        groups=_groups(results),
        curves=[*curves[:1], *rubric_curves(run.validations), *curves[1:]],
        aims=_aims(config.aims.harder, after),
        costs=_costs(summary),
        comparisons=comparisons,
        before=before,
        after=AFTER,
        n_held_out=int((tasks["split"] == "held_out").sum()),
        n_harder=int((tasks["split"] == "harder").sum()),
        pareto=summary.get("pareto", ()),
        links={
            label: str(summary[key])
            for key, label in (("adapter", "Adapter"), ("model", "Model"), ("mlflow_run", "MLflow run"))
            if summary.get(key)
        },
        lineage=run.lineage,
        config=config.model_dump(mode="json"),
        findings=run.findings,
        audit=run.audit,
        leaks=str(summary.get("leaks", "")),
        noise=summary.get("noise_floor") or {},
        floor=summary.get("constant_policy") or {},
        changes=[Changed(row, prompts.get(row["task_id"], ""), row["task_id"] in viewed, run.store) for row in run.changes],
        worth=str((summary.get("worth") or {}).get("says", "")),
        splits=" ".join((summary.get(name) or {}).get("says", "") for name in ("splits", "held_out_shared")).strip(),
        rubrics=[
            both
            for key, folders in run.evaluations.items()
            if (both := rubrics_of(key, folders, set(tasks.loc[tasks["split"] == "held_out", "task_id"]), config.seed))
        ],
        intake=sentences(summary["intake"]) if summary.get("intake") else (),
    )


def pinned(changes: Sequence[Mapping[str, Any]]) -> list[str]:
    """The changed tasks that the viewer shows in any case: the lost ones first, and room is left for other outcomes."""
    return [str(row["task_id"]) for row in changes][: MOST_EXAMPLES * 3 // 4]


def _costs(summary: Mapping[str, Any]) -> list[Cost]:
    seconds, tokens, cached = summary.get("seconds", {}), summary.get("tokens", {}), set(summary.get("cached", ()))
    return [Cost(stage, seconds.get(stage), tokens.get(stage), stage in cached) for stage in dict.fromkeys([*seconds, *tokens])]


def _aims(harder: float | None, after: PolicyResult | None) -> list[Aim]:
    if harder is None or after is None or after.harder is None:
        return []
    return [Aim("harder-tier success, greedy", harder, after.harder)]


def _tasks(curated: Path) -> pd.DataFrame:
    columns = ["id", "split", "family", "tier", "prompt", "initial_state"]
    table = read_table(curated / TASKS_FILE)
    missing = set(columns) - set(table.columns)
    if missing:
        raise DataError(f"{curated / TASKS_FILE}: no column {', '.join(sorted(missing))}")
    return table[columns].rename(columns={"id": "task_id"})


def _deployed(curated: Path, tasks: pd.DataFrame) -> pd.DataFrame:
    """The logged episodes in the form of an evaluation: `greedy` is the mean success of a task's episodes."""
    logged = read_table(curated / EPISODES_FILE)
    means = (logged["success"] >= 1.0).astype(float).where(logged["success"].notna()).groupby(logged["task_id"]).mean()
    table = tasks.merge(means.rename("greedy"), left_on="task_id", right_index=True)
    return table.assign(sampled_successes=0, sampled_attempts=0)


def _results(directories: Sequence[Path], tasks: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    tables = []
    for directory in directories:
        path = directory / "results.parquet"
        table = read_table(path)
        missing = set(EVALUATION_COLUMNS) - set(table.columns)
        if missing:
            raise DataError(f"{path}: no column {', '.join(sorted(missing))}")
        unknown = sorted(set(table["task_id"]) - set(tasks["task_id"]))
        if unknown:
            raise DataError(f"{path}: {len(unknown)} tasks were not curated; the first is {unknown[0]}")
        tables.append(table[EVALUATION_COLUMNS])
    return pd.concat(tables, ignore_index=True).drop_duplicates("task_id").merge(tasks, on="task_id")


def _policy(key: str, table: pd.DataFrame, after: pd.DataFrame | None, pass_at: tuple[int, ...], seed: int) -> PolicyResult:
    held_out, harder = table[table["split"] == "held_out"], table[table["split"] == "harder"]
    tried = held_out[held_out["sampled_attempts"] > 0]
    plain_name = key.replace("_", " ").capitalize()
    label, short = LABELS.get(key, (plain_name, plain_name))
    return PolicyResult(
        key=key,
        label=label,
        short=short,
        greedy=_estimate(held_out["greedy"], seed),
        sampled=_estimate(held_out["sampled_successes"] / held_out["sampled_attempts"].replace(0, float("nan")), seed),
        pass_at={k: rate for k in pass_at if (rate := _mean_pass_at(tried, k)) is not None},
        harder=_estimate(harder["greedy"], seed),
        gain=_gain(after, held_out, "held_out", seed) if key != AFTER else None,
        gain_harder=_gain(after, harder, "harder", seed) if key != AFTER else None,
    )


def _estimate(values: pd.Series, seed: int) -> Estimate | None:
    scored = values.dropna()
    if scored.empty:
        return None
    interval = rate_interval(scored.to_numpy(), seed=seed)
    return Estimate(float(scored.mean()), *interval, n=len(scored), unscored=len(values) - len(scored))


def _mean_pass_at(tried: pd.DataFrame, k: int) -> float | None:
    enough = tried[tried["sampled_attempts"] >= k]
    if enough.empty:
        return None
    pairs = zip(enough["sampled_attempts"], enough["sampled_successes"], strict=True)
    return sum(pass_at_k(int(n), int(correct), k) for n, correct in pairs) / len(enough)


def _gain(after: pd.DataFrame | None, rows: pd.DataFrame, split: str, seed: int) -> Estimate | None:
    if after is None:
        return None
    both = after.loc[after["split"] == split, ["task_id", "greedy"]].merge(rows[["task_id", "greedy"]], on="task_id")
    both = both.dropna().sort_values("task_id")
    if both.empty:
        return None
    difference, interval = paired_difference(both["greedy_x"].to_numpy(), both["greedy_y"].to_numpy(), seed=seed)
    return Estimate(difference, *interval, n=len(both))


def _groups(results: Mapping[str, pd.DataFrame]) -> dict[str, list[Group]]:
    splits = {
        "By tier": (("held_out", "harder"), "tier", "Tier {}"),
        "By family, held-out": (("held_out",), "family", "{}"),
        "By family, harder tier": (("harder",), "family", "{}"),
    }
    groups = {}
    for heading, (wanted, column, name) in splits.items():
        tables = {key: table[table["split"].isin(wanted)] for key, table in results.items()}
        values = sorted({value for table in tables.values() for value in table[column]})
        groups[heading] = [
            _group(name.format(value), {k: t[t[column] == value] for k, t in tables.items()}) for value in values
        ]
    return {heading: found for heading, found in groups.items() if found}


def _group(name: str, tables: Mapping[str, pd.DataFrame]) -> Group:
    rates = {key: rate for key, table in tables.items() if (rate := _estimate(table["greedy"], seed=0)) is not None}
    return Group(name, max(len(table) for table in tables.values()), rates)


def _episodes(directories: Sequence[Path]) -> dict[str, Episode]:
    """The greedy episode of each task, by task id."""
    episodes = {}
    for directory in directories:
        rollouts = read_table(directory / "greedy" / "trajectories.parquet")
        scores = read_table(directory / "greedy" / "scores.parquet").set_index("trajectory_id")
        for row in rollouts.to_dict("records"):
            if row["id"] not in scores.index:
                raise DataError(f"{directory / 'greedy' / 'scores.parquet'}: no score of trajectory {row['id']}")
            score = scores.loc[row["id"]]
            scored = score["status"] == "scored"
            episodes[str(row["task_id"])] = Episode(
                messages=json.loads(row["messages"]),
                stop_reason=str(row["stop_reason"]),
                status=str(score["status"]),
                total=float(score["total"]) if scored else None,
                breakdown=json.loads(score["breakdown"]),
                final_state=json.loads(row["final_state"]),
                detail=str(score["detail"]),
            )
    return episodes
