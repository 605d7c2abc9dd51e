"""Logs by the time at which each of their records existed, so that a simulated day reads nothing from later.

A record exists from the latest of the times that its trace (`created`), its span (the end) or its line (`timestamp` and such)
have. A line without any exists from the next line on that has one, and at the end of a file from the last one. A file without
times at all exists as a whole from the date in its name, or of its last change. A JSON document (an array, a file that is one
value), a compressed file and a Parquet file exist from their last record on, because nobody can write half of one.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError
from tracewheel.core.types import Trace
from tracewheel.traces.compression import is_compressed
from tracewheel.traces.discovery import find_files
from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.log_file import BYTE_ORDER_MARK, LogFile
from tracewheel.traces.readers.fields import nanoseconds, utc_time
from tracewheel.traces.readers.log_reader import LogReader
from tracewheel.traces.readers.plugins import own_readers
from tracewheel.traces.readers.reading import whole_file_pieces
from tracewheel.traces.readers.spans import is_span, span_values
from tracewheel.traces.spool import Spool

NEVER = np.iinfo(np.int64).min
BLOCK = 1 << 20
NAMES = {
    "created", "createdat", "createtime", "creationtime", "timestamp", "time", "datetime", "loggedat", "ts",
    "start", "starttime", "startedat", "end", "endtime", "endedat", "finishedat", "completedat", "updatedat",
}  # fmt: skip
SPAN_ENDS = (
    "endTimeUnixNano", "end_time_unix_nano", "endTime", "end_time", "end_time_ns",
    "startTimeUnixNano", "start_time_unix_nano", "startTime", "start_time", "start_time_ns",
)  # fmt: skip
STAMP = re.compile(rb'"([12]\d{3}-[01]\d-[0-3]\d[T ][0-2]\d:[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?)\s?(Z|UTC|GMT|[+-]\d\d:?\d\d)?"')
DATED = re.compile(r"(?<!\d)([12]\d{3})-?([01]\d)-?([0-3]\d)(?!\d)")
ZONELESS, UTC_NAMES = "no zone", {b"Z", b"UTC", b"GMT", b"+00:00", b"+0000", b"-00:00"}


@dataclass(frozen=True)
class LogHistory:
    """A log file by the times of its records.

    Attributes:
        name: Its name among the logs.
        path: Where it lies.
        whole: Whether it appears as a whole.
        times: [N] microseconds since 1970 from which each line exists, in the order of the lines; one for a whole file.
        begins, lengths: [N] where each line is in the uncompressed bytes of the file.
        digest: SHA-256 of the stored file.
        source: Where its times are from: `records`, `name` or `change`.
    """

    name: str
    path: Path
    whole: bool
    times: np.ndarray[Any, np.dtype[np.int64]]
    begins: np.ndarray[Any, np.dtype[np.int64]]
    lengths: np.ndarray[Any, np.dtype[np.int64]]
    digest: str
    source: str


@dataclass
class History:
    """The logs by time, and what is to be said of their times.

    Attributes:
        zones: How many records have their time in which zone, as logged.
        first_of: The first record of each of them, as file:line.
    """

    logs: list[LogHistory]
    zones: Counter[str] = field(default_factory=Counter)
    first_of: dict[str, str] = field(default_factory=dict)

    @property
    def span(self) -> tuple[datetime, datetime]:
        """The times of the first and of the last record."""
        low, high = min(int(log.times.min()) for log in self.logs), max(int(log.times.max()) for log in self.logs)
        return _moment(low), _moment(high)

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each file by its name."""
        return {log.name: log.digest for log in self.logs}

    def count(self, begin: datetime | None, end: datetime) -> int:
        """How many records begin to exist from `begin` up to `end`, which is not included."""
        low = NEVER if begin is None else _micros(begin)
        return sum(int(((log.times >= low) & (log.times < _micros(end))).sum()) for log in self.logs)

    def check_zones(self, *, assume_utc: bool) -> None:
        """Refuse logs of which some times have a zone and others have none: how they follow one another is not known.

        Raises:
            DataError: they are such.
        """
        others = sorted(set(self.zones) - {ZONELESS})
        if ZONELESS not in self.zones or not others or assume_utc:
            return
        raise DataError(
            f"{self.first_of[ZONELESS]}: its time has no zone, as those of {self.zones[ZONELESS]} records, and "
            f"{self.first_of[others[0]]} has one ({others[0]}): which came first is not known. Write the zone into the logs, "
            "or count times without one as UTC with --assume-utc"
        )

    def says(self) -> list[str]:
        """What a person should know of the times."""
        said = []
        if set(self.zones) == {ZONELESS}:
            said.append("the times of the logs have no zone: they count as UTC")
        elif len(self.zones) > 1:
            zones = ", ".join(f"{zone} ({count})" for zone, count in sorted(self.zones.items()))
            said.append(f"the times of the logs are of several zones, and compared in UTC: {zones}")
        for source, words in (("name", "by the dates in their names"), ("change", "by the dates of their last change")):
            names = [log.name for log in self.logs if log.source == source]
            if names:
                said.append(f"the records of {_shown(names)} have no times: the files count {words}")
        if whole := [log.name for log in self.logs if log.whole and log.source == "records"]:
            said.append(f"{_shown(whole)}: read as a whole, and so not before the last record")
        return said

    def extend(self, folder: Path, after: datetime | None, until: datetime) -> int:
        """Bring a folder of logs to what existed before `until`; returns the records that are new since `after`.

        Files only grow. Doing it again after a kill changes nothing.
        """
        for log in self.logs:
            if upto := int((log.times < _micros(until)).sum()):
                _write(log, folder / log.name, upto)
        return self.count(after, until)


def read_history(config: IngestConfig) -> History:
    """Read all logs once, for the times of their records. Files without a record are left out.

    Raises:
        DataError: a path has no log file, one cannot be read, or none has a record.
    """
    history = History([])
    for name, path in find_files(config.paths).items():
        try:
            if log := _index(config, name, path, history):
                history.logs.append(log)
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not history.logs:
        raise DataError(f"{', '.join(config.paths)}: none of the log files has a record")
    return history


def _index(config: IngestConfig, name: str, path: Path, history: History) -> LogHistory | None:
    largest, expansion = config.largest_record_mib << 20, config.largest_expansion
    pieces, whole = whole_file_pieces(path, largest, expansion), True
    if pieces is None:
        log = LogFile(path, largest=largest, expansion=expansion)
        pieces, whole = log.pieces(), log.layout != "lines" or is_compressed(path)
    lines = _Lines(history, name)
    with Spool() as spool:
        reader = LogReader(config.format, spool, own_readers(config.readers), config.fields)
        for item in reader.read(lines.noted(pieces), name):
            if isinstance(item, Trace):
                lines.made(item)
        for _, item in reader.spooled():
            if isinstance(item, Trace):
                lines.made(item)
    times, source = lines.times(), "records"
    if not len(times):
        return None
    if times.max() == NEVER:
        dated = DATED.search(path.name)
        moment, source = _file_time(path, dated), "name" if dated else "change"
        times = np.full(1 if whole else len(times), moment, dtype=np.int64)
    begins, lengths = (np.frombuffer(values, dtype=np.int64) for values in (lines.begins, lines.lengths))
    if whole:
        times = np.array([times.max()])
        begins, lengths = np.zeros(1, np.int64), np.zeros(1, np.int64)
    elif begins[0] == 0:  # a byte order mark is no part of the first line
        with path.open("rb") as file:
            begins = begins + np.where(begins == 0, len(BYTE_ORDER_MARK) * (file.read(3) == BYTE_ORDER_MARK), 0)
    return LogHistory(name, path, whole, times, begins, lengths, _sha256(path), source)


class _Lines:
    """The lines of a file, as they are read, and what is known of their times."""

    def __init__(self, history: History, name: str) -> None:
        self._history, self._name = history, name
        self.begins, self.lengths, self._times = array("q"), array("q"), array("q")
        self._place: dict[int, int] = {}
        self._raw: dict[int, bytes] = {}

    def noted(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            self._place[piece.line] = len(self._times)
            moment, logged = _of_value(piece)
            self.begins.append(piece.offset)
            self.lengths.append(len(piece.raw) if not piece.damage else 0)
            self._times.append(moment)
            if logged:
                self._count(piece.raw, moment, piece.line)
            else:
                self._raw = {piece.line: piece.raw}  # of the record that is being read
            yield piece

    def made(self, trace: Trace) -> None:
        """A trace was made of the lines from its own on."""
        if not trace.created or trace.source_file != self._name or trace.source_line not in self._place:
            return
        place, moment = self._place[trace.source_line], _micros(datetime.fromisoformat(trace.created))
        if self._times[place] == NEVER and (raw := self._raw.get(trace.source_line)):
            self._count(raw, moment, trace.source_line)
        self._times[place] = max(self._times[place], moment)

    def times(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """[N] when each line began to exist; `NEVER` where no line of the file says it."""
        times = np.frombuffer(self._times, dtype=np.int64).copy()
        known = np.flatnonzero(times != NEVER)
        if len(known):
            following = np.minimum(np.searchsorted(known, np.arange(len(times))), len(known) - 1)
            times = np.where(times == NEVER, times[known[following]], times)
        return times

    def _count(self, raw: bytes, moment: int, line: int) -> None:
        zone = _zone_of(raw, moment)
        self._history.zones[zone] += 1
        self._history.first_of.setdefault(zone, f"{self._name}:{line}")


def _of_value(piece: Piece) -> tuple[int, bool]:
    """From when on a line exists by its own fields, and whether they say it."""
    if piece.damage:
        return NEVER, False
    try:
        value = orjson.loads(piece.raw)
    except ValueError:
        return NEVER, False
    spans = span_values(value) or ([value] if is_span(value) else [])
    found = [_span_end(span) for span in spans if isinstance(span, dict)]
    if not found and isinstance(value, dict):
        texts = [utc_time(value[key]) for key in value if _plain(key) in NAMES]
        found = [_micros(datetime.fromisoformat(text)) for text in texts if text]
    latest = max(found, default=NEVER)
    return latest, latest != NEVER


def _span_end(span: dict[str, Any]) -> int:
    found = nanoseconds(next((span[key] for key in SPAN_ENDS if span.get(key)), None))
    return found // 1000 if found else NEVER


def _zone_of(raw: bytes, moment: int) -> str:
    """The zone of the time that a record is known by, as it is written there; numbers are UTC."""
    for text, zone in STAMP.findall(raw):
        read = utc_time((text + zone).decode())
        if read and _micros(datetime.fromisoformat(read)) == moment:
            return "UTC" if zone in UTC_NAMES else zone.decode() or ZONELESS
    return "UTC"


def _write(log: LogHistory, path: Path, upto: int) -> None:
    """Let a file hold the first `upto` records of a log in the order of their times. What it holds of them already stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    size = path.stat().st_size if path.is_file() else 0
    if log.whole:
        if size != log.path.stat().st_size:
            shutil.copyfile(log.path, path)
        return
    order = np.argsort(log.times, kind="stable")[:upto]
    order = order[log.lengths[order] > 0]
    ends = np.cumsum(log.lengths[order] + 1)
    known = int(np.searchsorted(ends, size, side="right"))
    if size != (ends[known - 1] if known else 0):  # a kill left half of a line
        known = 0
    with log.path.open("rb") as source, path.open("ab" if known else "wb") as file:
        for place in order[known:]:
            source.seek(int(log.begins[place]))
            file.write(source.read(int(log.lengths[place])) + b"\n")


def _file_time(path: Path, dated: re.Match[str] | None) -> int:
    if dated:
        try:
            return _micros(datetime(*map(int, dated.groups()), tzinfo=UTC))  # type: ignore[misc,arg-type]
        except ValueError:
            pass
    return path.stat().st_mtime_ns // 1000


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _micros(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1_000_000)


def _moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1_000_000, UTC)


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _shown(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
