"""Remembers the tools of a log's lines: most repeat them word for word, so that they need not be parsed again.

A line whose tools are written like those of an earlier one is parsed with a mark in their place. That cannot change what
else it says: where the written tools are a key and its value, so is the mark; anywhere else both are invalid.
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
    """The tools of the lines seen so far, as they are written and as they are."""

    def __init__(self) -> None:
        self._written: list[tuple[bytes, int, Tools]] = []
        self._parsed: dict[bytes, Tools] = {}

    def parse(self, raw: bytes) -> Any:
        """The value of a line; its tools are the very list of an earlier line where they are written like that one's.

        Raises:
            ValueError: it is not JSON.
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
        """The tools of a line, if they are sound for certain; None if there are none, or they need a closer look."""
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
        """Remember how a line writes its tools."""
        place = raw.find(KEY)
        end = _end_of_value(raw, place + len(KEY))
        try:
            same = orjson.loads(b"{" + raw[place:end] + b"}") == {"tools": tools}
        except ValueError:
            return
        if same:
            self._written = [(raw[place:end], end - place, tools), *self._written][:WRITTEN_KEPT]


def _end_of_value(raw: bytes, start: int) -> int:
    """Where the list or object ends that begins at or after `start`; where the bytes end, if it does not."""
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
