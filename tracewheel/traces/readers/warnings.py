"""Warnings: what a reader left of a record although it looks like a part of the conversation. An ingest counts them.

`tools_elsewhere` is a list of tools where those of the trace are inferred from its calls; `unread_text` a text of more than
200 characters that is neither in the conversation nor among the fields. Both hold the place in the record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tracewheel.core.strict_json import parse_json
from tracewheel.core.types import Trace
from tracewheel.traces.readers.dialects import parsed_json
from tracewheel.traces.readers.tools import SCHEMA_KEYS, as_tools
from tracewheel.traces.readers.unread import CONTENT, DEEPEST, texts_of

TOOLS_ELSEWHERE, UNREAD_TEXT = "tools_elsewhere", "unread_text"
LONG = 200
WORD = re.compile(r"\w+")
# A template or an application may word a text anew; with this share of its words in the trace it has been read.
SHARE_READ = 0.8
MOST = 40  # texts of a record that are looked for
# Names under which a record keeps what was said or asked, and those of what it says about that.
SAID = CONTENT | {"input", "inputs", "prompt", "system", "instructions", "instruction", "question", "query"}
SAID |= {
    "context",
    "output",
    "message",
    "messages",
    "response",
    "observation",
    "thought",
    "reasoning",
    "request",
    "task",
    "value",
}
ABOUT = {"scores", "score", "feedback", "evaluation", "metadata", "meta", "attributes", "extra", "usage"}


def with_warnings(trace: Trace, value: Any) -> Trace:
    """The trace with its warnings in `info`."""
    found: dict[str, Any] = {}
    if trace.tools_inferred and (path := next(_tools(value, ""), None)):
        found[TOOLS_ELSEWHERE] = path
    if "left_out" not in trace.info and (path := _unread(value, trace)):
        found[UNREAD_TEXT] = path
    return replace(trace, info=trace.info | found) if found else trace


def _tools(value: Any, path: str, depth: int = 0) -> Iterator[str]:
    """The paths of lists in which each element is a tool with a schema."""
    if depth > DEEPEST:
        return
    if isinstance(value, list):
        if value and all(map(_is_offered, value)):
            yield path
            return
        for part in value:
            yield from _tools(part, f"{path}[]", depth + 1)
    elif isinstance(value, dict):
        for key, part in value.items():
            if isinstance(part, dict | list):
                yield from _tools(part, f"{path}.{key}" if path else str(key), depth + 1)


def _is_offered(tool: Any) -> bool:
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    has_schema = isinstance(function, dict) and any(isinstance(function.get(key), dict) for key in SCHEMA_KEYS)
    return has_schema and bool(as_tools([tool]))


def _unread(value: Any, trace: Trace) -> str | None:
    """Where the first long text is that was not read."""
    long = [(path, text) for path, text in _long_texts(value, "") if " " in text and _is_said(path)][:MOST]
    if not long:
        return None
    held = [trace.messages, trace.tools, trace.environment, trace.info, trace.task, trace.session, trace.user]
    texts = {text for part in held for text in _unpacked(part)}
    words: set[str] | None = None
    for path, text in long:
        if text in texts:
            continue
        words = words or {word for one in texts for word in WORD.findall(one)}
        own = set(WORD.findall(text))
        if len(own & words) < SHARE_READ * len(own):
            return path
    return None


def _is_said(path: str) -> bool:
    """Whether what is at a path was said, by the names of its keys."""
    keys = [re.sub(r"[_\W]", "", key).lower() for key in path.split(".")]
    return any(name in keys[-1] for name in SAID) and ABOUT.isdisjoint(keys)


def _unpacked(value: Any) -> Iterator[str]:
    """The texts in a value, and those in its JSON texts."""
    for text in texts_of(value):
        inner = _inner(text) if len(text) > LONG else text
        yield text
        if not isinstance(inner, str):
            yield from texts_of(inner)


def _inner(text: str) -> Any:
    """The value of JSON text, also of JSON text in JSON text; any other text unchanged."""
    if text[:1] == '"':
        try:
            text = str(parse_json(text))
        except ValueError:
            return text
    return parsed_json(text)


def _long_texts(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    if depth > DEEPEST:
        return
    if isinstance(value, str):
        if len(value) > LONG:
            inner = _inner(value)
            if inner is value:
                yield path, value.strip()
            else:
                yield from _long_texts(inner, path, depth + 1)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _long_texts(part, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, list):
        for part in value:
            yield from _long_texts(part, f"{path}[]", depth + 1)
