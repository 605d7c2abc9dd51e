"""Traces and curation: what came in, what was left out and why, and what the tasks are like."""

from __future__ import annotations

import base64
import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.curation.curated_folder import QUALITY_FILE, REPORT_FILE, TASKS_FILE
from tracewheel.curation.quality import histogram
from tracewheel.dashboard.duck import select
from tracewheel.dashboard.view import Ask, Tab, page
from tracewheel.operations.intake_record import INTAKE_FILE
from tracewheel.report.finished_run import FinishedRun
from tracewheel.traces import ingested_folder
from tracewheel.traces.quarantine import ADVICE

DECISION_FILE = "decision.json"
LONGEST_LINE, MOST_LINES, EXAMPLES, EXCERPT = 65_536, 5_000, 3, 600
BY_SOURCE = """
    SELECT source_file source, count(*) traces, count(DISTINCT "user") users, count(DISTINCT session) sessions,
        min(created) first, max(created) last, string_agg(DISTINCT format, ', ' ORDER BY format) formats,
        string_agg(DISTINCT model, ', ' ORDER BY model) models, avg(outcome) FILTER (outcome IS NOT NULL) reward
    FROM read_parquet(?) GROUP BY 1 ORDER BY traces DESC, source LIMIT 200"""
BY_DAY = "SELECT left(created, 10) AS day, count(*) traces FROM read_parquet(?) WHERE created IS NOT NULL GROUP BY 1 ORDER BY 1"
BY_DIFFICULTY = """
    SELECT split, count(*) tasks, avg(pass_rate) pass_rate, count(*) FILTER (attempts = 0) never_tried,
        count(*) FILTER (successes = 0 AND attempts > 0) never_solved,
        count(*) FILTER (successes = attempts AND attempts > 0) always
    FROM read_parquet(?) GROUP BY 1 ORDER BY 1"""


@dataclass(frozen=True)
class Intake:
    """What a run read, and what curation made of it. A part that the run has not, or the store has lost, is empty.

    Attributes:
        entry, curated: The store's entries; "" where they are gone.
        report: What ingest counted.
        sources: A row for each log file.
        days: Day to the number of traces that were created on it.
        quarantine: A row for each reason: `reason`, `count`, `advice`, `examples`.
        quality: Curation's quality report.
        curation: Curation's own report.
        difficulty: A row for each split, and a histogram of pass rates in percent under `rates`.
        intake: What the run noted of this intake: batches that were held.
        drift: Whether the traces drifted since the last run, in a sentence; "" where nobody looked.
        missing: What cannot be shown, in sentences.
    """

    entry: str = ""
    curated: str = ""
    report: dict[str, Any] = field(default_factory=dict)
    sources: list[dict[str, Any]] = field(default_factory=list)
    days: list[tuple[str, int]] = field(default_factory=list)
    quarantine: list[dict[str, Any]] = field(default_factory=list)
    quality: dict[str, Any] = field(default_factory=dict)
    curation: dict[str, Any] = field(default_factory=dict)
    difficulty: dict[str, Any] = field(default_factory=dict)
    intake: dict[str, Any] = field(default_factory=dict)
    drift: str = ""
    missing: tuple[str, ...] = ()


def intake_of(run: FinishedRun) -> Intake:
    """What a run read, as far as its record and the store have it."""
    found: dict[str, Any] = {"intake": _json(run.record.path / INTAKE_FILE)}
    found["drift"] = str((_json(run.record.path / DECISION_FILE).get("drift") or {}).get("says") or "")
    missing = []
    try:
        stages = {entry.stage: entry for entry in run.entries if entry.stage in ("ingest", "curate")}
    except DataError:
        return Intake(**found, missing=("the run has asked for nothing yet: it has not begun, or an earlier version made it",))
    for stage, read in (("ingest", _ingested), ("curate", _curated)):
        entry = stages.get(stage)
        if entry is None:
            missing.append(f"the run has no {stage} yet")
        elif not entry.path.is_dir():
            missing.append(f"{entry.name}: the store no longer has it (`tracewheel runs gc` frees what no kept run needs)")
        else:
            found |= read(entry.path)
    return Intake(**found, missing=tuple(missing))


