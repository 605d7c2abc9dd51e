"""Whether an ingest kept enough of the logs to go on with, and why it did not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tracewheel.traces.quarantine import ADVICE

FREQUENT = 3
# Of the records read; a duplicate is kept by its twin.
LARGEST_QUARANTINE = 0.5


@dataclass(frozen=True)
class Why:
    """A reason of the quarantine with its first example, and what to do about it."""

    reason: str
    count: int
    file: str
    line: int
    detail: str
    advice: str


def shortfall(report: Mapping[str, Any]) -> str:
    """A sentence where nothing is kept, or most records are in quarantine: of all, or of the last call's. Otherwise ""."""
    if not report["kept"]:
        return f"nothing was kept of {report['read']} records" if report["read"] else "the logs hold no record"
    for counts, whose in ((report, ""), (report.get("added", report), "new ")):
        read, bad = counts["read"], counts["quarantined"]
        if bad > LARGEST_QUARANTINE * read:
            return f"{bad} of {read} {whose}records are in quarantine ({bad / read:.0%}), under half were kept"
    return ""


def frequent_reasons(report: Mapping[str, Any], quarantine: Path) -> list[Why]:
    """The most frequent reasons, each with its first example.

    Args:
        report: The report of the ingest.
        quarantine: Its quarantine.jsonl.
    """
    ranked = sorted(report["by_reason"].items(), key=lambda item: (-item[1], item[0]))[:FREQUENT]
    missing, found = dict(ranked), {}
    with quarantine.open("rb") as lines:
        while missing and (line := lines.readline()):
            record = orjson.loads(line)
            if missing.pop(record["reason"], None) is not None:
                found[record["reason"]] = record
    return [
        Why(
            reason,
            count,
            str(found.get(reason, {}).get("file", "?")),
            int(found.get(reason, {}).get("line", 0)),
            str(found.get(reason, {}).get("detail", "")),
            ADVICE.get(reason, "See it with --explain."),
        )
        for reason, count in ranked
    ]
