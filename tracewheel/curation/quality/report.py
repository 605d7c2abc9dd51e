"""The quality report of a curated data set: what to check before training on it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_batches, read_columns, read_json, read_table
from tracewheel.curation.curated_folder import EPISODES_FILE, QUALITY_FILE, REPORT_FILE, TASKS_FILE
from tracewheel.curation.labels import label_episodes, label_report
from tracewheel.curation.leaks import describe_leaks, leak_report
from tracewheel.curation.quality.conversations import TEXT_COLUMNS, ConversationCounts
from tracewheel.curation.quality.counts import divergence_steps, families, rates
from tracewheel.curation.quality.examples import choose_examples

if TYPE_CHECKING:
    import pandas

QUALITY_VERSION = 1
ROWS_AT_ONCE = 2000
# Parts of curation's report that this report repeats.
PASSED_ON = ("drift", "duplicates", "difficulty", "contamination", "probes", "sets")


def quality_report(curated: Path, ingested: Path | None = None, *, examples: int = 8) -> dict[str, Any]:
    """The contents of the report as JSON types. Equal data sets give equal reports.

    Args:
        curated: A folder that `curate` wrote.
        ingested: The folder of `ingest` it was made from, for counts of traces read, quarantined and redacted.
        examples: The largest number of training episodes to show.

    Returns:
        `headline`; `funnel` (steps with `name`, `unit`, `count` and the counts `lost` by reason); `outcomes` (sources, and
        rates by split, family and tier with intervals); `failures` (by kind and by detail); `families`, `tools`, `lengths`,
        `divergence`; `leaks` (`found`, `says`); `redactions`, `quarantine`, `formats`, `examples`; and curation's report on
        `PASSED_ON`. Unknown parts are None.

    Raises:
        DataError: a folder lacks a file.
    """
    report = read_json(curated / REPORT_FILE)
    tasks, (labelled, conversations) = read_table(curated / TASKS_FILE), _episodes(curated / EPISODES_FILE)
    if labelled.empty or tasks.empty:
        raise DataError(f"{curated}: has no tasks or no episodes to report on")
    read = read_json(ingested / REPORT_FILE) if ingested else {}
    of_task = tasks.set_index("id")
    labelled["family"] = labelled["task_id"].map(of_task["family"])
    labelled["tier"] = labelled["task_id"].map(of_task["tier"])
    labels = label_report(labelled)
    data: dict[str, Any] = {
        "version": QUALITY_VERSION,
        "headline": _headline(tasks, labels),
        "funnel": funnel(report, read),
        "outcomes": {
            "sources": labels["outcomes"],
            "by_split": rates(labelled, "split"),
            "by_family": rates(labelled, "family"),
            "by_tier": rates(labelled, "tier"),
        },
        "failures": {"kinds": labels["failures"], "details": _details(labelled)},
        "families": families(tasks),
        "tools": conversations.tools(),
        "lengths": conversations.lengths(),
        "divergence": {"mean": labels["mean_divergence_step"], "steps": divergence_steps(labelled)},
        "leaks": report.get("leaks") or _leaks(tasks, labelled),
        "redactions": read.get("redacted", report.get("redacted")),
        "quarantine": read.get("by_reason"),
        "formats": read.get("by_format"),
        "examples": choose_examples(labelled, tasks, examples, curated / EPISODES_FILE),
    }
    return data | {name: report.get(name) for name in PASSED_ON}


def write_quality(data: Mapping[str, Any], out: Path) -> None:
    """Write `quality.json` into the folder `out`. Its page is made from it on demand: a page is no output of a stage."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    (out / QUALITY_FILE).write_bytes(text.encode("utf-8", errors="replace") + b"\n")


def funnel(report: Mapping[str, Any], read: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The steps from the traces read to the tasks in use; steps missing from both reports are left out."""
    known: Mapping[str, Any] = report.get("funnel", {})
    dropped = dict(sorted(Counter(known.get("dropped_tasks", {}).values()).items()))
    replayed, unscored = known.get("replayed"), known.get("unscored", 0)
    put_aside = {"duplicates": read.get("duplicates", 0), **read.get("by_reason", {})}
    steps = [
        ("read", "traces", read.get("read"), {}),
        ("kept", "traces", read.get("kept", known.get("traces")), put_aside),
        ("replayed", "traces", replayed, known.get("dropped_traces", {})),
        ("scored", "traces", None if replayed is None else replayed - unscored, {"unscored": unscored}),
        ("found", "tasks", known.get("tasks"), {}),
        ("fit to be set", "tasks", None if "tasks" not in known else known["tasks"] - sum(dropped.values()), dropped),
        ("in a split", "tasks", known.get("tasks_used"), {"not needed": known.get("tasks_unused", 0)}),
    ]
    return [
        {"name": name, "unit": unit, "count": count, "lost": {reason: n for reason, n in lost.items() if n}}
        for name, unit, count, lost in steps
        if count is not None
    ]


def _episodes(path: Path) -> tuple[pandas.DataFrame, ConversationCounts]:
    """The labelled episodes without their conversations, and the counts over these.

    Labels from curation are kept. A file without labels is read whole, because labelling compares episodes.
    """
    columns, counts = read_columns(path), ConversationCounts()
    if not {"label", "outcome_source"} <= set(columns):
        labelled, _ = label_episodes(read_table(path).assign(id=lambda frame: frame["trace_id"]))
        counts.add(labelled)
        return labelled.drop(columns=["id", *TEXT_COLUMNS]), counts
    for batch in read_batches(path, ROWS_AT_ONCE, [*TEXT_COLUMNS, "label"]):
        counts.add(batch.to_pandas())
    return read_table(path, [name for name in columns if name not in TEXT_COLUMNS]), counts


def _headline(tasks: pandas.DataFrame, labels: Mapping[str, Any]) -> str:
    known = sum(count for source, count in labels["outcomes"].items() if source != "unknown")
    everything = sum(labels["outcomes"].values())
    solved = labels["mean_label"].get("verified")
    sentence = (
        f"{len(tasks):,} tasks with {everything:,} episodes, {labels['outcomes']['verified']:,} of them verified by replay"
    )
    if solved is not None:
        return f"{sentence}; the logged agent solved {100 * solved:.0f}%."
    return f"{sentence}, {known:,} with a known outcome."


def _details(labelled: pandas.DataFrame) -> dict[str, dict[str, int]]:
    """Counts of the most common details of failures, by kind."""
    failed = labelled[labelled["failure_kind"] != ""]
    counts: dict[str, Counter[str]] = {}
    for kind, detail in zip(failed["failure_kind"], failed["failure_detail"], strict=True):
        counts.setdefault(kind, Counter())[detail or "no detail"] += 1
    return {kind: dict(count.most_common(5)) for kind, count in sorted(counts.items())}


def _leaks(tasks: pandas.DataFrame, episodes: pandas.DataFrame) -> dict[str, Any]:
    leaks = leak_report(tasks, episodes)
    return {"found": bool(leaks), "says": describe_leaks(leaks)}
