"""Reads the pieces of logs with the reader of their format: one `Trace` or `Quarantined` for each record."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any

import orjson

from tracewheel.core.log_formats import AUTO, LOG_FORMATS, formats_read, hint
from tracewheel.core.paths import JsonPath
from tracewheel.core.types import Trace
from tracewheel.traces.json_cutter import KEPT_OF_TOO_LARGE, Piece
from tracewheel.traces.places import Origin, Stretch
from tracewheel.traces.quarantine import InvalidRecord, Quarantined
from tracewheel.traces.readers import openai
from tracewheel.traces.readers.fields import NAMES, field_value
from tracewheel.traces.readers.reader import Reader, Signs
from tracewheel.traces.readers.records import Sessions, parse_piece, quarantined, read_or_quarantine, read_record
from tracewheel.traces.readers.tools import ToolCache
from tracewheel.traces.spool import Group, Spool
from tracewheel.traces.statements import TYPE, Statement, statement_of

OWN_READER = "read it with your own: --reader module:Class or mapping.yaml (docs/traces.md)"
LARGEST_LIST = 256 << 20
# Reasons to think that a record is not of the format that it looks like.
MISTAKEN = {
    "no messages",
    "message unreadable",
    "unknown role",
    "tool calls unreadable",
    "content is not text",
    "field unreadable",
}


class LogReader:
    """Reads pieces of one format, or detects the format of each.

    Args:
        format: A format's name, or "auto".
        spool: Collects the parts of groups.
        own: Readers of the user's own, which are tried first.
        fields: Paths of fields, as in `ingest.fields`.
        said: Takes the lines that are no conversation but say how one ended; by default they are passed over.
    """

    def __init__(
        self,
        format: str,
        spool: Spool,
        own: Iterable[Reader] = (),
        fields: Mapping[str, str] | None = None,
        said: Callable[[Statement], None] = lambda statement: None,
    ) -> None:
        own, self._said = tuple(own), said
        readers = [with_fields(reader, fields) for reader in (*own, *built_in_readers(format))]
        self._openai = next((reader for reader in readers if reader.name == openai.FORMAT), openai.READER)
        self._format, self._spool = format, spool
        self._records = [reader for reader in readers if reader.gathers in ("record", "group")]
        self._groups = {reader.name: reader for reader in readers if reader.gathers == "group"}
        self._lists = [reader for reader in readers if reader.gathers == "list"]
        self._usual = self._reads_openai = openai.READER in readers and not own  # never with fields
        self._keys: frozenset[str] | None = None  # of the last record that was found to be of OpenAI's format
        self.sessions = Sessions([reader for reader in readers if reader.gathers == "lines"])
        self._has_own = bool(own)
        self._tool_cache = ToolCache()
        self._ends: tuple[Piece, Piece] | None = None
        self._of_several: Origin = ()

    def origin(self, file: str) -> Origin:
        """Where the item that was read last lies; ask before the next one is read. `file` is the name of the file."""
        return self._of_several or ((Stretch.of(file, *self._ends),) if self._ends else ())

    def read(self, pieces: Iterable[Piece], file: str) -> Iterator[Trace | Quarantined]:
        """Read the pieces of one file; parts of groups are spooled, a session's lines come at the end. No content raises."""
        self.sessions.begin_file()
        self._of_several = ()
        for document, group in groupby(pieces, key=attrgetter("document")):
            read = self._read_list if document else self._read_each
            yield from read(group, file)
        self._ends = self.sessions.ends
        yield from self.sessions.read(file)

    def _read_each(self, pieces: Iterable[Piece], file: str) -> Iterator[Trace | Quarantined]:
        read_usual, cache = openai.read_usual, self._tool_cache
        for piece in pieces:
            self._ends = (piece, piece)
            if self._usual and not piece.damage:
                trace = read_usual(piece.raw, file, piece.line, cache, self._keys)
                if trace is not None:
                    yield trace
                    continue
            try:
                value = parse_piece(piece)
            except InvalidRecord as error:
                yield quarantined(piece, file, error)
                continue
            if isinstance(value, dict) and value.get("type") == TYPE:
                try:
                    self._said(statement_of(value, file, piece.line))
                except InvalidRecord as error:
                    yield quarantined(piece, file, error)
                continue
            if not self._is_own(value) and self.sessions.take(value, piece):
                self._usual = False
                continue
            yield from self._read_value(value, piece, file)

    def _read_list(self, pieces: Iterator[Piece], file: str) -> Iterator[Trace | Quarantined]:
        """Read a list, which holds records or the parts of one record; its first element decides."""
        first = next(pieces)
        self._ends = (first, first)
        try:
            value = parse_piece(first)
        except InvalidRecord as error:
            yield quarantined(first, file, error)
            yield from self._read_each((piece for piece in pieces if piece.raw or not first.damage), file)
            return
        try:
            readers = self._list_readers(value)
        except InvalidRecord as error:
            yield quarantined(first, file, error)
            yield from self._read_each(pieces, file)
            return
        if not readers:
            yield from self._read_value(value, first, file)
            yield from self._read_each(pieces, file)
            return
        parts, size = [first], len(first.raw)
        for piece in pieces:
            size += len(piece.raw)
            if size <= LARGEST_LIST:
                parts.append(piece)
        whole = Piece(b"\n".join(part.raw for part in parts), first.line, first.offset)
        if size > LARGEST_LIST:
            large = whole._replace(raw=whole.raw[:KEPT_OF_TOO_LARGE])
            yield quarantined(
                large, file, InvalidRecord("too large", f"a list of {size} bytes; what is kept of it is its beginning")
            )
            return
        try:
            values = [value, *map(parse_piece, parts[1:])]
        except InvalidRecord as error:
            yield quarantined(whole, file, error)
            return
        reader = next((reader for reader in readers if reader.is_whole is None or reader.is_whole(values)), None)
        self._ends = (first, parts[-1])
        if reader is not None:
            yield read_or_quarantine(reader, values, whole, file)
            return
        for part, one in zip(parts, values, strict=True):
            self._ends = (part, part)
            yield from self._read_value(one, part, file)

    def _list_readers(self, value: Any) -> list[Reader]:
        """The readers of lists that may begin like this; none if the value is a record."""
        if any(reader.recognises(value) for reader in self._records):
            return []
        return [reader for reader in self._lists if reader.recognises(value)]

    def _read_value(self, value: Any, piece: Piece, file: str) -> Iterator[Trace | Quarantined]:
        try:
            readers = self._list_readers(value[0]) if isinstance(value, list) and value else []
        except InvalidRecord as error:
            yield quarantined(piece, file, error)
            return
        whole = next((reader for reader in readers if reader.is_whole is None or reader.is_whole(value)), None)
        if whole is not None:
            yield read_or_quarantine(whole, value, piece, file)
            return
        if isinstance(value, list):
            of_lists = next((reader for reader in self._groups.values() if reader.recognises(value)), None)
            if of_lists is not None:
                yield from self._spool_parts(of_lists, value, piece, file)
                return
        if not isinstance(value, dict):
            detail = f"a record is one JSON object, this is a {type(value).__name__}"
            yield quarantined(piece, file, InvalidRecord("not an object", detail))
            return
        try:
            reader = self._reader_of(value)
        except InvalidRecord as error:
            yield quarantined(piece, file, error)
            return
        if reader is None:
            shown = ", ".join(sorted(map(repr, value))[:8])
            known = "no reader knows" if self._format == AUTO else f"the reader of {self._format} does not know"
            detail = f"{known} an object with the keys {shown:.200}; {self._why_not(value) or OWN_READER}{hint()}"
            yield quarantined(piece, file, InvalidRecord("unknown format", detail))
            return
        self._usual = self._reads_openai and reader is openai.READER
        self._keys = frozenset(value) if self._usual else None
        if reader.parts is not None:
            yield from self._spool_parts(reader, value, piece, file)
            return
        yield from self._read_by(reader, value, piece, file)

    def _read_by(self, reader: Reader, value: dict[str, Any], piece: Piece, file: str) -> Iterator[Trace | Quarantined]:
        """Read a record with its reader; where it only looks like that one's, with the next that recognises it."""
        items = read_record(reader, value, piece, file)
        if reader.split is not None or reader.signs == Signs.OWN or self._format != AUTO:
            yield from items
            return
        (item,) = items
        if isinstance(item, Quarantined) and item.reason in MISTAKEN:
            for other in self._records:
                if other is not reader and other.gathers == "record" and other.split is None and other.recognises(value):
                    again = read_or_quarantine(other, value, piece, file)
                    if isinstance(again, Trace):
                        yield again
                        return
            item = replace(item, detail=f"looks like {reader.name}, but {item.detail}")
        yield item

    def _reader_of(self, value: dict[str, Any]) -> Reader | None:
        """The reader with the most specific signs; OpenAI's for any record if asked for, as it names what is missing."""
        found = next((reader for reader in self._records if reader.recognises(value)), None)
        return self._openai if found is None and self._format == openai.FORMAT else found

    def _why_not(self, value: Any) -> str:
        """Why the user's own readers do not know a record, those that can say it."""
        return "; ".join(f"{reader.name}: {reader.why_not(value)}" for reader in self._records if reader.why_not)

    def _is_own(self, value: Any) -> bool:
        """Whether a reader of the user's own takes a record."""
        if not self._has_own or not isinstance(value, dict):
            return False
        try:
            reader = self._reader_of(value)
        except InvalidRecord:
            return True
        return reader is not None and reader.signs == Signs.OWN

    def _spool_parts(self, reader: Reader, value: Any, piece: Piece, file: str) -> Iterator[Quarantined]:
        assert reader.parts is not None
        try:
            parts = reader.parts(value)
        except InvalidRecord as error:
            yield quarantined(piece, file, error)
            return
        of_file = reader.group_of_file(file) + "|" if reader.group_of_file is not None else ""
        for group, part in parts:
            raw = piece.raw if part is value else orjson.dumps(part)
            self._spool.add(reader.name, f"{of_file}{group}", raw, Stretch.of(file, piece))

    def spooled(self) -> Iterator[tuple[Group | None, Trace | Quarantined]]:
        """Read the traces in the spool: those told apart by their contents, then those of groups, which come with their parts.

        Call it after all files are read.
        """
        chains = {name: reader.chains for name, reader in self._groups.items() if reader.chains is not None}
        for group in self._spool.groups(chains):
            piece = Piece(b"\n".join(group.raws), group.place.line, group.offset)
            chosen, known = self._groups[group.reader], None if group.reader in chains else group
            self._of_several = group.origin
            values = [orjson.loads(raw) for raw in group.raws]
            try:
                stated = chosen.states(values) if chosen.states else None
                for line in stated or ():
                    self._said(statement_of(line, group.place.file, group.place.line))
            except InvalidRecord as error:
                yield known, quarantined(piece, group.place.file, error)
                continue
            if stated is None:
                yield known, read_or_quarantine(chosen, values, piece, group.place.file)


