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
SAID = CONTENT | {"input", "prompt", "system", "instruction", "question", "query", "context", "output", "message"}
SAID |= {"response", "observation", "thought", "reasoning", "request", "task", "value"}
ABOUT = {"scores", "score", "feedback", "evaluation", "metadata", "meta", "attributes", "extra", "usage"}


def with_warnings(trace: Trace, value: Any) -> Trace:
    """The trace with its warnings in `info`."""
    held = [trace.messages, trace.tools, trace.environment, trace.info]
    known = {node.strip() for node in _nodes(held, None) if isinstance(node, str)}
    found: dict[str, str] = {}
    missed: list[str] = []
    for node in _nodes(value, known):
        if isinstance(node, list):
            if trace.tools_inferred and TOOLS_ELSEWHERE not in found and node != trace.tools and all(map(_is_offered, node)):
                # Equal, not the same: a list in JSON text is parsed anew. Below `DEEPEST` no path is told.
                found[TOOLS_ELSEWHERE] = next((path for path, one in _paths(value, "") if one == node), "")
        elif node.strip() not in known and len(missed) < MOST:
            missed.append(node)
    if missed and "left_out" not in trace.info and (path := _unread(missed, value, held)):
        found[UNREAD_TEXT] = path
    return replace(trace, info=trace.info | found) if found else trace


def _nodes(value: Any, known: set[str] | None) -> Iterator[Any]:
    """The lists that are not empty, and the texts of more than `LONG` characters, in a value and in the JSON text in it.

    Text that is known is not parsed, and none without `known`.
    """
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            if len(node) > LONG:
                inner = node if known is None or node.strip() in known else _inner(node)
                if isinstance(inner, str):
                    yield inner
                else:
                    waiting.append(inner)
        elif isinstance(node, dict):
            waiting += node.values()
        elif isinstance(node, list) and node:
            yield node
            waiting += node


def _inner(text: str) -> Any:
    """The value of JSON text, also of JSON text in JSON text; any other text unchanged."""
    if text[:1] == '"':
        try:
            text = str(parse_json(text))
        except ValueError:
            return text
    return parsed_json(text)


def _is_offered(tool: Any) -> bool:
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    has_schema = isinstance(function, dict) and any(isinstance(function.get(key), dict) for key in SCHEMA_KEYS)
    return has_schema and bool(as_tools([tool]))


def _unread(missed: list[str], value: Any, held: Any) -> str | None:
    """Where the first of these texts is that was said, and is not in other words in what is held."""
    words: set[str] | None = None
    for path, node in _paths(value, ""):
        if node in missed and " " in node and _is_said(path):
            words = words or {word for text in texts_of(held) for word in WORD.findall(text)}
            own = set(WORD.findall(node))
            if len(own & words) < SHARE_READ * len(own):
                return path
    return None


def _is_said(path: str) -> bool:
    """Whether what is at a path was said, by the names of its keys."""
    keys = [re.sub(r"[_\W]", "", key).lower() for key in path.split(".")]
    return any(name in keys[-1] for name in SAID) and ABOUT.isdisjoint(keys)


def _paths(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Each list and long text in a value, with its path."""
    value = _inner(value) if isinstance(value, str) and len(value) > LONG else value
    if isinstance(value, str | list):
        yield path, value
    if isinstance(value, dict | list) and depth < DEEPEST:
        items = value.items() if isinstance(value, dict) else ((f"{path}[]", part) for part in value)
        for key, part in items:
            inner = str(key) if isinstance(value, list) or not path else f"{path}.{key}"
            yield from _paths(part, inner, depth + 1)
