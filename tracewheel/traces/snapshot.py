"""The snapshot of the logs that a run reads: which bytes of which files, fixed when the run begins.

A file of lines ends at its last complete line; what follows is read by a later run. Compressed files, and files that are
not one record a line, are one slice. What was in an earlier snapshot keeps its slices, so that what is new is a slice of its
own. A file is found by its name or, under another name, by its bytes.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError
from tracewheel.core.fingerprint import digest_file
from tracewheel.core.types import content_hash
from tracewheel.traces.compression import BLOCK, Slice, is_compressed
from tracewheel.traces.discovery import find_logs, find_outcomes, skipped_files
from tracewheel.traces.forgotten import NOBODY, Forgotten
from tracewheel.traces.log_file import BYTE_ORDER_MARK, find_layout
from tracewheel.traces.readers.reading import is_whole_file
from tracewheel.traces.redaction.redactor import Redactor

HEAD = 1024
Content = tuple[int, int, str]
LONGEST_TAIL = 64 << 20


@dataclass(frozen=True)
class LogSlices:
    """What a run reads of one log file.

    Attributes:
        name: The file's name, as traces store it.
        grows: Whether it holds lines, so that more may be appended.
        head: SHA-256 of the first bytes of its first slice, at most `HEAD`.
        slices: What the run's traces are of.
        held: What is left out.
        new: Of `slices`, what no earlier ingest has read.
        tail: The beginning of a last line, to be read all the same. Not recorded.
    """

    name: str
    grows: bool
    head: str
    slices: tuple[Slice, ...]
    held: tuple[Slice, ...] = ()
    new: tuple[Slice, ...] = ()
    tail: Slice | None = None

    @property
    def all(self) -> tuple[Slice, ...]:
        """The slices in order, with those that are left out."""
        return tuple(sorted((*self.slices, *self.held), key=lambda part: part.begin))

    @property
    def digest(self) -> str:
        """Of what is read: the file's SHA-256 where this is one slice from its beginning."""
        if len(self.slices) == 1 and not self.slices[0].begin:
            return self.slices[0].sha256
        return content_hash([part.sha256 for part in self.slices], length=64)

    def to_record(self) -> dict[str, Any]:
        """JSON types."""
        return {name: value for name, value in asdict(self).items() if name != "tail"}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> LogSlices:
        """The inverse of `to_record`."""
        slices, held, new = (tuple(Slice(**part) for part in record[name]) for name in ("slices", "held", "new"))
        return cls(record["name"], record["grows"], record["head"], slices, held, new)


@dataclass(frozen=True)
class Earlier:
    """The ingest that another one continues: the name and the digest of its entry in the store."""

    entry: str
    digest: str


@dataclass(frozen=True)
class Links:
    """Where an ingest finds the one that it continues, and where it leaves what its own successor needs.

    Attributes:
        state: The folder to write that to (`link_state`).
        last: The file to write the snapshot to, whose slices stay slices.
        earlier: The entry that it continues.
        earlier_state: What that ingest left.
    """

    state: Path
    last: Path
    earlier: Path | None = None
    earlier_state: Path | None = None


