"""The quality report of a curated data set: what to check before training on it."""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_batches, read_columns, read_json, read_table
from tracewheel.core.inference import rate_interval
from tracewheel.curation.curated_folder import EPISODES_FILE, QUALITY_FILE, REPORT_FILE, SPLITS, TASKS_FILE, TRAIN
from tracewheel.curation.labels import label_episodes, label_report
from tracewheel.curation.leaks import describe_leaks, leak_report
from tracewheel.environments.recorded.calls import calls_in, is_error

if TYPE_CHECKING:
    import pandas


QUALITY_VERSION = 1
ROWS_AT_ONCE = 2000
# Parts of curation's report that this report repeats.
PASSED_ON = ("drift", "duplicates", "difficulty", "contamination", "probes", "sets")

TEXT_COLUMNS = ("messages", "tools")

LONGEST_TEXT, MOST_MESSAGES = 600, 40


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
    recorded, superseded = known.get("recorded") or {}, known.get("superseded", 0)
    unfit = {"a longer version is there": superseded, **known.get("dropped_traces", {})}
    if recorded.get("by") == "episode":  # by turn these are user messages
        unfit |= recorded["left_out"]
    steps = [
        ("read", "traces", read.get("read"), {}),
        ("kept", "traces", read.get("kept", known.get("traces")), put_aside),
        ("replayed", "traces", replayed, unfit),
        ("scored", "traces", None if replayed is None else replayed - unscored, {"unscored": unscored}),
        ("found", "tasks", known.get("tasks"), {}),
        ("fit to be set", "tasks", None if "tasks" not in known else known["tasks"] - sum(dropped.values()), dropped),
        ("in a split", "tasks", known.get("tasks_used"), {"not needed": known.get("tasks_unused", 0)}),
    ]
    return [_step(name, unit, count, lost) for name, unit, count, lost in steps if count is not None]


