"""What the sandbox's findings on an episode mean for its verdict."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

# Bugs have these, too: a loop that does not end, a line too many.
HONEST = ("timeout", "output")
# Only a program that wants out of its box has this one: whatever else the episode did, it earns nothing.
ESCAPE = "escape"


def odd_findings(state: Mapping[str, Any]) -> list[str]:
    """The findings of an episode's own runs that flag it."""
    return [finding for finding in state.get("findings", ()) if finding not in HONEST]


def tried_to_escape(*findings: Collection[str]) -> bool:
    """Whether any of these are the findings of an attempt to get out of the box."""
    return any(ESCAPE in some for some in findings)