@dataclass(frozen=True)
class Snapshot:
    """What a run reads of its logs.

    Attributes:
        files: The files with something in them, in the order in which they are read.
        skipped: Files in folders that are not logs, for the report of the ingest.
        unfinished: Of files that end within a line, the bytes that wait for its end.
        earlier: The ingest that this one continues.
        forgotten: Whose records are left out.
        outcomes: SHA-256 of each file of outcomes by its name. They are read whole by each ingest.
        places: Of each of `files` the name to read it under, with what is redacted, and where it lies now. Not recorded.
        links: Places of the chain of ingests. Not recorded.
        outcome_places: Where the files of outcomes lie now. Not recorded.
    """

    files: tuple[LogSlices, ...]
    skipped: tuple[str, ...] = ()
    unfinished: dict[str, int] = field(default_factory=dict)
    earlier: Earlier | None = None
    forgotten: Forgotten = NOBODY
    outcomes: dict[str, str] = field(default_factory=dict)
    places: tuple[tuple[str, Path], ...] = field(default=(), compare=False, repr=False)
    links: Links | None = field(default=None, compare=False, repr=False)
    outcome_places: dict[str, Path] = field(default_factory=dict, compare=False, repr=False)

    @property
    def digests(self) -> dict[str, str]:
        """The digest of what is read of each file."""
        return {log.name: log.digest for log in self.files if log.slices}

    @property
    def digest(self) -> str:
        """Of everything that an ingest of it depends on."""
        read = [[log.name, [asdict(part) for part in log.new]] for log in self.files if log.new]
        without = [self.forgotten.digest] if self.forgotten else []
        said = [self.outcomes_digest] if self.outcomes else []
        return content_hash([self.earlier.digest if self.earlier else None, read, self.skipped, *without, *said])

    @property
    def outcomes_digest(self) -> str:
        """Of what the files of outcomes hold, wherever they lie; empty without any."""
        return content_hash(sorted(self.outcomes.values())) if self.outcomes else ""

    @property
    def contents(self) -> frozenset[Content]:
        """What its traces are of, wherever it lies."""
        return frozenset(content_of(part) for log in self.files for part in log.slices)

    def after(self, earlier: Earlier | None, contents: Collection[Content] = ()) -> Snapshot:
        """The snapshot as continued from an ingest that has read these slices."""
        files = [replace(log, new=tuple(part for part in log.slices if content_of(part) not in contents)) for log in self.files]
        return replace(self, files=tuple(files), earlier=earlier)

    def renamed(self, name: Callable[[str], str]) -> Snapshot:
        """The snapshot with other names of its files."""
        files = tuple(replace(log, name=name(log.name)) for log in self.files)
        unfinished = {name(file): size for file, size in self.unfinished.items()}
        return replace(self, files=files, skipped=tuple(map(name, self.skipped)), unfinished=unfinished)

    def to_record(self) -> dict[str, Any]:
        """JSON types."""
        return {
            "files": [log.to_record() for log in self.files],
            "skipped": list(self.skipped),
            "unfinished": self.unfinished,
            "earlier": asdict(self.earlier) if self.earlier else None,
            **({"forgotten": sorted(self.forgotten.hashes)} if self.forgotten else {}),
            **({"outcomes": self.outcomes} if self.outcomes else {}),
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Snapshot:
        """The inverse of `to_record`, without places."""
        files = tuple(map(LogSlices.from_record, record["files"]))
        earlier = Earlier(**record["earlier"]) if record["earlier"] else None
        forgotten = Forgotten(frozenset(record.get("forgotten", ())))
        outcomes = dict(record.get("outcomes", {}))
        return cls(files, tuple(record["skipped"]), dict(record["unfinished"]), earlier, forgotten, outcomes)


def content_of(part: Slice) -> Content:
    """What identifies a slice wherever it lies."""
    return part.begin, part.end, part.sha256


def take_snapshot(
    config: IngestConfig,
    earlier: Snapshot | None = None,
    held: Collection[str] = (),
    *,
    without: Path | None = None,
    with_tails: bool = False,
) -> Snapshot:
    """Fix what a run reads of the logs as they are now.

    Args:
        config: Which logs.
        earlier: The last snapshot of these logs, whose slices stay slices.
        held: SHA-256 of slices to leave out.
        without: A folder to leave out: the output folder.
        with_tails: Whether to read the beginning of a last line, too, unless `earlier` had it already.

    Raises:
        DataError: a path has no log file, or one cannot be read.
    """
    redactor, known = Redactor(config.redaction), _Known(earlier.files if earlier else ())
    waited = earlier.unfinished if earlier else {}
    found = find_logs(config, without)
    files, places, unfinished = [], [], {}
    names = {raw_name: redactor.name(raw_name) for raw_name in found}
    for raw_name, path in found.items():
        name = names[raw_name]
        try:
            log, waiting = _scan(path, name, known)
            renamed = log.name != name and log.name not in names.values()
            log = _without(log if renamed else replace(log, name=name), held)
            if waiting:
                unfinished[log.name] = waiting
                log = _with_tail(log, path, waiting) if with_tails and waited.get(log.name) != waiting else log
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
        if log.all or log.tail:
            files.append(log)
            places.append((log.name if renamed else raw_name, path))
    said = {redactor.name(name): path for name, path in find_outcomes(config).items()}
    skipped = tuple(redactor.name(name) for name in skipped_files(config.paths, [*found.values(), *said.values()], without))
    digests = {name: digest_file(path) for name, path in said.items()}
    return Snapshot(tuple(files), skipped, unfinished, outcomes=digests, places=tuple(places), outcome_places=said)


def placed(snapshot: Snapshot, config: IngestConfig) -> Snapshot | None:
    """A snapshot of earlier with the places of its files; None where these do not hold its bytes any more.

    A file that was appended to holds them still, and so does one of another name with the same bytes.
    """
    redactor = Redactor(config.redaction)
    try:
        found, said = find_logs(config), find_outcomes(config).values()
    except DataError:
        return None
    by_digest = {digest_file(path): path for path in said}
    if not by_digest.keys() >= set(snapshot.outcomes.values()):
        return None
    own = {redactor.name(raw_name): (raw_name, path) for raw_name, path in found.items()}
    places = []
    for log in snapshot.files:
        others = ((log.name, path) for path in found.values())
        tried = itertools.chain([own[log.name]] if log.name in own else [], others)
        place = next((place for place in tried if _holds(place[1], log)), None)
        if place is None:
            return None
        places.append(place)
    outcome_places = {name: by_digest[digest] for name, digest in snapshot.outcomes.items()}
    return replace(snapshot, places=tuple(places), outcome_places=outcome_places)


class _Known:
    """Files of an earlier snapshot, by name and by how they begin."""

    def __init__(self, logs: Iterable[LogSlices]) -> None:
        self._by_name = {log.name: log for log in logs}
        self._by_head: dict[int, dict[str, list[LogSlices]]] = {}
        for log in self._by_name.values():
            self._by_head.setdefault(min(HEAD, log.all[0].end), {}).setdefault(log.head, []).append(log)

    def candidates(self, name: str, path: Path) -> Iterator[LogSlices]:
        """The files that this one may be, the one of its name first, then those with the most bytes."""
        own = self._by_name.get(name)
        if own:
            yield own
        with path.open("rb") as file:
            start = file.read(HEAD)
        alike = [
            log
            for length, of_length in self._by_head.items()
            if length <= len(start)
            for log in of_length.get(hashlib.sha256(start[:length]).hexdigest(), ())
            if log is not own
        ]
        yield from sorted(alike, key=lambda log: -log.all[-1].end)


def _scan(path: Path, name: str, known: _Known) -> tuple[LogSlices, int]:
    """The slices of a file as it is now, under the name by which it is known, and the bytes of its unfinished last line."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        grows = not is_whole_file(path) and not is_compressed(path) and find_layout(path) == "lines"
        earlier: tuple[Slice, ...] = ()
        for log in known.candidates(name, path):
            fits = log.grows == grows and (grows or log.all[-1].end == size)
            if fits and _matches(file, log.all):
                earlier, name = log.all, log.name
                break
        begin, line = (earlier[-1].end, earlier[-1].next_line) if earlier else (0, 1)
        new = _lines(file, begin, line, size) if grows else _whole(file, begin, size)
        every = (*earlier, *([new] if new else []))
        end = every[-1].end if every else 0
        head = _digest(file, 0, min(HEAD, every[0].end)) if every else ""
    return LogSlices(name, grows, head, every, new=every), size - end


def _holds(path: Path, log: LogSlices) -> bool:
    """Whether a file holds what was read of another one, or of itself earlier."""
    try:
        size = path.stat().st_size
        if size < log.all[-1].end or (not log.grows and size > log.all[-1].end):
            return False
        with path.open("rb") as file:
            begins_alike = _digest(file, 0, min(HEAD, log.all[0].end)) == log.head
            return begins_alike and _matches(file, log.all)
    except OSError:
        return False


def _matches(file: BinaryIO, slices: Sequence[Slice]) -> bool:
    return all(_digest(file, part.begin, part.end) == part.sha256 for part in slices)


def _digest(file: BinaryIO, begin: int, end: int) -> str:
    file.seek(begin)
    digest, left = hashlib.sha256(), end - begin
    while left and (block := file.read(min(left, BLOCK))):
        digest.update(block)
        left -= len(block)
    return digest.hexdigest()


def _whole(file: BinaryIO, begin: int, end: int) -> Slice | None:
    return Slice(begin, end, 1, 1, _digest(file, begin, end)) if end > begin else None


def _lines(file: BinaryIO, begin: int, line: int, size: int) -> Slice | None:
    """The complete lines from a byte on; the last one needs no line end if it is a complete JSON value."""
    digest, at, number = hashlib.sha256(), begin, line
    end, complete, next_line = begin, digest.copy(), line
    file.seek(begin)
    while at < size and (block := file.read(min(size - at, BLOCK))):
        last = block.rfind(b"\n") + 1
        digest.update(block[:last])
        if last:
            number += block.count(b"\n")
            end, complete, next_line = at + last, digest.copy(), number
        digest.update(block[last:])
        at += len(block)
    if at > end and _is_value(file, end, at):
        end, complete = at, digest
    return Slice(begin, end, line, next_line, complete.hexdigest()) if end > begin else None


def _is_value(file: BinaryIO, begin: int, end: int) -> bool:
    """Whether some bytes are a complete object or list, which more bytes would not complete to another one."""
    if end - begin > LONGEST_TAIL:
        return False
    file.seek(begin)
    text = file.read(end - begin).removeprefix(BYTE_ORDER_MARK).strip()
    if text[-1:] not in (b"}", b"]"):
        return False
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def _with_tail(log: LogSlices, path: Path, size: int) -> LogSlices:
    begin, line = (log.all[-1].end, log.all[-1].next_line) if log.all else (0, 1)
    with path.open("rb") as file:
        return replace(log, tail=Slice(begin, begin + size, line, line, _digest(file, begin, begin + size)))


def _without(log: LogSlices, held: Collection[str]) -> LogSlices:
    kept = tuple(part for part in log.all if part.sha256 not in held)
    return replace(log, slices=kept, held=tuple(part for part in log.all if part.sha256 in held), new=kept)