def given_fields(trace: Trace, record: Any, paths: Mapping[str, str]) -> Trace:
    """The trace with the fields of `ingest.fields`; what is not at its path stays as the reader found it.

    Args:
        trace: As read.
        record: The record, or the list of its parts, of which the first that has the path counts.
        paths: Field to path, or to `=` and a constant. A name that is no field of a trace goes to `info`.

    Raises:
        InvalidRecord: what is at a path is not such a field.
    """
    changes: dict[str, Any] = {}
    info = dict(trace.info)
    for field, path in paths.items():
        value = path[1:] if path.startswith("=") else _first(record, JsonPath(path))
        if value is None:
            continue
        if field not in NAMES:
            info[field] = value
            continue
        read = field_value(field, value)
        if read is None and field == "created":
            info["created"] = value
        elif read is None:
            raise InvalidRecord("field unreadable", f"ingest.fields, {field}: what is at '{path}' is {value!r:.60}")
        changes[field] = read
    return replace(trace, info=info, **changes)


def with_fields(reader: Reader, paths: Mapping[str, str] | None) -> Reader:
    """The reader, which then looks for fields at these paths; the same object without paths."""
    if not paths:
        return reader
    return replace(reader, read=lambda value, place: given_fields(reader.read(value, place), value, paths))


def _first(record: Any, path: JsonPath) -> Any:
    for part in record if isinstance(record, list) else [record]:
        if (value := path.get(part)) is not None:
            return value
    return None


@functools.cache
def built_in_readers(format: str = AUTO) -> tuple[Reader, ...]:
    """The readers of a format, of all with `auto`, ordered by how specific the signs are by which they recognise a record."""
    readers = [reader for name in formats_read(format) for reader in LOG_FORMATS[name]]
    return tuple(sorted(readers, key=lambda reader: -reader.signs))
