"""Readers that are data: each file of `mappings/` says how the sessions of one agent are read, in the words of a mapping.

`messages` are a mapping's rules (`docs/traces.md`), from a line of the session's file on or, with `conversation`, from an
element of the list at that path of a record. The other keys:

| key | what |
|---|---|
| `begins` | values of the lines, or of the record, by which the format is known: one object or several |
| `branch` | the keys of a line's id and of the line before: only what leads to the last line is read |
| `restarts` | values of a line with which a new conversation begins, as after a compaction |
| `records` | the path of a list of conversations in one record; the other paths begin at its elements |
| `same` | keys that name the conversation: lines with another value are of another one, and are refused |
| `no_result` | what stands for the result of a call where the log holds none |
| `tools`, `fields` | paths; the first line that has something there counts |
| `instead` | of files that hold no conversation: what they hold, and what to ingest instead |

Calls without a result before the next message, which a user has interrupted, are left out and counted, as the agents do.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from tracewheel import (
    InvalidRecord,
    JsonPath,
    Part,
    Place,
    RawTrace,
    Reader,
    SessionLine,
    Signs,
    Trace,
    as_tools,
    build_trace,
    parsed_json,
    texts_of,
    tie_calls,
)
from tracewheel_logs.mapping import MappingReader

FOLDER = Path(__file__).with_name("mappings")
KEYS = {"begins", "same", "branch", "restarts", "records", "no_result", "tools", "fields", "instead"}
LONGEST_NAME = 60
Lines = list[dict[str, Any]]


def __getattr__(name: str) -> tuple[Reader, ...]:
    """The readers of a format, as `copilot_cli`."""
    if not (FOLDER / f"{name}.yaml").is_file():
        raise AttributeError(name)
    given = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return tuple(reader for one in (given if isinstance(given, list) else [given]) for reader in _Mapped(name, one).readers())


class _Mapped:
    """The readers of one mapping."""

    def __init__(self, name: str, given: dict[str, Any]) -> None:
        self.name, self._own = name, {key: given.pop(key, None) for key in KEYS}
        begins = self._own["begins"]
        self._path = given.get("conversation")
        self._mapping = MappingReader(**{"name": name, "conversation": ".", **given})
        paths = [self._path or "", given.get("system") or "", self._own["tools"] or "", *(self._own["fields"] or {}).values()]
        self._used = set(map(_top, paths))
        listed = begins if isinstance(begins, list) else [begins]
        self._keys = [set(map(_top, when)) for when in listed]
        self._begins = [MappingReader(conversation=".", when=when) for when in listed]
        self._restarts = MappingReader(conversation=".", when=self._own["restarts"]) if self._own["restarts"] else None

    def readers(self) -> tuple[Reader, ...]:
        if self._own["instead"]:
            return (Reader(self.name, self._recognises, self._refuse),)
        if self._path:
            split = self._records if self._own["records"] else None
            return (Reader(self.name, self._recognises, self._read_record, signs=Signs.NAMED, split=split),)
        return (Reader(self.name, self._recognises, self._read, "lines", split=self._split, continues=self._continues),)

    def _recognises(self, value: Any) -> bool:
        if not isinstance(value, dict) or not any(keys <= value.keys() for keys in self._keys):
            return False
        if not any(one.why_not(value) is None for one in self._begins):
            return False
        path = self._own["records"] or self._path
        return not path or path == "." or isinstance(parsed_json(JsonPath(path).get(value)), list)

    def _refuse(self, value: Any, place: Place) -> Trace:
        raise InvalidRecord("unknown format", self._own["instead"])

    def _records(self, value: Any) -> Iterator[Part]:
        return (Part(one, None, one) for one in JsonPath(self._own["records"]).find(value))

    def _continues(self, value: Any) -> bool:
        return isinstance(value, dict) and (isinstance(value.get("type"), str) or self._mapping.fits(value))

    def _split(self, lines: Sequence[SessionLine]) -> Iterator[Part]:
        """The conversations of a session.

        Raises:
            InvalidRecord: the lines are of several, which only the user's own mapping can tell apart.
        """
        for key in self._own["same"] or ():
            if len({line.value[key] for line in lines if isinstance(line.value.get(key), str)}) > 1:
                raise InvalidRecord(
                    "unknown format",
                    f"messages of several conversations by '{key}': read them with a mapping that has 'group: {key}'",
                )
        said = [lines[at] for at in self._on_branch([line.value for line in lines])]
        begun = [0, *(at for at, line in enumerate(said) if at and self._restarts and self._restarts.recognises(line.value))]
        for number, (start, end) in enumerate(zip(begun, [*begun[1:], len(said)], strict=True)):
            values = [line.value for line in said[start:end]]
            known = [value for value in values if self._mapping.fits(value) or not _is_quiet(value)]
            left = {"lines of other branches": len(lines) - len(said), "lines of unknown kinds": len(values) - len(known)}
            values = known
            if any(message["role"] == "assistant" for message in self._mapping.messages(values)):
                head = [line.value for line in said[: begun[1]]] if number else []
                yield Part((values, head, number, left), said[start].line, values)

    def _on_branch(self, values: Lines, before: int | None = None) -> list[int]:
        """The places that lead to the last value that has an id; one whose parent is not there follows the one before it.

        Args:
            values: Lines of a session, or elements of a record's list.
            before: The place that leads to a value whose parent is named and not there, in place of the one before it.
        """
        if not self._own["branch"]:
            return list(range(len(values)))
        key, parent = map(JsonPath, self._own["branch"])
        ids = [key.get(value) for value in values]
        places = {identity: at for at, identity in enumerate(ids) if isinstance(identity, str)}
        at, kept = len(values) - 1, set[int]()
        while at >= 0 and at not in kept:
            kept.add(at)
            above = parent.get(values[at])
            repeated = at and ids[at - 1] == ids[at]
            named = isinstance(above, str) and not repeated
            at = places.get(above, at - 1 if before is None else before) if named else at - 1
        return sorted(kept)

    def _read_record(self, value: Any, place: Place) -> Trace:
        rest = {key: part for key, part in value.items() if key not in self._used}
        found = parsed_json(JsonPath(str(self._path)).find(value))
        listed = found if isinstance(found, list) else [found]
        said = [listed[at] for at in self._on_branch(listed, before=-1)]
        return self._trace(said, [value], 0, {"messages of other branches": len(listed) - len(said)}, place, rest)

    def _read(self, value: Any, place: Place) -> Trace:
        values, head, number, left = value
        return self._trace(values, [*head, *values], number, left, place)

    def _trace(self, values: Lines, about: Lines, number: int, left: dict[str, int], place: Place, rest: Any = None) -> Trace:
        messages = tie_calls(self._mapping.messages(values))
        if not messages:
            raise InvalidRecord("no messages", f"the {self.name} log holds no conversation")
        messages, dropped = _answered(messages, self._own["no_result"])
        left = {**left, "calls without a result": dropped}
        found = {field: _first(path, about) for field, path in (self._own["fields"] or {}).items()}
        identity = found.pop("id", None)
        tools = as_tools(_first(self._own["tools"], about)) if self._own["tools"] else None
        session = found.pop("session", identity)
        return build_trace(
            self.name,
            place,
            RawTrace(
                messages,
                id=f"{identity}/{number}" if identity and number else identity,
                session=session,
                tools=tools,
                info=(rest or {})
                | found
                | {"left_out": {what: count for what, count in left.items() if count}, "stretch": number or None},
            ),
        )


def _top(path: str) -> str:
    """The key of the record that a path begins with."""
    return path.partition(".")[0].partition("[")[0]


def _is_quiet(value: dict[str, Any]) -> bool:
    """Whether a line of a kind that the mapping does not know says nothing in words."""
    return not any(len(text) > LONGEST_NAME and " " in text for text in texts_of(value))


def _first(path: str, values: Lines) -> Any:
    if path.startswith("="):
        return path[1:]
    return next((found for value in values if (found := JsonPath(path).get(value)) not in (None, "", [], {})), None)


def _answered(messages: Lines, no_result: str | None) -> tuple[Lines, int]:
    """The messages with a result for each call, and how many calls were left out; the last turn may end with its calls.

    A result belongs to its call wherever it stands.
    """
    last = max((at for at, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    results: dict[tuple[str, int], dict[str, Any]] = {}
    turns: dict[str, int] = {}
    for at, message in enumerate(messages):
        turns |= {call["id"]: at for call in message.get("tool_calls", ())}
        if message["role"] == "tool" and message.get("tool_call_id") in turns:
            results.setdefault((message["tool_call_id"], turns[message["tool_call_id"]]), message)
    kept: Lines = []
    dropped = 0
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in turns:
                kept.append(message)
            continue
        calls, replies = [], []
        for call in message.get("tool_calls", ()):
            reply = results.get((call["id"], at))
            if reply is None and no_result and at != len(messages) - 1:
                reply = {"role": "tool", "tool_call_id": call["id"], "content": no_result}
            if reply is not None or at == last:
                calls.append(call)
            replies += [reply] if reply is not None else []
        dropped += len(message.get("tool_calls", ())) - len(calls)
        if "tool_calls" in message:
            message = {key: part for key, part in message.items() if key != "tool_calls"} | (
                {"tool_calls": calls} if calls else {}
            )
            if not calls and not message.get("content"):
                continue
        kept += [message, *replies]
    return kept, dropped


@functools.cache
def mapped_formats() -> tuple[str, ...]:
    """The formats that are data."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.yaml")))
