"""What a maker of terminal tasks gives: the request, the folder, what is wanted, and commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracewheel_worlds.box_state import StoredFile

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Parts:
    """The parts of a task.

    Attributes:
        prompt: The request.
        files: The folder at the start.
        wanted: Of the goal: `{"files": ...}` or `{"check": ...}`.
        solution: A command that does it.
        near_misses: Commands that almost do it, by what is wrong with them.
    """

    prompt: str
    files: dict[str, StoredFile]
    wanted: dict[str, Any]
    solution: str
    near_misses: dict[str, str]


def typed(command: str) -> list[Call]:
    """The calls that type a command, and no more."""
    return [("shell", {"command": command}), ("submit", {})]


def one_file(path: str, text: str) -> dict[str, Any]:
    """What is wanted where all else stays as it is."""
    return {"files": {path: {"text": text}}}
