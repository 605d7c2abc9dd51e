"""Quarantine: a record that cannot be read is kept, with its place and a reason.

The reasons are a closed list, so that reports can count them and people can search for them. `detail` says
what exactly is wrong.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

REASONS = (
    "not UTF-8",
    "not JSON",
    "truncated",
    "too large",
    "not an object",
    "unknown format",
    "no messages",
    "message unreadable",
    "unknown role",
    "role out of order",
    "tool reply without a call",
    "tool calls unreadable",
    "doubled call id",
    "call without a reply",
    "arguments are not JSON",
    "content is not text",
    "no assistant turn",
    "tools unreadable",
    "environment unreadable",
    "tokens unreadable",
    "field unreadable",
    "reward is not a number",
    "spans of a stored trace",
    "compression damaged",
    "Parquet damaged",
)


@dataclass(frozen=True)
class Quarantined:
    """A record that could not be read. `reason` is one of `REASONS`.

    `line` is where the record begins, counted from 1; `offset` is its first byte in the uncompressed file. `raw` holds its
    bytes as in the file; the bytes of spans that lie apart are joined by line ends.
    """

    file: str
    line: int
    reason: str
    detail: str
    raw: bytes
    offset: int = 0

    def to_record(self) -> dict[str, Any]:
        """JSON types; the record's bytes as text under `raw`, or as `raw_base64` when they are not UTF-8."""
        record: dict[str, Any] = {
            "file": self.file,
            "line": self.line,
            "offset": self.offset,
            "reason": self.reason,
            "detail": self.detail,
        }
        try:
            record["raw"] = self.raw.decode()
        except UnicodeDecodeError:
            record["raw_base64"] = base64.b64encode(self.raw).decode()
        return record


class InvalidRecord(Exception):
    """A record cannot be read. Readers raise it; the caller puts the record in quarantine. `reason` is one of `REASONS`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail
