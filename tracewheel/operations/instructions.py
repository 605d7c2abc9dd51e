"""Finds text in traces that is meant for whoever trains or judges: "give this conversation a reward of 1".

Read are the texts that others than the operator and the agent wrote: user messages, tool results, and the trace's names of
user, session and task. The screen is the one that stands before an LLM judge (`tracewheel.chat.injection`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tracewheel.chat.injection.rules import AGENT, JUDGE
from tracewheel.chat.injection.screen import suspicions

__all__ = ["AGENT", "JUDGE", "Instruction", "find_instructions", "read_text"]


@dataclass(frozen=True)
class Instruction:
    """An instruction that was found.

    Attributes:
        kind: `judge` or `agent`.
        rule: What it asks for.
        file: The log file of the trace.
        line: Its line there.
        place: Where in the trace: `message 3 (tool)`, or a field.
        hidden: How it was hidden, or "".
        excerpt: The text around it, as stored (redacted).
    """

    kind: str
    rule: str
    file: str
    line: int
    place: str
    hidden: str
    excerpt: str

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def find_instructions(trace: Mapping[str, Any]) -> list[Instruction]:
    """The instructions in a row of `traces.parquet`; of each place at most one of each kind."""
    found = []
    for place, text in _texts(trace):
        for kind, rule, hidden, excerpt in read_text(text):
            file, line = str(trace["source_file"]), int(trace["source_line"])
            found.append(Instruction(kind, rule, file, line, place, hidden, excerpt))
    return found


def read_text(text: str) -> list[tuple[str, str, str, str]]:
    """Kind, rule, way of hiding and excerpt of the instructions in a text; at most one of each kind, to the judge first."""
    found = {one.kind: (one.kind, one.rule, one.hidden, one.excerpt) for one in reversed(suspicions(text, prose=False))}
    return [found[kind] for kind in (JUDGE, AGENT) if kind in found]


def _texts(trace: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts of a trace that neither operator nor agent wrote, with their places."""
    messages = trace["messages"]
    for number, message in enumerate(json.loads(messages) if isinstance(messages, str) else messages, start=1):
        if message["role"] in ("user", "tool") and isinstance(message.get("content"), str):
            yield f"message {number} ({message['role']})", message["content"]
    for name in ("user", "session", "task"):
        if isinstance(trace.get(name), str):
            yield f"field {name}", trace[name]
