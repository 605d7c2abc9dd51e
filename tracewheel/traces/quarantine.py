"""What happens to a line that cannot be read: it is kept, with its place and its reason."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Quarantined:
    """A line that is no trace. `reason` is one of a few fixed texts; `detail` says what exactly."""

    file: str
    line: int
    reason: str
    detail: str
    raw: bytes

    def to_record(self) -> dict[str, Any]:
        """JSON types; the line's bytes as text under `raw`, or as `raw_base64` when they are no UTF-8."""
        record: dict[str, Any] = {"file": self.file, "line": self.line, "reason": self.reason, "detail": self.detail}
        try:
            record["raw"] = self.raw.decode()
        except UnicodeDecodeError:
            record["raw_base64"] = base64.b64encode(self.raw).decode()
        return record


class UnfitLine(Exception):
    """Raised and caught within a reader: the line at hand cannot be read."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail
