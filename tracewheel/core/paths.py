"""Paths into JSON values, as in `result.turns[0].text`, `turns[].calls[]` and `meta."a.b"`."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from typing import Any

STEP = re.compile(r'\.?(?:"(?P<quoted>[^"]+)"|(?P<key>[^.\[\]"]+)|\[(?P<index>-?\d+)?\])')
EACH = object()


class MissingPath(LookupError):
    """Nothing is at a path; the message names the part that is missing, and what is there."""


@dataclass(frozen=True)
class JsonPath:
    """A path into a JSON value.

    `a.b` is a key of a key, `[0]` and `[-1]` elements of a list, `[]` all of them, one after the other, and `.` the
    value itself. Keys with dots are quoted. A text on the way that holds a JSON object or list is parsed.

    Args:
        text: The path.

    Raises:
        ValueError: it cannot be read.
    """

    text: str

    def __post_init__(self) -> None:
        self.steps  # noqa: B018 (checks)

    @property
    def steps(self) -> tuple[Any, ...]:
        """Keys, positions, and `EACH`."""
        return _steps(self.text)

    def find(self, value: Any) -> Any:
        """What is at the path; with `[]`, the list of all that is there.

        Raises:
            MissingPath: nothing is.
        """
        return _find(value, self.steps, "", self.text)

    def get(self, value: Any, default: Any = None) -> Any:
        """What is at the path, or the default."""
        try:
            return self.find(value)
        except MissingPath:
            return default


@functools.lru_cache(4096)
def _steps(text: str) -> tuple[Any, ...]:
    if text == ".":
        return ()
    steps: list[Any] = []
    at = 0
    while at < len(text):
        match = STEP.match(text, at)
        if match is None or (not at and text.startswith(".") and not text.startswith(".[")):
            raise ValueError(f"'{text}' is no path: as in 'result.turns[0].text', 'calls[]' or '.'")
        key = match["quoted"] or match["key"]
        if key is not None and at and not match[0].startswith("."):
            raise ValueError(f"'{text}' is no path: a '.' is missing before '{key}'")
        steps.append(key if key is not None else EACH if match["index"] is None else int(match["index"]))
        at = match.end()
    if not steps:
        raise ValueError("an empty path: '.' is the value itself")
    return tuple(steps)


def _find(value: Any, steps: tuple[Any, ...], done: str, path: str) -> Any:
    for number, step in enumerate(steps):
        value = _parsed(value)
        if step is EACH:
            if not isinstance(value, list):
                raise MissingPath(f"'{path}': {_shown(done)} is {_kind(value)}, not a list")
            found = [_find(item, steps[number + 1 :], f"{done}[{at}]", path) for at, item in enumerate(value)]
            nested = EACH in steps[number + 1 :]
            return [item for part in found for item in part] if nested else found
        if isinstance(step, int):
            if not isinstance(value, list) or not -len(value) <= step < len(value):
                raise MissingPath(f"'{path}': {_shown(done)} is {_kind(value)}, without an element [{step}]")
            value, done = value[step], f"{done}[{step}]"
            continue
        if not isinstance(value, dict) or step not in value:
            raise MissingPath(f"'{path}': '{step}' is missing; {_shown(done)} is {_kind(value)}")
        value, done = value[step], f"{done}.{step}" if done else step
    return value


def _shown(done: str) -> str:
    return f"'{done}'" if done else "the record"


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return f"an object with the keys {', '.join(sorted(map(repr, value))[:8]):.200}" if value else "an empty object"
    return (
        f"a list of {len(value)}" if isinstance(value, list) else f"a {type(value).__name__}" if value is not None else "null"
    )


def _parsed(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value
