"""Ingests each log file of a folder alone, and prints what became of it: formats, counts, warnings, reasons.

    python plugins/logs/benchmarks/formats.py FOLDER [--judged benchmarks/results/formats_files.tsv] > files.tsv

`--judged` is a table of files (`OWNER+NAME@COMMIT/PATH` in the folder) with a family and the judgement of somebody who read the
file; the counts of the judgements by family are printed too (to stderr), with how many of its files the folder lacks.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from tracewheel.config import IngestConfig, RedactionConfig
from tracewheel.core.errors import DataError
from tracewheel.traces.counts import WARNINGS
from tracewheel.traces.ingest import ingest
from tracewheel.traces.quarantine import shortfall

JUDGEMENTS = ("right", "partly", "silently wrong", "refused, true reason", "refused wrongly")
COLUMNS = ("file", "formats", "kept", "quarantined", "messages", "calls", "results", "warnings", "refused", "reasons")


def one_file(path: Path, name: str) -> dict[str, Any]:
    """What an ingest of this file alone says."""
    config = IngestConfig(paths=(str(path),), redaction=RedactionConfig(enabled=False))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        try:
            report = ingest(config, out)
        except DataError as error:
            return {"file": name, "reasons": str(error)[:200]}
        rows = [orjson.loads(line) for line in (out / "quarantine.jsonl").read_bytes().splitlines()]
    reasons = Counter(f"{row['reason']}: {row['detail']:.120}" for row in rows)
    return {
        "file": name,
        "formats": ", ".join(report["by_format"]),
        "kept": report["kept"],
        "quarantined": report["quarantined"],
        "messages": report["messages"],
        "calls": report["tool_calls"],
        "results": report["tool_results"],
        "warnings": ", ".join(f"{warning} {report[warning]}" for warning in WARNINGS if report.get(warning)),
        "refused": "yes" if shortfall(report) else "",
        "reasons": " | ".join(f"{count}x {reason}" for reason, count in reasons.most_common(2)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--judged", type=Path)
    options = parser.parse_args()
    writer = csv.DictWriter(sys.stdout, COLUMNS, delimiter="\t", restval="", lineterminator="\n")
    writer.writeheader()
    names = []
    for path in sorted(path for path in options.folder.rglob("*") if path.is_file()):
        names.append(path.relative_to(options.folder).as_posix())
        writer.writerow(one_file(path, names[-1]))
    if options.judged:
        with options.judged.open(newline="", encoding="utf-8") as file:
            print_families(list(csv.DictReader(file, delimiter="\t")), set(names))


def print_families(rows: list[dict[str, str]], found: set[str]) -> None:
    """The judgements by family as a table in Markdown."""
    families: dict[str, Counter[str]] = {}
    for row in rows:
        families.setdefault(row["family"], Counter())[row["judgement"]] += 1
    lines = [["family", "files", *JUDGEMENTS], ["---", *["---:"] * (len(JUDGEMENTS) + 1)]]
    lines += [[name, str(sum(of.values())), *(str(of[one]) for one in JUDGEMENTS)] for name, of in sorted(families.items())]
    every = Counter(row["judgement"] for row in rows)
    lines.append(["all", str(len(rows)), *(str(every[one]) for one in JUDGEMENTS)])
    print(*("| " + " | ".join(line) + " |" for line in lines), sep="\n", file=sys.stderr)
    files = (f"{row['repository'].replace('/', '+')}@{row['commit']}/{row['path']}" for row in rows)
    missing = [file for file in files if file not in found]
    print(f"{len(missing)} judged files are not in the folder", file=sys.stderr)


if __name__ == "__main__":
    main()