def _ingested(folder: Path) -> dict[str, Any]:
    report = _json(folder / ingested_folder.REPORT_FILE)
    parts = [str(part) for part in sorted((folder / ingested_folder.TRACES_FOLDER).glob("*.parquet"))]
    days = [(str(row["day"]), int(row["traces"])) for row in _rows(BY_DAY, parts)]
    return {
        "entry": folder.name,
        "report": report,
        "sources": _rows(BY_SOURCE, parts),
        "days": days,
        "quarantine": quarantine_of(folder / ingested_folder.QUARANTINE_FILE, report.get("by_reason") or {}),
    }


def _curated(folder: Path) -> dict[str, Any]:
    tasks = [str(folder / TASKS_FILE)] if (folder / TASKS_FILE).is_file() else []
    rates = [round(100 * row["pass_rate"]) for row in _rows("SELECT pass_rate FROM read_parquet(?) WHERE attempts > 0", tasks)]
    difficulty = {"splits": _rows(BY_DIFFICULTY, tasks), "rates": histogram(rates) if rates else None}
    return {
        "curated": folder.name,
        "quality": _json(folder / QUALITY_FILE),
        "curation": _json(folder / REPORT_FILE),
        "difficulty": difficulty,
    }


def quarantine_of(file: Path, known: Mapping[str, int]) -> list[dict[str, Any]]:
    """Reasons of a quarantine with advice and some records, the most frequent first.

    Args:
        file: `quarantine.jsonl`; its first `MOST_LINES` lines are read, and of each line the beginning.
        known: Reason to its count, as ingest's report has it.
    """
    shown: dict[str, list[dict[str, Any]]] = {}
    counts: Counter[str] = Counter()
    for record in _records(file):
        reason = str(record.get("reason", ""))
        counts[reason] += 1
        if len(shown.setdefault(reason, [])) < EXAMPLES:
            shown[reason].append({name: record.get(name) for name in ("file", "line", "offset", "detail")} | _excerpt(record))
    every = Counter({str(reason): int(count) for reason, count in known.items()}) or counts
    return [
        {"reason": reason, "count": count, "advice": ADVICE.get(reason, ""), "examples": shown.get(reason, [])}
        for reason, count in every.most_common()
    ]


def _records(file: Path) -> Iterator[dict[str, Any]]:
    if not file.is_file():
        return
    with file.open("rb") as stream:
        for _ in range(MOST_LINES):
            line = stream.readline(LONGEST_LINE)
            if not line:
                return
            whole = line
            while whole and not whole.endswith(b"\n"):
                whole = stream.readline(LONGEST_LINE)
            with contextlib.suppress(orjson.JSONDecodeError):
                record = orjson.loads(line if line.endswith(b"\n") else line.partition(b',"raw')[0] + b"}")
                if isinstance(record, dict):
                    yield record


def _excerpt(record: Mapping[str, Any]) -> dict[str, Any]:
    """The beginning of a record's text; redaction has been over it. None of one that is withheld or very long."""
    if isinstance(record.get("raw"), str):
        return {"text": record["raw"][:EXCERPT], "length": len(record["raw"])}
    if isinstance(record.get("raw_base64"), str):
        with contextlib.suppress(ValueError):
            raw = base64.b64decode(record["raw_base64"])
            return {"text": raw[:EXCERPT].decode("utf-8", "backslashreplace"), "length": len(raw)}
    return {"text": None, "length": None}


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    found = read_json(path)
    return found if isinstance(found, dict) else {}


def _rows(query: str, files: Sequence[str]) -> list[dict[str, Any]]:
    return select(query, [list(files)], files[0]) if files else []


@page("/runs/{place}/{run_id}/traces", "traces.html", tab=Tab("Traces", "d", 6, in_file=True))
def traces(ask: Ask) -> dict[str, Any]:
    """The traces of a run and their curation."""
    return {"intake": intake_of(ask.run), "split_names": ("train", "validation", "held_out", "harder")}
