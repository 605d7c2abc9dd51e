"""Caches the tools of a log's lines: most lines repeat them verbatim, so they are parsed once.

A line with the tools' text of an earlier line is parsed with a mark in its place. The rest of the line keeps its meaning:
where the tools' text is a key and its value, so is the mark; anywhere else both are invalid JSON.
"""

from __future__ import annotations

import uuid
from typing import Any

import orjson

from tracewheel.traces.json_cutter import CLOSING, OPENING, TOKEN
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.messages import is_strict
from tracewheel.traces.readers.tools import check_tools

Tools = list[dict[str, Any]]

KEY = b'"tools"'
MARK = uuid.uuid4().hex
MARKED = f'"tools":"{MARK}"'.encode()
WRITTEN_KEPT, PARSED_KEPT = 8, 256


class ToolCache:
    """The tools of recent lines, by their text."""

    def __init__(self) -> None:
        self._written: list[tuple[bytes, int, Tools]] = []
        self._parsed: dict[bytes, Tools] = {}

    def parse(self, raw: bytes) -> Any:
        """Parse a line. Its tools are the same list object as an earlier line's if their texts are equal.

        Raises:
            ValueError: the line is not JSON.
        """
        place = raw.find(KEY)
        for written, length, tools in self._written:
            if raw.startswith(written, place):
                record = orjson.loads(raw[:place] + MARKED + raw[place + length :])
                if record.__class__ is dict and record.get("tools") == MARK:
                    record["tools"] = tools
                    return record
                break
        return orjson.loads(raw)

    def checked(self, tools: Any, raw: bytes) -> Tools | None:
        """A line's tools if they are certain to be valid; None if there are none, or they need a full check."""
        for _, _, known in self._written:
            if known is tools:
                return known
        if not tools:
            return None
        text = orjson.dumps(tools)
        sound = self._parsed.get(text)
        if sound is None:
            try:
                sound = check_tools(tools)
            except InvalidRecord:
                return None
            if not is_strict(tools):
                return None
            if len(self._parsed) >= PARSED_KEPT:
                self._parsed.clear()
            self._parsed[text] = sound
            self._learn(raw, sound)
        return sound

    def _learn(self, raw: bytes, tools: Tools) -> None:
        """Cache the text of a line's tools."""
        place = raw.find(KEY)
        end = _end_of_value(raw, place + len(KEY))
        try:
            same = orjson.loads(b"{" + raw[place:end] + b"}") == {"tools": tools}
        except ValueError:
            return
        if same:
            self._written = [(raw[place:end], end - place, tools), *self._written][:WRITTEN_KEPT]


def _end_of_value(raw: bytes, start: int) -> int:
    """The end of the first list or object from `start` on, or of the bytes."""
    depth = 0
    for token in TOKEN.finditer(raw, start):
        byte = raw[token.start()]
        if byte in OPENING:
            depth += 1
        elif byte in CLOSING:
            depth -= 1
            if depth <= 0:
                return token.end()
    return len(raw)
