"""What becomes of each record: counted, held against what is stored already, redacted, written."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import orjson

from tracewheel.core.types import Trace
from tracewheel.traces.counts import Counts
from tracewheel.traces.hash_index import HashIndex, hash_of
from tracewheel.traces.parquet import PartWriter, json_of
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.spool import Group

BATCH, BATCH_BYTES = 500, 32 << 20


class Redacts(Protocol):
    """What takes secrets and personal data out, before anything is stored."""

    def trace(self, trace: Trace) -> tuple[Trace, Counter[str]]:
        """The trace without them, and how many there were by kind."""

    def record_bytes(self, raw: bytes, place: str = ...) -> tuple[bytes, Counter[str]]:
        """The bytes of a record in quarantine without them, and how many there were by kind."""


@dataclass
class Known:
    """What is stored already: hashes of contents, of trace ids, and of the ids that the spans of traces had."""

    contents: HashIndex = field(default_factory=HashIndex)
    ids: HashIndex = field(default_factory=HashIndex)
    span_traces: HashIndex = field(default_factory=HashIndex)


class Intake:
    """Takes records and writes one part of traces and the quarantine.

    A duplicate has the messages, starting point, session and user of an earlier trace, whatever its id and time. Of two
    different traces that claim one id, the later gets one of its own.

    Args:
        part: The Parquet file to write. It is begun with the first trace.
        quarantine: The JSONL file to append to.
        known: What is stored already; it learns what comes.
        redactor: Takes out secrets and personal data.
    """

    def __init__(self, part: Path, quarantine: Path, known: Known, redactor: Redacts) -> None:
        self.counts = Counts()
        self.part, self._known, self._redactor = part, known, redactor
        self._writer: PartWriter | None = None
        self._quarantine = quarantine.open("ab")
        self.quarantine, self.quarantine_start = quarantine, self._quarantine.tell()
        self._waiting_bytes = 0
        self._waiting: list[tuple[bytes, Trace, bytes, Group | None]] = []

    def put(self, item: Trace | Quarantined) -> None:
        """Take a record."""
        self._put(item, None)

    def put_spans(self, item: Trace | Quarantined, spans: Group) -> None:
        """Take a record that is made of spans. When more spans of a stored trace come, they are no trace of their own."""
        self._put(item, spans)

    def _put(self, item: Trace | Quarantined, spans: Group | None) -> None:
        self.counts.numbers["read"] += 1
        if isinstance(item, Quarantined):
            self._put_aside(item)
            return
        messages = json_of(item.messages)
        rest = orjson.dumps([item.environment, item.session, item.user], option=orjson.OPT_SORT_KEYS)
        self._waiting.append((hash_of(messages, rest), item, messages, spans))
        self._waiting_bytes += len(messages)
        if len(self._waiting) >= BATCH or self._waiting_bytes >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Decide on what waits. Records wait in small numbers, as many hashes are looked up at the price of one."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        is_new = self._known.contents.add([content for content, _, _, _ in waiting])
        fresh = [entry for entry, new in zip(waiting, is_new, strict=True) if new]
        self.counts.numbers["duplicates"] += len(waiting) - len(fresh)
        is_free = self._known.ids.add([hash_of(trace.id.encode()) for _, trace, _, _ in fresh])
        for (content, trace, messages, spans), free in zip(fresh, is_free, strict=True):
            if spans and not self._known.span_traces.add([hash_of(spans.trace_id.encode())])[0]:
                self._put_aside(_late(spans))
                continue
            if not free:
                trace = replace(trace, id=f"{trace.id}-{content.hex()[:16]}")
                self._known.ids.add([hash_of(trace.id.encode())])
            self._keep(trace, messages)

    def _keep(self, trace: Trace, messages: bytes) -> None:
        redacted, found = self._redactor.trace(trace)
        if found:
            self.counts.redacted += found
            messages = json_of(redacted.messages)
        if self._writer is None:
            self._writer = PartWriter(self.part)
        self._writer.add(redacted, messages)
        self.counts.keep(redacted)

    def _put_aside(self, item: Quarantined) -> None:
        place = f"{item.file}:{item.line}"
        raw, found = self._redactor.record_bytes(item.raw, place)
        detail, _ = self._redactor.record_bytes(item.detail.encode("utf-8", "backslashreplace"), place)
        self.counts.redacted += found
        self.counts.numbers["quarantined"] += 1
        self.counts.by_reason[item.reason] += 1
        record = replace(item, raw=raw, detail=detail.decode("utf-8", "backslashreplace")).to_record()
        self._quarantine.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

    def close(self, *, part_needed: bool = False) -> bool:
        """End the files; says whether there is a part.

        Args:
            part_needed: Whether a part without rows is to be made when no trace came.
        """
        self.flush()
        self._quarantine.close()
        if self._writer is None and part_needed:
            self._writer = PartWriter(self.part)
        if self._writer is not None:
            self._writer.close()
        return self._writer is not None


def _late(spans: Group) -> Quarantined:
    detail = f"an earlier ingest stored trace {spans.trace_id} without these; ingest everything again with --full"
    return Quarantined(
        spans.place.file, spans.place.line, "spans of a stored trace", detail, b"\n".join(spans.raws), spans.offset
    )
