"""The intake of records: each is counted, compared with stored ones, redacted and written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from tracewheel.core.errors import SecretError
from tracewheel.core.types import Trace
from tracewheel.traces.attempts import Identity, are_new
from tracewheel.traces.counts import FORGOTTEN, Counts
from tracewheel.traces.forgotten import NOBODY, Forgotten
from tracewheel.traces.grown_sessions import GrownSessions
from tracewheel.traces.hash_index import HashIndex, hash_of
from tracewheel.traces.parquet import NOT_STORABLE, PartWriter, hashed_json, json_of
from tracewheel.traces.quarantine import Quarantined, not_storable, withheld
from tracewheel.traces.redaction.redactor import Redactor
from tracewheel.traces.spool import SpanGroup

BATCH, BATCH_BYTES = 500, 32 << 20


@dataclass
class StoredHashes:
    """Hashes of stored traces: of their contents and identities, of their ids, and of the trace ids of stored spans."""

    contents: HashIndex = field(default_factory=HashIndex)
    ids: HashIndex = field(default_factory=HashIndex)
    span_traces: HashIndex = field(default_factory=HashIndex)


class Intake:
    """Takes records and writes one part of traces and the quarantine.

    A duplicate has the messages, environment, session and user of an earlier trace, and no mark of an attempt of its own
    (`attempts`). Of two different traces with one id, the later gets a new id.

    Args:
        part: The Parquet file to write; created with the first trace.
        quarantine: The JSONL file to append to.
        known: Hashes of stored traces; updated with each kept one.
        redactor: Redacts secrets and personal data.
        grown: The stored traces of sessions that are read again. They count once, with their new version.
        forgotten: Whose records are left out.

    Attributes:
        taught: Lines of the records that revealed a secret by the stored name of their file; 0 of one made of several lines.
    """

    def __init__(
        self,
        part: Path,
        quarantine: Path,
        known: StoredHashes,
        redactor: Redactor,
        grown: GrownSessions | None = None,
        forgotten: Forgotten = NOBODY,
    ) -> None:
        self.counts = Counts()
        self._grown, self._forgotten = grown, forgotten
        self.part, self._known, self._redactor = part, known, redactor
        self._writer: PartWriter | None = None
        self._quarantine = quarantine.open("ab")
        self.quarantine, self.quarantine_start = quarantine, self._quarantine.tell()
        self.taught: dict[str, set[int]] = {}
        self._joined = False
        self._waiting_bytes = 0
        self._waiting: list[tuple[Identity, Trace, bytes, SpanGroup | None]] = []

    def put(self, item: Trace | Quarantined) -> None:
        """Take a record."""
        self._put(item, None)

    def put_spans(self, item: Trace | Quarantined, spans: SpanGroup | None) -> None:
        """Take a record made of spans, or of other parts. Later spans of a stored trace go to quarantine."""
        self._joined = True
        self._put(item, spans)

    def _put(self, item: Trace | Quarantined, spans: SpanGroup | None) -> None:
        self.counts.numbers["read"] += 1
        if isinstance(item, Quarantined):
            self._quarantine_record(item)
            return
        try:
            messages = json_of(item.messages)
            content = hash_of(hashed_json(item.messages), hashed_json([item.environment, item.session, item.user]))
            item.id.encode()
        except NOT_STORABLE as error:
            self._quarantine_record(not_storable(item, error))
            return
        self._waiting.append((Identity.of(item, content), item, messages, spans))
        self._waiting_bytes += len(messages)
        if len(self._waiting) >= BATCH or self._waiting_bytes >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Keep or drop the waiting records. They wait in batches, as looking up many hashes costs little more than one."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        is_new = are_new([identity for identity, _, _, _ in waiting], self._known.contents)
        fresh = [entry for entry, new in zip(waiting, is_new, strict=True) if new]
        again = sum(self._is_stored(trace) for (_, trace, _, _), new in zip(waiting, is_new, strict=True) if not new)
        self.counts.numbers["duplicates"] += len(waiting) - len(fresh) - again
        self.counts.numbers["read"] -= again
        is_free = self._known.ids.add([hash_of(trace.id.encode()) for _, trace, _, _ in fresh])
        for (identity, trace, messages, spans), free in zip(fresh, is_free, strict=True):
            if spans and not self._known.span_traces.add([hash_of(spans.trace_id.encode())])[0]:
                self._quarantine_record(_late(spans))
                continue
            if not free and not self._is_stored(trace):
                trace = replace(trace, id=f"{trace.id}-{identity.own.hex()[:16]}")
                self._known.ids.add([hash_of(trace.id.encode())])
            self._keep(trace, messages)

    def _keep(self, trace: Trace, messages: bytes) -> None:
        before = len(self._redactor.learned)
        if self._forgotten.covers(trace):
            self.counts.numbers[FORGOTTEN] += 1
            return
        try:
            redacted, found = self._redactor.trace(trace, messages)
        except SecretError as error:
            self._quarantine_record(withheld(trace, error))
            return
        except NOT_STORABLE as error:
            self._quarantine_record(not_storable(trace, error))
            return
        self._note_taught(trace.source_file, trace.source_line, before)
        if redacted is not trace and self._forgotten.covers(redacted):  # by the name that stands for theirs
            self.counts.numbers[FORGOTTEN] += 1
            return
        if found:
            messages = json_of(redacted.messages)
        if self._writer is None:
            self._writer = PartWriter(self.part)
        try:
            self._writer.add(redacted, messages)
        except NOT_STORABLE as error:
            self._quarantine_record(not_storable(trace, error))
            return
        self.counts.redacted += found
        self.counts.keep(redacted)
        if self._grown:
            self._grown.replace(redacted)

    def _is_stored(self, trace: Trace) -> bool:
        """Whether this is a trace of a session that is read again."""
        return self._grown is not None and self._grown.holds(trace)

    def _quarantine_record(self, item: Quarantined) -> None:
        before, line = len(self._redactor.learned), item.line
        item, found = self._redactor.quarantined(item)
        self._note_taught(item.file, line, before)
        if self._forgotten.covers_record(item):
            self.counts.numbers[FORGOTTEN] += 1
            return
        self.counts.redacted += found
        self.counts.put_aside(item.reason)
        self._quarantine.write(orjson.dumps(item.to_record(), option=orjson.OPT_APPEND_NEWLINE))

    def _note_taught(self, file: str, line: int, learned_before: int) -> None:
        if len(self._redactor.learned) > learned_before:
            self.taught.setdefault(file, set()).add(0 if self._joined else line)

    def close(self, *, part_needed: bool = False) -> bool:
        """Close the files; returns whether a part was written.

        Args:
            part_needed: Whether to write a part without rows when there was no trace.
        """
        self.flush()
        self._quarantine.close()
        if self._writer is None and part_needed:
            self._writer = PartWriter(self.part)
        if self._writer is not None:
            self._writer.close()
        return self._writer is not None


def _late(spans: SpanGroup) -> Quarantined:
    detail = f"an earlier ingest stored trace {spans.trace_id} without these; ingest everything again with --full"
    return Quarantined(
        spans.place.file, spans.place.line, "spans of a stored trace", detail, b"\n".join(spans.raws), spans.offset
    )
