"""Checks the starting point and the goal of a logged episode of the assistant."""

from __future__ import annotations

from typing import Any

from tracewheel import DataError
from tracewheel_worlds.assistant.goals import FAMILIES, TIERS, wanted

FIELDS: dict[str, dict[str, type]] = {
    "contacts": {"name": str, "place": str},
    "events": {"day": str, "time": str, "title": str, "who": str, "hours": int},
    "inbox": {"from": str, "text": str},
    "messages": {"to": str, "text": str},
    "timesheet": {"day": str, "title": str, "hours": int},
    "notes": {"title": str, "text": str},
}


def check_state(state: Any) -> None:
    """Check a state.

    Raises:
        DataError: it is incomplete; the message says where.
    """
    if not isinstance(state, dict):
        raise DataError("'initial_state' needs the entries of each app")
    for app, fields in FIELDS.items():
        entries = state.get(app)
        if not isinstance(entries, list) or not all(_is_entry(entry, fields) for entry in entries):
            raise DataError(f"'initial_state.{app}' needs a list of entries, each with {', '.join(fields)}")
    if not state["contacts"]:
        raise DataError("'initial_state.contacts' is empty")


def check_goal(goal: Any, state: Any) -> None:
    """Check a goal in a checked state.

    Raises:
        DataError: it cannot be reached or lacks a part; the message says which.
    """
    if not isinstance(goal, dict) or goal.get("family") not in FAMILIES or goal.get("tier") not in TIERS:
        raise DataError(f"'goal' needs 'family' ({', '.join(FAMILIES)}) and 'tier' ({', '.join(map(str, TIERS))})")
    try:
        gained = wanted(state, goal)
    except KeyError as error:
        raise DataError(f"'goal' of family {goal['family']} and tier {goal['tier']} needs {error}") from error
    except (StopIteration, IndexError, ValueError) as error:
        raise DataError(f"'goal' of family {goal['family']} names what is not in 'initial_state'") from error
    if not gained:
        raise DataError("'goal' asks for no change")


def _is_entry(entry: Any, fields: dict[str, type]) -> bool:
    return (
        isinstance(entry, dict) and entry.keys() == fields.keys() and all(type(entry[name]) is fields[name] for name in fields)
    )
