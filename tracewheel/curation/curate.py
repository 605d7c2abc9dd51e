"""The stage that turns traces into tasks: replay, verify, probe, find duplicates and benchmark items, split, label."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tracewheel.config import CurateSections
from tracewheel.core.errors import DataError
from tracewheel.core.processes import OrderedMap, usable_cores
from tracewheel.core.store import PARTIAL
from tracewheel.curation.agreement import GOOD_AGREEMENT, Agreement
from tracewheel.curation.contamination import Overlap
from tracewheel.curation.curated_folder import (
    CONTAMINATION_FILE,
    DUPLICATES_FILE,
    OUTCOME_COLUMNS,
    OUTCOMES_FILE,
    REPORT_FILE,
    RESERVE,
    RESERVE_FILE,
    SPLITS,
    SPLITS_FILE,
    TASKS_FILE,
)
from tracewheel.curation.difficulty import KeptPassCounts, check_held_out_tier, pass_rates
from tracewheel.curation.duplicates import RENUMBERED, describe_duplicates
from tracewheel.curation.episode_writer import EpisodeOrder, write_episodes
from tracewheel.curation.filters import Filter
from tracewheel.curation.fitting import TOO_LARGE, component_words, describe_components, describe_counts, tried_rows
from tracewheel.curation.leaks import check_leaks, describe_leaks, linking_clusters
from tracewheel.curation.no_tasks import why_no_task, without_score
from tracewheel.curation.probes import probe_report
from tracewheel.curation.quality import quality_report, write_quality
from tracewheel.curation.quotes import splits_without_quotes, with_quotes
from tracewheel.curation.replayed_traces import Means, ReplayedTraces, replay_all
from tracewheel.curation.reuse.earlier_results import EarlierResults, NotRepeatable, silent
from tracewheel.curation.reuse.known_probes import probes_of
from tracewheel.curation.side_replay import TraceLinks
from tracewheel.curation.split_keeping import Candidates
from tracewheel.curation.split_record import SplitRecord
from tracewheel.curation.splits import components, seen_times
from tracewheel.curation.task_records import STATE_COLUMNS, TASK_COLUMNS, TaskRecords
from tracewheel.environments import check_told
from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.traces.ingested_folder import TRACES_FOLDER

if TYPE_CHECKING:
    import pandas

RATE_COLUMNS = ["attempts", "successes", "pass_rate", "posterior", "low", "high", "pass_tier"]


class Earlier(NamedTuple):
    """What earlier curations have left for this one."""

    counts: KeptPassCounts | None
    splits: SplitRecord | None


class HowTo(NamedTuple):
    """How a curation works.

    Attributes:
        processes: How many processes; by default as many as there are cores, and one for fewer than `MANY` traces.
        reuse: A folder of results of earlier curations, which this one reuses and adds to.
        say: Takes a sentence about what is reused, and what is not.
    """

    processes: int | None = None
    reuse: Path | None = None
    say: Callable[[str], None] = silent


BY_DEFAULT = HowTo()
MANY, MOST_PROCESSES = 20_000, 4  # traces for which other processes pay, and how many of these
IN_A_BENCHMARK, FILTERED = "in a benchmark", "left out by the filter"


def curate(
    config: CurateSections,
    traces: Path,
    out: Path,
    earlier: KeptPassCounts | None = None,
    splits: SplitRecord | None = None,
    how: HowTo = BY_DEFAULT,
) -> dict[str, Any]:
    """Make tasks and verified episodes from ingested traces.

    Writes into `out` (every column is in docs/datasets.md):

    - tasks.parquet: Task records with `split` (train, validation, held_out, harder) and the logged agent's pass rates.
    - episodes.parquet: the traces of these tasks with replayed `success` (NaN when unscored) and labels.
    - sets/: training sets for the later stages.
    - duplicates.parquet: clusters of duplicate traces.
    - contamination.parquet: traces that contain a benchmark item, with its file and line.
    - evidence.json, counted.parquet: successes and failures by task and the traces counted in them, for the next curation.
    - reserve.parquet: the same of the test side's tasks beyond its sets, on which the gate confirms a candidate.
    - splits.parquet: the record of splits, for the next curation.
    - outcomes.parquet: the outcome of each trace of a usable task, in a set or not, for the test of drift.
    - report.json: the returned report; `reopened` names tasks whose outcomes have changed since an earlier curation.
    - quality.json: the quality report.

    Args:
        config: `curation` and `environment` are used.
        traces: Directory that `ingest` wrote.
        out: Directory to write to.
        earlier: The pass counts of an earlier curation. Traces counted there do not count again.
        splits: The record of splits of the curation before this one. Without it the splits begin anew.
        how: How the work is done. It changes no byte of the output.

    Raises:
        DataError: no traces, too few tasks for the splits, or `curation.harder_tier` is not the tier above the hardest trained.
        LeakError: a task, user, session or duplicate is on two sides, or a prompt of the profile holds a task outside training,
            and `curation.allow_leak` is not set.
    """
    path = traces / TRACES_FOLDER
    if not path.exists():
        raise DataError(f"{path}: no ingested traces; run `tracewheel ingest` first")
    existing = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    with (
        tempfile.TemporaryDirectory(prefix=f"{PARTIAL}curate-", dir=existing) as scratch,
        OrderedMap(how.processes or _processes(config, path)) as mapped,
        EarlierResults.opened(how.reuse, config, how.say) as reuse,
    ):
        # In two steps, so that the replayed rows and the conversations are not in memory together.
        paths = (path, out, Path(scratch))
        try:
            order, report = _decide(config, paths, Earlier(earlier, splits), Means(mapped, reuse))
        except NotRepeatable as error:
            assert reuse is not None
            reuse.distrust(str(error))
            order, report = _decide(config, paths, Earlier(earlier, splits), Means(mapped))
        proves = not config.environment.kind.startswith(RECORDED)
        labels, sets = write_episodes(order, out, config.curation.sets, replay_proves=proves, mapped=mapped)
    if not config.curation.allow_leak:
        check_told(config.environment.spec, out)
    if reopened := report.get("reopened"):
        how.say(f"outcomes of {len(reopened)} tasks have changed since they were counted: their evidence is taken anew")
    report = {name: {"labels": labels, "sets": sets}.get(name, value) for name, value in report.items()}
    _write_json(out / REPORT_FILE, report)
    write_quality(quality_report(out, traces if (traces / REPORT_FILE).exists() else None), out)
    return report


def _processes(config: CurateSections, traces: Path) -> int:
    """As many processes as there are cores, if there is enough for them to do; a recorded environment is one batch."""
    import pyarrow.dataset

    if config.environment.kind.startswith(RECORDED):
        return 1
    many = pyarrow.dataset.dataset(traces, format="parquet").count_rows() >= MANY
    return min(usable_cores(), MOST_PROCESSES) if many else 1


def _decide(
    config: CurateSections, paths: tuple[Path, Path, Path], earlier: Earlier, means: Means
) -> tuple[EpisodeOrder, dict[str, Any]]:
    """Write all files except episodes and sets. Returns the order of the episodes, and the report without their part.

    Args:
        paths: The traces, the folder to write to, and one for working files.
    """
    traces, out, scratch = paths
    with replay_all(traces, config.environment.spec, config.curation, scratch, means) as replayed:
        curation = _Curation(config, replayed, earlier, means)
        try:
            return curation.write(out, scratch, traces)
        except DataError as error:
            # Episodes that disagree with their log are unscored, so what is missing is missing for that reason first.
            drift = Agreement.of(curation.usable, replayed.difference).drifts(GOOD_AGREEMENT)
            if not drift:
                raise
            raise DataError(f"{drift}. Such episodes stay unscored; hence: {error}") from error


class _Curation:
    """The decisions on the rows of all traces: which tasks to keep, their splits, and the order of their episodes."""

    def __init__(self, config: CurateSections, replayed: ReplayedTraces, earlier: Earlier, means: Means) -> None:
        self.config, self.replayed, self.earlier_splits = config.curation, replayed, earlier.splits
        self.kind = config.environment.kind
        dropped = replayed.rows["dropped"] != ""
        self.usable = replayed.rows[~dropped] if dropped.any() else replayed.rows
        self.probes = probes_of(replayed.tasks, replayed.solutions, means.mapped, means.reuse)
        if means.reuse:
            means.reuse.keep(whole=True)
        episodes = self.usable[["id", "task_id", "success"]]
        self.rates, self.kept_counts = pass_rates(episodes, earlier.counts)
        self.reopened = sorted(earlier.counts.reopened(episodes)) if earlier.counts else []

    def write(self, out: Path, scratch: Path, path: Path) -> tuple[EpisodeOrder, dict[str, Any]]:
        import numpy as np
        import pandas

        dropped = {task_id: probe.verdict for task_id, probe in sorted(self.probes.items()) if not probe.valid}
        dropped |= {task_id: IN_A_BENCHMARK for task_id in self._in_benchmarks() if task_id not in dropped}
        kept = [task_id for task_id in sorted(self.probes) if task_id not in dropped]
        if not kept:
            raise DataError(f"{path}: {why_no_task(path, self.replayed, self.probes, self.kind)}")
        tasks = self._tasks(kept)
        wanted = Filter(self.config.filter)
        clauses, keeps = wanted.dry_run(tasks), wanted.keep(tasks)
        dropped |= dict.fromkeys(tasks.loc[~keeps, "id"], FILTERED)
        usable, tasks = tasks.drop(columns=RATE_COLUMNS), tasks[keeps].reset_index(drop=True)
        tried = tried_rows(self.usable).groupby(self.usable["task_id"]).sum()
        candidates = Candidates(usable, tasks.assign(attempts=tasks["id"].map(tried).astype(int)))
        clusters = self.replayed.clusters
        assert clusters is not None
        linking = linking_clusters(clusters, self.config.duplicates)
        parts = describe_components(tasks, self.usable, linking)
        try:
            splits, quotes = splits_without_quotes(self._links(), candidates, self.config, self.earlier_splits, self.replayed)
        except DataError as error:
            large = (parts["largest"]["share"] or 0) > TOO_LARGE
            raise DataError(f"{error}; {component_words(parts)}" if large else str(error)) from error
        dropped |= quotes
        tasks["split"] = splits.split.reindex(tasks.index).fillna("")
        check_held_out_tier(tasks)
        timeless = tasks.drop(columns=["first_seen", "last_seen"])
        in_use = timeless[tasks["split"] != ""]
        in_use = self._with_states(in_use.sort_values(["split", "id"], key=_split_order).reset_index(drop=True))
        reserve = timeless.set_index("id").loc[splits.reserve].reset_index().assign(split=RESERVE)
        episodes = self._episodes(in_use)
        leaks = check_leaks(
            in_use, episodes.rename(columns={"id": "trace_id"}), linking, splits.record, allow=self.config.allow_leak
        )

        out.mkdir(parents=True, exist_ok=True)
        in_use.to_parquet(out / TASKS_FILE, index=False)
        reserve = self._with_states(reserve)
        reserve.to_parquet(out / RESERVE_FILE, index=False)
        clusters.to_parquet(out / DUPLICATES_FILE, index=False)
        pandas.DataFrame(self.replayed.overlaps, columns=list(Overlap._fields)).to_parquet(
            out / CONTAMINATION_FILE, index=False
        )
        # Those that are in no file of outcomes are counted anew when they come back: nothing would show another change.
        self.kept_counts.without(set(self.reopened) - set(tasks["id"])).write(out)
        splits.record.write(out / SPLITS_FILE)
        self._outcomes(tasks).to_parquet(out / OUTCOMES_FILE, index=False)
        report = {
            "agreement": Agreement.of(self.usable, self.replayed.difference).to_record(),
            "funnel": self._funnel(path, dropped, tasks, in_use),
            **({"versions": self.replayed.versions} if self.replayed.versions else {}),
            "drift": {
                "logged_rewards": int(self.usable["outcome"].notna().sum()),
                "reward": int(self.usable["reward_drift"].sum()),
                "observations": int(self.usable["observation_drift"].sum()),
            },
            **({"reopened": self.reopened} if self.reopened else {}),
            "faults": _faults(self.usable, self.replayed.tasks.families),
            "probes": probe_report(self.probes),
            "duplicates": describe_duplicates(clusters),
            "contamination": _contamination(self.replayed.overlaps),
            "filter": clauses,
            "counts": self._counts(in_use, splits.fitted, parts),
            "components": parts,
            "leaks": {"found": bool(leaks), "says": describe_leaks(leaks)},
            "labels": {},
            "sets": {},
            "splits": {split: _describe_split(in_use[in_use["split"] == split]) for split in SPLITS},
            "split_ledger": with_quotes(splits.ledger, quotes),
            "deployed": {split: _deployed(episodes[episodes["split"] == split], self.replayed.tasks) for split in SPLITS},
        }
        ranks = np.full(len(self.replayed.rows), -1, dtype=np.int64)
        ranks[episodes["row"].to_numpy()] = np.arange(len(episodes))
        together = self.replayed.rows["task_id"].factorize()[0]
        known = pandas.concat([in_use, reserve], ignore_index=True)
        return EpisodeOrder(self.replayed.file, ranks, together, known, scratch / "buckets"), report

    def _in_benchmarks(self) -> list[str]:
        """Tasks with a trace that contains a benchmark item."""
        held = {overlap.trace_id for overlap in self.replayed.overlaps}
        return sorted(set(self.usable.loc[self.usable["id"].isin(held), "task_id"]))

    def _tasks(self, kept: list[str]) -> pandas.DataFrame:
        """Task records without `STATE_COLUMNS`, with pass rates, times of the first and last episode, and `component`."""
        tasks = self.replayed.tasks.frame(kept, [name for name in TASK_COLUMNS if name not in STATE_COLUMNS])
        rates = self.rates.set_index("task_id")[RATE_COLUMNS]
        tasks = tasks.join(rates, on="id").join(seen_times(self.usable), on="id")
        links = components(self.usable, self.replayed.clusters, self.config.duplicates.link)
        return tasks.assign(component=tasks["id"].map(links))

    def _links(self) -> TraceLinks:
        """What identifies the component of each usable trace."""
        link, keys = self.config.duplicates.link, self.replayed.copy_keys
        assert keys is not None
        rows = (
            self.usable.assign(copy=self.usable["id"].map(keys[~keys.index.duplicated()]))
            if RENUMBERED in link
            else self.usable
        )
        return TraceLinks.of(rows, self.replayed.clusters, link)

    def _with_states(self, in_use: pandas.DataFrame) -> pandas.DataFrame:
        """The tasks in use with `STATE_COLUMNS`, in the column order of a task's record."""
        states = self.replayed.tasks.frame(in_use["id"], STATE_COLUMNS)
        whole = in_use.assign(**{name: states[name] for name in STATE_COLUMNS})
        return whole[[*TASK_COLUMNS, *(name for name in in_use if name not in TASK_COLUMNS)]]

    def _episodes(self, in_use: pandas.DataFrame) -> pandas.DataFrame:
        """The rows of these tasks' traces in the order to write, with `split` and their `row` in the replayed file."""
        rows = self.usable.reset_index(names="row")
        found = rows.merge(in_use[["id", "split"]].rename(columns={"id": "task_id"}), on="task_id")
        return found.sort_values(["split", "task_id", "id"], key=_split_order).reset_index(drop=True)

    def _outcomes(self, tasks: pandas.DataFrame) -> pandas.DataFrame:
        """The outcome of each trace of these tasks, in the order of the log."""
        rows = self.usable[self.usable["task_id"].isin(tasks["id"])]
        rows = rows.assign(trace_id=rows["id"], family=rows["task_id"].map(self.replayed.tasks.families))
        return rows[list(OUTCOME_COLUMNS)]

    def _counts(self, in_use: pandas.DataFrame, fitted: dict[str, int], parts: dict[str, Any]) -> dict[str, Any]:
        """The sizes of the sets beside those asked for, and what the logs lack."""
        sizes = {split: int((in_use["split"] == split).sum()) for split in SPLITS}
        counts = describe_counts(self.config, sizes, fitted)
        if counts["says"] and parts["largest"]["share"] > TOO_LARGE:
            counts["says"].append(component_words(parts))
        return counts

    def _funnel(
        self, traces: Path, dropped: dict[str, str], tasks: pandas.DataFrame, in_use: pandas.DataFrame
    ) -> dict[str, Any]:
        rows = self.replayed.rows
        recorded = self.replayed.recorded
        return {
            "traces": len(rows) if recorded is None else sum(recorded["traces"].values()),
            **({} if recorded is None else {"recorded": recorded}),
            **({"superseded": self.replayed.superseded} if self.replayed.superseded else {}),
            "dropped_traces": dict(sorted(Counter(rows.loc[rows["dropped"] != "", "dropped"]).items())),
            "replayed": len(self.usable),
            "unscored": int(self.usable["success"].isna().sum()),
            **({"unscored_for": why} if (why := without_score(traces, self.usable)) else {}),
            "tasks": len(self.replayed.tasks),
            "dropped_tasks": dropped,
            "tasks_unused": int((tasks["split"] == "").sum()),
            "tasks_used": len(in_use),
        }


