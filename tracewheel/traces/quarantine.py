"""Quarantine: a record that cannot be read is kept, with its place and a reason.

The reasons are a closed list, so that reports can count them and people can search for them. `detail` says
what exactly is wrong.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from tracewheel.core.types import Trace

# Each reason and what to do about it.
ADVICE = {
    "not UTF-8": "Write the log as UTF-8, or convert it: iconv -f LATIN1 -t UTF-8.",
    "not JSON": "Usually a line that a crash cut or a print spoilt. If all are like this, export the log as JSON or JSONL.",
    "truncated": "The file ends inside the record. Wait until it is written, or copy it again.",
    "too large": "Raise ingest.largest_record_mib, or export one conversation per line.",
    "not an object": "A record is one JSON object. Check that this file is a log of conversations.",
    "unknown format": "Name the format with --format if docs/traces.md lists it. If not, a reader of your own is a few lines: "
    '--reader module:Class (docs/traces.md, "Readers of your own").',
    "no messages": "The record holds no conversation. If it does, under another key, read it with --reader module:Class.",
    "message unreadable": "The format is known, this message is not of it. See it with `tracewheel data explain`; a newer "
    "version of the tool may need a reader of your own (--reader module:Class).",
    "unknown role": "Name its roles system, user, assistant or tool when you log, or read it with --reader module:Class.",
    "tool reply without a call": "The log has lost the message that made the call. Log all messages of the conversation.",
    "tool calls unreadable": "A call needs an id and a function with a name. See it with `tracewheel data explain`.",
    "doubled call id": "Give each call of a turn an id of its own.",
    "call without a reply": "The tool's reply was not found. Log every reply with its call's id; of your own format, name "
    "where it stands (docs/traces.md: call.result of a mapping).",
    "content was not read": "The detail names what no reader knows. Log it under the name of a known format (docs/traces.md), "
    "or read it with --reader module:Class.",
    "content is not text": "A part of a message of a kind that no reader knows. See it with `tracewheel data explain`.",
    "no assistant turn": "The agent said nothing. Log its replies; a task without any needs its environment (`make-tasks`).",
    "tools unreadable": "Tools are a list of functions, each with a name and parameters as JSON schema.",
    "verifier unreadable": '\'environment.verifier\' is a built-in kind, as text or as {"kind": ..., "args": {...}}.',
    "verifier not named": "A log imports nothing. If you trust the verifier, name it in the profile: environment.verifiers.",
    "environment unreadable": "'environment' is an object with a 'kind', as in docs/your-environment.md.",
    "tokens unreadable": "Token ids, masks and log-probabilities are lists of one length. Log them together, or not at all.",
    "field unreadable": "The field is to be text or a number. See it with `tracewheel data explain`.",
    "reward is not a number": "Log rewards as numbers, and leave them out where there is none.",
    "beginning is missing": "It continues a response that is in no log that was read. Read all logs together, with --full.",
    "spans of a stored trace": "They came after their trace was stored. Read everything together with --full.",
    "secret left": "Only its place, the kinds and a digest are stored. Look at the record in the log; allow the text in "
    "ingest.redaction.allow if it is no secret, or mend the pattern of your own that finds its own stand-ins.",
    "not storable": "It nests too deeply, or holds half of a surrogate pair or a number that JSON cannot hold. Mend the log.",
    "expands too far": "A few bytes that stand for gigabytes. If you trust the file, raise ingest.largest_expansion.",
    "too many unreadable": "Check that the file is a log. If it is, raise ingest.most_unreadable.",
    "compression damaged": "Copy or compress the file again; what was before the damage is read.",
    "Parquet damaged": "Write the file again; what was before the damage is read.",
}
REASONS = tuple(ADVICE)
SEE_IT = "See it with `tracewheel data explain`."
MEND_YOURS = "Your reader does not read it: the detail says what it lacks. " + SEE_IT

FREQUENT = 3
LONGEST = 4096  # bytes of a record that are stored
# Of the records read; a duplicate is kept by its twin. Of those kept, the most with one warning.
LARGEST_QUARANTINE = 0.5
LARGEST_WARNED = 0.5
WARNED = {
    "unasked": "begin with the agent, and nobody asks it for anything",
    "tools_elsewhere": "have tools inferred from their calls, though the record holds a list of tools",
    "unread_text": "leave a text of over 200 characters unread",
}


@dataclass(frozen=True)
class Quarantined:
    """A record that could not be read. `reason` is one of `REASONS`.

    `line` is where the record begins, counted from 1; `offset` is its first byte in the uncompressed file. `raw` holds its
    bytes as in the file; the bytes of spans that lie apart are joined by line ends. `withheld` is the SHA-256 digest of
    bytes that are not stored: because secrets could not be removed from them, or because they are more than `LONGEST`. Of
    those, `size` is their number, and `raw` an excerpt.
    """

    file: str
    line: int
    reason: str
    detail: str
    raw: bytes
    offset: int = 0
    withheld: str = ""
    size: int = 0

    @property
    def advice(self) -> str:
        """What to do about it."""
        return ADVICE.get(self.reason, "")

    def to_record(self) -> dict[str, Any]:
        """JSON types; the record's bytes as text under `raw`, as `raw_base64` when they are not UTF-8; `sha256` without all."""
        record: dict[str, Any] = {
            "file": self.file,
            "line": self.line,
            "offset": self.offset,
            "reason": self.reason,
            "detail": self.detail,
        }
        if self.withheld:
            record["sha256"] = self.withheld
        if self.size:
            record["bytes"] = self.size
        if self.withheld and not self.raw:
            return record
        try:
            record["raw"] = self.raw.decode()
        except UnicodeDecodeError:
            record["raw_base64"] = base64.b64encode(self.raw).decode()
        return record


