"""Which names of fields mean a trace's outcome, user, session, time, model, task and id, for all readers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tracewheel.traces.readers.scores import WORDS
from tracewheel.traces.readers.times import utc_time

# The first of these that has a value counts. Case, `_` and `-` make no difference: `userId` is `user_id`.
NAMES = {
    "outcome": (
        "reward", "outcome", "success", "resolved", "is_resolved", "solved", "passed", "is_correct", "correct", "correctness",
        "task_success", "is_success", "score",
    ),
    "user": ("user", "user_id", "end_user", "end_user_id", "customer_id", "account_id"),
    "session": ("session", "session_id", "conversation_id", "thread_id", "chat_id", "conversation"),
    "created": (
        "created", "created_at", "create_time", "creation_time", "timestamp", "start_time", "started_at", "time", "datetime",
        "date",
    ),
    "model": ("model", "model_name", "model_id", "model_name_or_path"),
    "task": ("task", "task_id", "instance_id", "problem_id", "scenario_id"),
    "id": ("id", "trace_id", "traj_id", "trajectory_id", "run_id", "uuid"),
}  # fmt: skip
HOLDERS = ("metadata", "meta", "info", "extra", "result", "attributes")
TEXTS = ("id", "session", "user", "model", "task")
SCALED = {"score"}  # names whose scale only the log's owner knows: an outcome only from 0 to 1
# Not "completed" or "error": a run that ended is not a success, and one that broke is not a failure.
OUTCOME_WORDS = WORDS | {
    **dict.fromkeys(("resolved", "solved", "succeeded", "successful"), 1.0),
    **dict.fromkeys(("unresolved", "unsolved"), 0.0),
}


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


FIELD_OF = {_plain(name): (field, rank) for field, names in NAMES.items() for rank, name in enumerate(names)}
HOLDING = {_plain(name) for name in HOLDERS}


def _is_on_scale(name: str, read: Any) -> bool:
    return name not in SCALED or 0 <= read <= 1


def field_value(field: str, value: Any) -> Any:
    """A logged value as a trace's field; None if it is none.

    Texts may be numbers. An outcome is a finite number, a boolean or a word such as pass, fail or resolved. A time is one
    that `utc_time` reads.
    """
    if field == "created":
        return utc_time(value)
    if field == "outcome":
        return outcome_value(value)
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def outcome_value(value: Any) -> float | None:
    """A logged outcome as a number; None if it is none."""
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    text = value.strip().lower()
    if text in OUTCOME_WORDS:
        return OUTCOME_WORDS[text]
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def take_fields(info: Mapping[str, Any], missing: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Find fields by their names among what a reader kept: at the top, or in an object such as `metadata`.

    Args:
        info: What the reader did not read itself.
        missing: The fields to find.

    Returns:
        The fields found, and `info` without them.
    """
    found: dict[str, tuple[int, int, tuple[str, ...], Any]] = {}

    def look(holder: Mapping[str, Any], path: tuple[str, ...]) -> None:
        for name, value in holder.items():
            plain = _plain(name)
            field, rank = FIELD_OF.get(plain, ("", 0))
            if field in missing and (read := field_value(field, value)) is not None and _is_on_scale(plain, read):
                entry = (len(path), rank, (*path, name), read)
                if field not in found or entry[:2] < found[field][:2]:
                    found[field] = entry
            elif not path and plain in HOLDING and isinstance(value, dict):
                look(value, (name,))

    look(info, ())
    if not found:
        return {}, dict(info)
    rest = dict(info)
    for _, _, path, _ in found.values():
        if len(path) == 1:
            rest.pop(path[0], None)
        elif isinstance(rest.get(path[0]), dict):
            rest[path[0]] = {name: value for name, value in rest[path[0]].items() if name != path[1]}
    return {field: entry[3] for field, entry in found.items()}, rest
