"""Readers that are data: each file of `mappings/` says how the sessions of one agent are read, in the words of a mapping.

`messages` are a mapping's rules (`docs/traces.md`), from a line of the session's file on or, with `conversation`, from an
element of the list at that path of a record. The other keys:

| key | what |
|---|---|
| `begins` | values of the lines, or of the record, by which the format is known: one object or several |
| `branch` | the keys of a line's id and of the line before: only what leads to the last line is read |
| `restarts` | values of a line with which a new conversation begins, as after a compaction |
| `same` | keys that name the conversation: lines with another value are of another one, and are refused |
| `no_result` | what stands for the result of a call where the log holds none |
| `tools`, `fields` | paths; the first line that has something there counts |

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
    MappingReader,
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

FOLDER = Path(__file__).with_name("mappings")
KEYS = {"begins", "same", "branch", "restarts", "no_result", "tools", "fields"}
LONGEST_NAME = 60
Lines = list[dict[str, Any]]


def __getattr__(name: str) -> tuple[Reader, ...]:
    """The readers of a format, as `copilot_cli`."""
    if not (FOLDER / f"{name}.yaml").is_file():
        raise AttributeError(name)
    return _Mapped(name).readers()


class _Mapped:
    """The readers of one file."""

    def __init__(self, name: str) -> None:
        given = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
        self.name, self._own = name, {key: given.pop(key, None) for key in KEYS}
        begins = self._own["begins"]
        self._path = given.get("conversation")
        self._mapping = MappingReader(**{"name": name, "conversation": ".", **given})
        paths = [self._path or "", given.get("system") or "", self._own["tools"] or "", *(self._own["fields"] or {}).values()]
        self._used = {path.partition(".")[0].partition("[")[0] for path in paths}
        listed = begins if isinstance(begins, list) else [begins]
        self._keys = [{path.partition(".")[0] for path in when} for when in listed]
        self._begins = [MappingReader(conversation=".", when=when) for when in listed]
        self._restarts = MappingReader(conversation=".", when=self._own["restarts"]) if self._own["restarts"] else None

    def readers(self) -> tuple[Reader, ...]:
        if self._path:
            return (Reader(self.name, self._recognises, self._read_record, signs=Signs.NAMED),)
        return (Reader(self.name, self._recognises, self._read, "lines", split=self._split, continues=self._continues),)

    def _recognises(self, value: Any) -> bool:
        if not isinstance(value, dict) or not any(keys <= value.keys() for keys in self._keys):
            return False
        if not any(one.why_not(value) is None for one in self._begins):
            return False
        return not self._path or isinstance(parsed_json(JsonPath(self._path).get(value)), list)

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
        said = self._on_branch(list(lines))
        begun = [0, *(at for at, line in enumerate(said) if at and self._restarts and self._restarts.recognises(line.value))]
        for number, (start, end) in enumerate(zip(begun, [*begun[1:], len(said)], strict=True)):
            values = [line.value for line in said[start:end]]
            known = [value for value in values if self._mapping.fits(value) or not _is_quiet(value)]
            left = {"lines of other branches": len(lines) - len(said), "lines of unknown kinds": len(values) - len(known)}
            values = known
            if any(message["role"] == "assistant" for message in self._mapping.messages(values)):
                head = [line.value for line in said[: begun[1]]] if number else []
                yield Part((values, head, number, left), said[start].line, values)

    def _on_branch(self, lines: list[SessionLine]) -> list[SessionLine]:
        """The lines that lead to the last one that has an id; a line whose parent is not there follows the one before it."""
        if not self._own["branch"]:
            return lines
        key, parent = self._own["branch"]
        places = {identity: at for at, line in enumerate(lines) if isinstance(identity := line.value.get(key), str)}
        at, kept = len(lines) - 1, set[int]()
        while at >= 0 and at not in kept:
            kept.add(at)
            above = lines[at].value.get(parent)
            repeated = at and lines[at - 1].value.get(key) == lines[at].value.get(key)
            at = at - 1 if repeated else places.get(above, at - 1) if isinstance(above, str) else at - 1
        return [line for at, line in enumerate(lines) if at in kept]

    def _read_record(self, value: Any, place: Place) -> Trace:
        rest = {key: part for key, part in value.items() if key not in self._used}
        return self._trace(parsed_json(JsonPath(str(self._path)).find(value)), [value], 0, {}, place, rest)

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