def withheld(item: Trace | Quarantined, error: Exception) -> Quarantined:
    """A record from which secrets could not be removed: only its place, their kinds and a digest of its bytes are stored."""
    if isinstance(item, Trace):
        return Quarantined(item.source_file, item.source_line, "secret left", str(error), b"", withheld=_digest(item))
    digest = item.withheld or sha256(item.raw).hexdigest()
    return dataclasses.replace(item, reason="secret left", detail=str(error), raw=b"", withheld=digest)


def not_storable(trace: Trace, error: Exception) -> Quarantined:
    """A trace that JSON or UTF-8 cannot hold."""
    detail = f"{type(error).__name__} while it was stored; see the record in the log"
    return Quarantined(trace.source_file, trace.source_line, "not storable", detail, b"", withheld=_digest(trace))


def _digest(trace: Trace) -> str:
    try:
        text = repr(trace)
    except RecursionError:
        text = f"{trace.source_file}:{trace.source_line}"
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class InvalidRecord(Exception):
    """A record cannot be read. Readers raise it; the caller puts the record in quarantine. `reason` is one of `REASONS`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


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
    """A sentence where nothing is kept, most records are in quarantine, or most kept have one warning; otherwise "".

    It is of all records, or of the last call's.
    """
    if not report["kept"]:
        return f"nothing was kept of {report['read']} records" if report["read"] else "the logs hold no record"
    for counts, whose in ((report, ""), (report.get("added", report), "new ")):
        read, bad = counts["read"], counts["quarantined"]
        if bad > LARGEST_QUARANTINE * read:
            return f"{bad} of {read} {whose}records are in quarantine ({bad / read:.0%}), under half were kept"
        found = {**counts, "unasked": min(counts.get("agent_first", 0), counts.get("without_user", 0))}
        for name, what in WARNED.items():
            if found.get(name, 0) > LARGEST_WARNED * counts["kept"]:
                return f"{found[name]} of {counts['kept']} {whose}traces {what}; see one with `tracewheel data explain`"
    return ""


def frequent_reasons(report: Mapping[str, Any], quarantine: Path, has_own: bool = False) -> list[Why]:
    """The most frequent reasons, each with its first example.

    Args:
        report: The report of the ingest.
        quarantine: Its quarantine.jsonl.
        has_own: Whether a reader of the user's own read the logs: it is not proposed then.
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
            MEND_YOURS if has_own and "--reader" in ADVICE.get(reason, "") else ADVICE.get(reason, SEE_IT),
        )
        for reason, count in ranked
    ]
