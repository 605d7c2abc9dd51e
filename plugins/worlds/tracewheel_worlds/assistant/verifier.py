"""The assistant's verifier: each app gained what was asked for, and nothing else changed."""

from __future__ import annotations

from typing import Any

from tracewheel import Task, canonical_json
from tracewheel_worlds.assistant.goals import APPS, wanted

UNCHANGED = ("contacts", "inbox")


class AssistantVerifier:
    """Binary reward from the final state of all apps.

    >>> import random
    >>> from tracewheel_worlds.assistant.tasks import make_task
    >>> task = make_task("book", 2, random.Random(0))
    >>> AssistantVerifier().verify(task, task.initial_state)
    (0.0, {'events': 0.0, 'messages': 0.0, 'untouched': 1.0})

    The breakdown has a part for each app that should gain entries, and `untouched`, each 0 or 1; the total is 1 only when all
    are. Entries are compared as they are, with their types, in any order.

    - `events`, `messages`, `timesheet`, `notes`: all entries that were asked for were added.
    - `untouched`: every entry that was there before is as it was, and none was added that was not asked for.

    Raises:
        KeyError: the state lacks an app, or the goal a part.
    """

    kind = "assistant"

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        gained = wanted(task.initial_state, task.goal)
        breakdown = {}
        untouched = all(final_state[app] == task.initial_state[app] for app in UNCHANGED)
        for app in APPS:
            lost, added = _difference(task.initial_state[app], final_state[app])
            missing, extra = _difference(gained.get(app, []), added)
            untouched = untouched and not lost and not extra
            if app in gained:
                breakdown[app] = float(not missing)
        breakdown["untouched"] = float(untouched)
        return float(all(breakdown.values())), breakdown


def _difference(before: list[Any], after: list[Any]) -> tuple[list[Any], list[Any]]:
    """What of `before` is not in `after`, and what of `after` is not in `before`; equal entries count one by one."""
    left: dict[str, list[Any]] = {}
    for entry in after:
        left.setdefault(canonical_json(entry), []).append(entry)
    lost = []
    for entry in before:
        same = left.get(canonical_json(entry))
        if same:
            same.pop()
        else:
            lost.append(entry)
    return lost, [entry for entries in left.values() for entry in entries]
