"""The section `screening` of a profile."""

from __future__ import annotations

from typing import Literal

from tracewheel import Strict

ScreeningCheck = Literal[
    "rewards",
    "replies",
    "quarantine",
    "judge",
    "agent",
    "duplicates",
    "future",
    "new_users",
    "user",
    "session",
    "task",
    "template",
    "conversation",
]


class ScreeningSettings(Strict):
    """Which batch of new traces is held back from training until a person releases it.

    `hold: false` only says what was found. `off` are checks that are left out.
    """

    hold: bool = True
    off: tuple[ScreeningCheck, ...] = ()