def run_funnel(report: Mapping[str, Any], intake: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What became of all that a run took in, down to its demonstrations: the steps of `funnel` and what is around them.

    Args:
        report: Curation's report; empty before it.
        intake: The run's intake (`operations/intake_record.py`); empty where there is none.

    Returns:
        As `funnel`, with `of` where counts are known by kind: whose word the outcome of a trace is.
    """
    steps = funnel(report, intake)
    if held := intake.get("held"):
        steps.insert(0, _step("in the logs", "records", intake["found"], {"held back from training": held}))
    said = (intake.get("outcomes") or {}).get("known")
    for step in steps:
        if said and step["name"] == "kept":
            step["of"] = {name: count for name, count in said.items() if count}
    if labels := (report.get("labels") or {}).get("outcomes"):
        of_source = {name: count for name, count in labels.items() if count}
        steps.append(_step("of these tasks", "episodes", sum(labels.values()), {}) | {"of": of_source})
    if rows := (report.get("sets") or {}).get("rows"):
        steps.append(_step("to imitate", "demonstrations", rows["demonstrations"], report["sets"].get("left_out", {})))
    return steps


def _step(name: str, unit: str, count: int, lost: Mapping[str, int]) -> dict[str, Any]:
    return {"name": name, "unit": unit, "count": count, "lost": {reason: n for reason, n in lost.items() if n}}


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


class ConversationCounts:
    """Tools and lengths, counted over batches of episodes."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._called: Counter[str] = Counter()
        self._offered: Counter[str] = Counter()
        self._known: Counter[str] = Counter()
        self._solved: Counter[str] = Counter()
        self._lengths: dict[str, list[int]] = {"messages": [], "calls": [], "characters": []}

    def add(self, episodes: pandas.DataFrame) -> None:
        """Count episodes with `messages`, `tools` (JSON text) and `label` (NaN where unknown)."""
        columns = (episodes[name] for name in (*TEXT_COLUMNS, "label"))
        for text, tools, label in zip(*columns, strict=True):
            messages = json.loads(text)
            made = calls_in(messages)
            names = {call.name for call in made}
            self._offered.update(_names(tools))
            self._calls.update(call.name for call in made)
            self._errors.update(call.name for call in made if call.reply is not None and is_error(call.reply))
            self._called.update(names)
            if not math.isnan(label):
                self._known.update(names)
                self._solved.update(names if label >= 1.0 else ())
            for what, length in (("messages", len(messages)), ("calls", len(made)), ("characters", len(text))):
                self._lengths[what].append(length)

    def tools(self) -> list[dict[str, Any]]:
        """Each tool, the most called first: `calls`, `episodes` that call it or where it was `offered`, `errors`, `success`.

        The success is that of the episodes that call it and have a known label, None where there are none.
        """
        return [
            {
                "name": name,
                "calls": self._calls[name],
                "episodes": self._called[name],
                "offered": self._offered[name],
                "errors": self._errors[name],
                "success": self._solved[name] / self._known[name] if self._known[name] else None,
            }
            for name in sorted(self._calls.keys() | self._offered.keys(), key=lambda name: (-self._calls[name], name))
        ]

    def lengths(self) -> dict[str, dict[str, Any]]:
        """Lengths of episodes in messages, calls and characters, each as a `histogram`."""
        return {what: histogram(lengths) for what, lengths in self._lengths.items()}


@functools.lru_cache(maxsize=256)
def _names(tools: str) -> frozenset[str]:
    return frozenset(tool["function"]["name"] for tool in json.loads(tools))


def choose_examples(labelled: pandas.DataFrame, tasks: pandas.DataFrame, limit: int, episodes: Path) -> list[dict[str, Any]]:
    """Up to `limit` episodes of the training split, taken in turn from each failure kind and the successes, in order of ids.

    Failures with a known divergence come first within their kind.

    Args:
        labelled: Episodes with labels.
        tasks: Task records.
        limit: The largest number of examples.
        episodes: The file with their conversations.
    """
    import pyarrow.dataset

    training = labelled[labelled["split"] == TRAIN]
    prompts = dict(zip(tasks["id"], tasks["prompt"], strict=True))
    known = training[training["label"].notna()].assign(unlike=lambda frame: frame["diverges_at"].isna())
    ordered = known.sort_values(["unlike", "trace_id"])
    kinds = [group.head(limit).to_dict("records") for _, group in ordered.groupby("failure_kind")]
    chosen = list(_in_turn(kinds))[:limit]
    if not chosen:
        return []
    wanted = pyarrow.dataset.field("trace_id").isin([row["trace_id"] for row in chosen])
    found = pyarrow.dataset.dataset(episodes, format="parquet").to_table(columns=["trace_id", "messages"], filter=wanted)
    said = dict(zip(*(found[name].to_pylist() for name in ("trace_id", "messages")), strict=True))
    return [_example(row, said[row["trace_id"]], prompts) for row in chosen]


def _in_turn(groups: Sequence[Sequence[dict[Any, Any]]]) -> Iterator[dict[Any, Any]]:
    for place in range(max(map(len, groups), default=0)):
        yield from (group[place] for group in groups if place < len(group))


def _example(row: dict[Any, Any], said: str, prompts: dict[str, str]) -> dict[str, Any]:
    messages = json.loads(said)
    parts = row["diverges_message"] if row["diverges_message"] == row["diverges_message"] else None
    at = None if parts is None or str(parts) == "<NA>" else int(parts)
    return {
        "trace": row["trace_id"],
        "task": row["task_id"],
        "prompt": prompts.get(row["task_id"], "")[:LONGEST_TEXT],
        "label": float(row["label"]),
        "source": row["outcome_source"],
        "failure_kind": row["failure_kind"],
        "failure_detail": row["failure_detail"],
        "diverges_message": at,
        "diverges_from": row["diverges_from"] or None,
        "left_out": max(0, len(messages) - MOST_MESSAGES),
        "messages": [_shown(message) for message in messages[:MOST_MESSAGES]],
    }


def _shown(message: dict[str, Any]) -> dict[str, Any]:
    calls = [call["function"] for call in message.get("tool_calls") or []]
    return {
        "role": message["role"],
        "text": _short(message.get("content") or ""),
        "calls": [{"name": call["name"], "arguments": _short(str(call["arguments"]))} for call in calls],
    }


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({len(text) - LONGEST_TEXT:,} characters more)"


BINS = 12


def rates(labelled: pandas.DataFrame, by: str) -> list[dict[str, Any]]:
    """Success of the logged agent in each group: `name`, `episodes`, `unknown`, `tasks`, `rate`, `low`, `high`.

    A rate is the mean over tasks of each task's mean label, with a 95% interval over tasks, because the attempts
    at one task are not independent. It is None where no label is known.
    """
    rows = []
    order = {name: index for index, name in enumerate(SPLITS)}
    groups = [(name, group) for name, group in labelled.groupby(by)]
    for name, group in sorted(groups, key=lambda pair: (order.get(str(pair[0]), len(order)), pair[0])):
        known = group[group["label"].notna()]
        means = (known["label"] >= 1.0).groupby(known["task_id"]).mean()
        interval = rate_interval(means) if len(means) else None
        rows.append(
            {
                "name": str(name),
                "episodes": len(group),
                "unknown": len(group) - len(known),
                "tasks": int(group["task_id"].nunique()),
                "rate": float(means.mean()) if len(means) else None,
                "low": interval.low if interval else None,
                "high": interval.high if interval else None,
            }
        )
    return rows


def families(tasks: pandas.DataFrame) -> list[dict[str, Any]]:
    """Tasks of each family: in all, by split, by tier, and how many no logged attempt solved."""
    rows = []
    for name, group in tasks.groupby("family"):
        rows.append(
            {
                "name": str(name),
                "tasks": len(group),
                "splits": {split: int((group["split"] == split).sum()) for split in SPLITS},
                "tiers": {str(tier): int(count) for tier, count in sorted(Counter(group["tier"]).items())},
                "never_solved": int((group["successes"] == 0).sum()) if "successes" in group else None,
            }
        )
    return rows


def divergence_steps(labelled: pandas.DataFrame) -> dict[str, Any] | None:
    """Numbers of calls before failures diverge from a success; None where no failure was compared."""
    steps = [int(step) for step in labelled["diverges_at"].dropna()]
    return histogram(steps) if steps else None


def histogram(values: Sequence[int]) -> dict[str, Any]:
    """Counts in at most `BINS` bins of equal whole width: `start`, `width`, `counts`, and four figures.

    Bin i holds values in [start + i * width, start + (i + 1) * width).
    """
    ordered = sorted(values)
    start, end = ordered[0], ordered[-1]
    width = max(1, math.ceil((end - start + 1) / BINS))
    counts = [0] * ((end - start) // width + 1)
    for value in ordered:
        counts[(value - start) // width] += 1
    return {
        "start": start,
        "width": width,
        "counts": counts,
        "least": start,
        "median": ordered[len(ordered) // 2],
        "ninth_decile": ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)],
        "most": end,
    }
