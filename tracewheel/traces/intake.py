"""The intake of records: each is counted, compared with stored ones, redacted and written.

Of traces with equal messages, starting point, session and user, some are copies and some are attempts of their own:

- With an id, those with the same id, task and number of trial are copies, whatever their times; others are attempts.
- Without an id, those with the same time, task and number of trial are copies; others are attempts.
- With none of these, it is a copy of whatever has the same content.
- Of traces made of spans, one is a copy if it is a single span that wraps the other's, as the AI SDK's `ai.generateText`
  wraps `ai.generateText.doGenerate`, and starts within a second of it.

A copied file has the same ids and times, or none at all, so its traces are copies under any name.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import orjson

from tracewheel.core.types import Trace
from tracewheel.traces.counts import FORGOTTEN, Counts
from tracewheel.traces.forgotten import NOBODY, Forgotten
from tracewheel.traces.grown_sessions import GrownSessions
from tracewheel.traces.hash_index import HashIndex, hash_of
from tracewheel.traces.ingested_folder import INDEXES, JUDGE
from tracewheel.traces.parquet import NOT_STORABLE, PartWriter, hashed_json, json_of
from tracewheel.traces.places import Origin, PlacesWriter
from tracewheel.traces.quarantine import Quarantined, not_storable
from tracewheel.traces.readers.building import made_id
from tracewheel.traces.redaction.redactor import Redactor
from tracewheel.traces.redaction.second_process import Redacted, SecondProcess, redacted, written
from tracewheel.traces.spool import Group
from tracewheel.traces.statements import BY_ID, VERIFIED, Statement

BATCH, BATCH_BYTES = 500, 1 << 20  # in memory, values need ten times the bytes of their text
IN_FLIGHT = 2  # batches that are with a second process
# Names under which a log numbers the attempts at a task; readers keep them in `info`.
ATTEMPTS = ("trial", "trial_id", "attempt", "attempt_id", "run", "run_id", "rollout", "rollout_id", "sample", "sample_id")
NUMBERS = (*ATTEMPTS, "repeat", "repetition", "epoch", "seed")
INNER = re.compile(r"\.do[A-Z]\w*$")
MADE = re.compile(r"trace-[0-9a-f]{16}")


@dataclass
class StoredHashes:
    """Hashes of stored traces: of their contents and identities, of their ids, and of the trace ids of stored spans."""

    contents: HashIndex = field(default_factory=HashIndex)
    ids: HashIndex = field(default_factory=HashIndex)
    span_traces: HashIndex = field(default_factory=HashIndex)

    def save(self, folder: Path) -> None:
        """Write them into a folder, a file each."""
        for name in INDEXES:
            getattr(self, name).save(folder / f"{name}.hashes")

    @classmethod
    def load(cls, folder: Path) -> StoredHashes:
        """What `save` wrote.

        Raises:
            OSError: a file is missing.
            ValueError: a file is damaged.
        """
        return cls(*(HashIndex.load(folder / f"{name}.hashes") for name in INDEXES))


class IntakeFiles(NamedTuple):
    """What an intake writes.

    Attributes:
        part: The Parquet file of the traces; created with the first one.
        quarantine: The JSONL file to append to.
        places: The file of the traces' places (`places.py`); None for none.
    """

    part: Path
    quarantine: Path
    places: Path | None = None


class _Waiting(NamedTuple):
    """A trace that may be kept, with the JSON text of each message."""

    identity: Identity
    trace: Trace
    messages: list[bytes]
    spans: Group | None
    origin: Origin


class Intake:
    """Takes records and writes one part of traces and the quarantine.

    A duplicate has the messages, environment, session and user of an earlier trace, and no mark of an attempt of its own.
    Of two different traces with one id, the later gets a new id.

    Args:
        files: What to write.
        known: Hashes of stored traces; updated with each kept one.
        redactor: Redacts secrets and personal data.
        grown: The stored traces of sessions that are read again. They count once, with their new version.
        forgotten: Whose records are left out.
        second: Redacts beside this process; None to redact here. What is stored is the same, but not with `grown` traces.

    Attributes:
        taught: Lines of the records that revealed a secret by the stored name of their file; 0 of one made of several lines.
        said: What copies and other lines say of how a conversation ended.
    """

    def __init__(
        self,
        files: IntakeFiles,
        known: StoredHashes,
        redactor: Redactor,
        grown: GrownSessions | None = None,
        forgotten: Forgotten = NOBODY,
        second: SecondProcess | None = None,
    ) -> None:
        self.counts = Counts()
        self._grown, self._forgotten = grown, forgotten
        self.part, self._known, self._redactor = files.part, known, redactor
        self._writer: PartWriter | None = None
        self._places = PlacesWriter(files.places) if files.places else None
        self._quarantine = files.quarantine.open("ab")
        self.quarantine, self.quarantine_start = files.quarantine, self._quarantine.tell()
        self.taught: dict[str, set[int]] = {}
        self.said: list[Statement] = []
        self._joined = False
        self._waiting_bytes = 0
        self._waiting: list[_Waiting | Quarantined] = []
        self._second = second
        self._sent: deque[list[tuple[Trace | Quarantined | None, _Waiting | None, bool]]] = deque()

    def put(self, item: Trace | Quarantined, origin: Origin = ()) -> None:
        """Take a record, which lies there in the logs."""
        self._put(item, None, origin)

    def put_spans(self, item: Trace | Quarantined, spans: Group | None, origin: Origin = ()) -> None:
        """Take a record made of spans, or of other parts. Later spans of a stored trace go to quarantine."""
        if not self._joined:
            self._settle_all()
            self._joined = True
        self._put(item, spans, origin)

    def _put(self, item: Trace | Quarantined, spans: Group | None, origin: Origin) -> None:
        self.counts.numbers["read"] += 1
        if isinstance(item, Trace):
            try:
                messages = [json_of(message) for message in item.messages]
                content = hash_of(hashed_json(item.messages), hashed_json([item.environment, item.session, item.user]))
                item.id.encode()
            except NOT_STORABLE as error:
                item = not_storable(item, error)
            else:
                self._waiting.append(_Waiting(Identity.of(item, content), item, messages, spans, origin))
                self._waiting_bytes += sum(map(len, messages))
        if isinstance(item, Quarantined):
            self._waiting.append(item)
            self._waiting_bytes += len(item.raw)
        if len(self._waiting) >= BATCH or self._waiting_bytes >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Keep or drop the waiting records. They wait in batches, as looking up many hashes costs little more than one."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        traces = [entry for entry in waiting if isinstance(entry, _Waiting)]
        is_new = are_new([entry.identity for entry in traces], self._known.contents)
        fresh = [entry for entry, new in zip(traces, is_new, strict=True) if new]
        copies = [entry for entry, new in zip(traces, is_new, strict=True) if not new]
        again = [entry for entry in copies if self._is_stored(entry.trace)]
        self.counts.numbers["duplicates"] += len(copies) - len(again)
        self.counts.numbers["read"] -= len(again)
        is_free = self._known.ids.add([hash_of(entry.trace.id.encode()) for entry in fresh])
        left = self._left(waiting, iter(is_new), iter(is_free), again)
        if self._second:
            texts = [(item, entry, written(item, entry.messages if entry else ()) if item else None) for item, entry in left]
            self._sent.append([(item, entry, text is not None) for item, entry, text in texts])
            self._second.send([text for _, _, text in texts if text is not None], self._redactor.known)
            self._settle_sent(IN_FLIGHT)
        else:
            for item, entry in left:
                self._settle(item, entry)
        self._note_outcomes(fresh, copies)

    def _left(
        self, waiting: list[_Waiting | Quarantined], is_new: Iterator[bool], is_free: Iterator[bool], again: list[_Waiting]
    ) -> Iterator[tuple[Trace | Quarantined | None, _Waiting | None]]:
        """What is left to do of waiting records, in order: those to redact, and copies, without a record."""
        for entry in waiting:
            if isinstance(entry, Quarantined):
                yield entry, None
            elif not next(is_new):
                if entry not in again:
                    yield None, entry
            else:
                free, trace, spans = next(is_free), entry.trace, entry.spans
                if spans and not self._known.span_traces.add([hash_of(spans.reader.encode(), spans.id.encode())])[0]:
                    yield _late(spans), None
                    continue
                if not free and not self._is_stored(trace):
                    trace = replace(trace, id=f"{trace.id}-{entry.identity.own.hex()[:16]}")
                    self._known.ids.add([hash_of(trace.id.encode())])
                if self._forgotten.covers(trace):
                    self.counts.numbers[FORGOTTEN] += 1
                else:
                    yield trace, entry

    def _settle_all(self) -> None:
        self.flush()
        self._settle_sent(0)

    def _settle_sent(self, most: int) -> None:
        """Store what the second process has redacted, until at most so many batches are with it."""
        while self._second and len(self._sent) > most:
            made = iter(self._second.receive())
            for item, entry, was_sent in self._sent.popleft():
                self._settle(item, entry, next(made) if was_sent else None)

    def _settle(self, item: Trace | Quarantined | None, entry: _Waiting | None, made: Redacted | None = None) -> None:
        """Store a record, redacted already or here, or note the place of a copy."""
        if item is None:
            assert entry
            if self._places and not self._forgotten.covers(entry.trace):
                self._places.add(entry.origin, entry.identity.content)
            return
        made = made or redacted(self._redactor, item, entry.messages if entry else ())
        new = made.item or item
        if not made.learned.keys() <= self._redactor.learned.keys():
            if isinstance(item, Trace):
                file, line = item.source_file, item.source_line
            else:
                file, line = self._redactor.name(item.file), item.line
            self.taught.setdefault(file, set()).add(0 if self._joined else line)
        self._redactor.learned |= made.learned
        if isinstance(new, Quarantined):
            self._quarantine_record(new, made.found)
        else:
            assert entry
            self._keep(new, entry, made)

    def _note_outcomes(self, fresh: list[_Waiting], copies: list[_Waiting]) -> None:
        """Remember the outcome of each new trace; a copy with another one says how the trace ended."""
        self._known.contents.add([each for entry in fresh if (each := _outcome_hash(entry))])
        for entry in copies:
            said = _outcome_hash(entry)
            if said is None or not self._known.contents.add([said])[0]:
                continue
            trace, name = entry.trace, f"{entry.trace.id}-{entry.identity.own.hex()[:16]}"
            key = name if self._known.ids.contains(hash_of(name.encode())) else trace.id
            for kind, value in ((VERIFIED, trace.outcome), (JUDGE, trace.info.get("judged"))):
                if isinstance(value, int | float):
                    self.said.append(Statement(BY_ID, key, value, kind, None, trace.source_file, trace.source_line))

    def _keep(self, trace: Trace, entry: _Waiting, made: Redacted) -> None:
        if made.item and self._forgotten.covers(trace):  # by the name that stands for theirs
            self.counts.numbers[FORGOTTEN] += 1
            return
        messages = json_of(trace.messages) if made.found else b"[" + b",".join(entry.messages) + b"]"
        if self._writer is None:
            self._writer = PartWriter(self.part)
        try:
            self._writer.add(trace, messages)
        except NOT_STORABLE as error:
            self._quarantine_record(*self._redactor.quarantined(not_storable(trace, error)))
            return
        if self._places:
            self._places.add(entry.origin, entry.identity.content, trace)
        self.counts.redacted += made.found
        self.counts.keep(trace)
        if self._grown:
            self._grown.replace(trace)

    def _is_stored(self, trace: Trace) -> bool:
        """Whether this is a trace of a session that is read again."""
        return self._grown is not None and self._grown.holds(trace)

    def _quarantine_record(self, item: Quarantined, found: Counter[str]) -> None:
        if self._forgotten.covers_record(item):
            self.counts.numbers[FORGOTTEN] += 1
            return
        self.counts.redacted += found
        self.counts.put_aside(item.reason)
        self._quarantine.write(orjson.dumps(item.to_record(), option=orjson.OPT_APPEND_NEWLINE))

    def close(self, *, part_needed: bool = False) -> bool:
        """Close the files; returns whether a part was written.

        Args:
            part_needed: Whether to write a part without rows when there was no trace.
        """
        self._settle_all()
        self._quarantine.close()
        if self._writer is None and part_needed:
            self._writer = PartWriter(self.part)
        if self._writer is not None:
            self._writer.close()
        if self._places:
            self._places.close()
        return self._writer is not None


def _outcome_hash(entry: _Waiting) -> bytes | None:
    """Of a trace and what it says of how it ended; None where it says nothing."""
    said = entry.trace.outcome, entry.trace.info.get("judged")
    return None if said == (None, None) else hash_of(entry.identity.own, repr(said).encode())


def _late(spans: Group) -> Quarantined:
    detail = f"an earlier ingest stored trace {spans.id} without these; ingest everything again with --full"
    return Quarantined(
        spans.place.file, spans.place.line, "spans of a stored trace", detail, b"\n".join(spans.raws), spans.offset
    )


class Identity(NamedTuple):
    """Hashes of a trace.

    Attributes:
        content: Of what copies share.
        own: Of that and the marks of the attempt; `content` where the log has none.
        wrapped: Of that, the operation and the second of a span that may wrap another, or be wrapped; empty for others.
        wrapping: The hashes that spans around it, or in it, have as `wrapped`.
    """

    content: bytes
    own: bytes
    wrapped: bytes = b""
    wrapping: tuple[bytes, ...] = ()

    @property
    def noted(self) -> tuple[bytes, ...]:
        """What to remember of it; the first says whether it is new."""
        return (self.own,) if self.own == self.content else (self.own, self.content)

    @classmethod
    def of(cls, trace: Trace, content: bytes) -> Identity:
        """The hashes of a trace whose messages, starting point, session and user have the hash `content`."""
        numbers = [trace.info.get(name) for name in NUMBERS]
        has_id = not (MADE.fullmatch(trace.id) and trace.id == _made(trace))
        marks = [trace.id if has_id else None, None if has_id else trace.created, trace.task, *numbers]
        own = content if marks == [None] * len(marks) else hash_of(content, repr(marks).encode("utf-8", "surrogatepass"))
        root, second = trace.info.get("root"), _second(trace.created)
        if trace.info.get("spans") != 1 or not isinstance(root, str) or second is None:
            return cls(content, own)
        operation, is_inner = INNER.sub("", root).encode(), INNER.search(root) is not None

        def around(of_inner: bool, at: int) -> bytes:
            return hash_of(content, b"wrapped", operation, bytes([of_inner]), str(at).encode())

        return cls(content, own, around(is_inner, second), tuple(around(not is_inner, second + step) for step in (-1, 0, 1)))


def are_new(identities: list[Identity], known: HashIndex) -> list[bool]:
    """Whether each trace is the first of its identity; notes all of them."""
    if not any(one.wrapped for one in identities):
        # One look-up of many hashes costs little more than one of a single hash.
        flags = known.add([part for one in identities for part in one.noted])
        firsts = itertools.accumulate((len(one.noted) for one in identities), initial=0)
        return [flags[first] for first, _ in zip(firsts, identities, strict=False)]
    new = []
    for one in identities:
        is_new = not any(map(known.contains, one.wrapping)) and known.add(list(one.noted))[0]
        if is_new and one.wrapped:
            known.add([one.wrapped])
        new.append(is_new)
    return new


def _made(trace: Trace) -> str:
    return made_id(trace.messages, trace.environment, trace.session, trace.user)


def _second(created: str | None) -> int | None:
    try:
        return int(datetime.fromisoformat(created).timestamp()) if created else None
    except (ValueError, OverflowError):
        return None