def _split_order(column: pandas.Series) -> pandas.Series:
    return column.map(SPLITS.index) if column.name == "split" else column


def _faults(usable: pandas.DataFrame, families: dict[str, str]) -> dict[str, dict[str, int]]:
    """Counts of each fault, in total and by family."""
    failed = usable[usable["failure"] != ""]
    counts: dict[str, Counter[str]] = {"all": Counter(failed["failure"])}
    for task_id, failure in zip(failed["task_id"], failed["failure"], strict=True):
        counts.setdefault(families[task_id], Counter())[failure] += 1
    return {name: dict(sorted(count.items())) for name, count in sorted(counts.items())}


def _contamination(overlaps: list[Overlap]) -> dict[str, Any]:
    return {
        "traces": len({overlap.trace_id for overlap in overlaps}),
        "items": len({(overlap.file, overlap.line) for overlap in overlaps}),
        "by_file": dict(sorted(Counter(overlap.file for overlap in overlaps).items())),
    }


def _describe_split(tasks: pandas.DataFrame) -> dict[str, Any]:
    return {
        "tasks": len(tasks),
        "families": {name: int(n) for name, n in sorted(Counter(tasks["family"]).items())},
        "tiers": {str(tier): int(n) for tier, n in sorted(Counter(tasks["tier"]).items())},
        "tasks_never_solved": int(((tasks["successes"] == 0) & (tasks["attempts"] > 0)).sum()),
    }


def _deployed(episodes: pandas.DataFrame, tasks: TaskRecords) -> dict[str, Any]:
    """The logged agent's replayed success over scored episodes; None where there are none."""
    scored = episodes[episodes["success"].notna()]
    solved = (scored["success"] >= 1.0).astype(float)
    families, tiers = scored["task_id"].map(tasks.families), scored["task_id"].map(tasks.tiers).astype(str)
    return {
        "episodes": len(episodes),
        "unscored": len(episodes) - len(scored),
        "success": float(solved.mean()) if len(scored) else None,
        "families": {str(name): float(rate) for name, rate in solved.groupby(families).mean().items()},
        "tiers": {str(name): float(rate) for name, rate in solved.groupby(tiers).mean().items()},
    }


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
