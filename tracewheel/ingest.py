"""The stage that reads logs: files in, one Parquet of distinct traces out, nothing lost on the way."""

from __future__ import annotations

import glob
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import IngestConfig
from tracewheel.errors import DataError
from tracewheel.traces import READERS, Quarantined
from tracewheel.types import Trace, content_hash

if TYPE_CHECKING:
    import pyarrow

TRACES_FILE, QUARANTINE_FILE, REPORT_FILE = "traces.parquet", "quarantine.jsonl", "report.json"
ROWS_PER_WRITE = 1000


def ingest(config: IngestConfig, out: Path) -> dict[str, Any]:
    """Read all logs; write traces.parquet, quarantine.jsonl and report.json into `out`.

    Every line that was read is kept, a duplicate, or in quarantine. A duplicate has the messages,
    starting point, session and user of an earlier trace, whatever its id and time.

    Returns:
        The report: `read`, `kept`, `duplicates`, `quarantined`, `by_reason`, `messages`,
        `tool_calls`, `tool_results` (the last three of what was kept).

    Raises:
        DataError: a path names no readable file.
    """
    import pyarrow
    import pyarrow.parquet

    files = find_files(config.paths)
    out.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    by_reason: Counter[str] = Counter()
    schema = _schema()
    with (
        pyarrow.parquet.ParquetWriter(out / TRACES_FILE, schema) as writer,
        (out / QUARANTINE_FILE).open("w", encoding="utf-8", newline="\n") as quarantine,
    ):
        rows: list[dict[str, Any]] = []
        for item in _distinct(_read(files, config.format), counts):
            if isinstance(item, Quarantined):
                counts["quarantined"] += 1
                by_reason[item.reason] += 1
                quarantine.write(json.dumps(item.to_record(), ensure_ascii=False) + "\n")
                continue
            _count(item, counts)
            rows.append(_row(item))
            if len(rows) == ROWS_PER_WRITE:
                writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
                rows = []
        writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
    names = ("read", "kept", "duplicates", "quarantined", "messages", "tool_calls", "tool_results")
    report: dict[str, Any] = {name: counts[name] for name in names}
    report["by_reason"] = dict(sorted(by_reason.items()))
    (out / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def find_files(paths: tuple[str, ...]) -> dict[str, Path]:
    """The files that paths and globs stand for, each once, by a name that does not say where they lie.

    Raises:
        DataError: a path is no file, or a glob matches none.
    """
    found: dict[Path, None] = {}
    for path in paths:
        is_glob = glob.has_magic(path) and not Path(path).exists()
        matches = sorted(glob.glob(path, recursive=True)) if is_glob else [path]
        files = [Path(match) for match in matches if not is_glob or Path(match).is_file()]
        if not files:
            raise DataError(f"{path}: no trace file matches this pattern (ingest.paths)")
        for file in files:
            if file.is_dir():
                raise DataError(f"{file}: is a folder; name its files, as in {file}/*.jsonl (ingest.paths)")
            if not file.exists():
                raise DataError(f"{file}: no such trace file (ingest.paths)")
            found.setdefault(file.resolve())
    parents = [file.parent.parts for file in found]
    shared = 0
    while all(len(parts) > shared and parts[shared] == parents[0][shared] for parts in parents):
        shared += 1
    return {"/".join(file.parts[shared:]): file for file in found}


def _read(files: dict[str, Path], format: str) -> Iterator[Trace | Quarantined]:
    for name, path in files.items():
        try:
            yield from READERS[format](path, name)
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def _distinct(items: Iterator[Trace | Quarantined], counts: Counter[str]) -> Iterator[Trace | Quarantined]:
    """Drop exact duplicates. Two different traces that claim one id get two."""
    seen: set[str] = set()
    ids: set[str] = set()
    for item in items:
        counts["read"] += 1
        if isinstance(item, Quarantined):
            yield item
            continue
        key = content_hash([item.messages, item.environment, item.session, item.user], length=32)
        if key in seen:
            counts["duplicates"] += 1
            continue
        seen.add(key)
        if item.id in ids:
            item = Trace.from_record({**item.to_record(), "id": f"{item.id}-{key[:16]}"})
        ids.add(item.id)
        yield item


def _row(trace: Trace) -> dict[str, Any]:
    """The record, its tools with their keys in the order of the log: a prompt is rendered from them."""
    return {**trace.to_record(), "tools": json.dumps(trace.tools, ensure_ascii=False)}


def _count(trace: Trace, counts: Counter[str]) -> None:
    counts["kept"] += 1
    counts["messages"] += len(trace.messages)
    counts["tool_calls"] += sum(len(message.get("tool_calls") or []) for message in trace.messages)
    counts["tool_results"] += sum(message["role"] == "tool" for message in trace.messages)


def _schema() -> pyarrow.Schema:
    import pyarrow

    text, required = pyarrow.string(), ("id", "messages", "tools", "environment", "source_file")
    fields = [
        pyarrow.field(name, text, nullable=name not in required)
        for name in ("id", "messages", "tools", "environment", "session", "user", "created", "model")
    ]
    fields += [pyarrow.field("outcome", pyarrow.float64()), pyarrow.field("source_file", text, nullable=False)]
    fields += [pyarrow.field(name, pyarrow.int64(), nullable=False) for name in ("source_line", "schema_version")]
    return pyarrow.schema(fields)
