"""Names what went wrong in a failed episode, from its calls and the verifier's breakdown."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

INVENTED_TOOL, REPEATED_CALLS, UNFINISHED, UNKNOWN = "invented_tool", "repeated_calls", "unfinished", "unknown"
FAULT_OF_PART = {"untouched": "moved_too_many", "files_moved": "stopped_early", "manifest": "forgot_manifest"}


def fault_kind(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]], success: float | None, breakdown: dict[str, float], ended: bool
) -> str:
    """The kind of failure of an episode, "" for a success or an unscored one.

    What the calls show comes first: a tool that does not exist, the same call twice in a row, an
    episode that never ended. Otherwise it is the first part of the breakdown that is not full, in
    the order of `FAULT_OF_PART`, then `failed_<part>` for parts it does not know.
    """
    if success is None or success != success or success >= 1.0:
        return ""
    offered = {tool["function"]["name"] for tool in tools}
    calls = [call["function"] for message in messages for call in message.get("tool_calls") or []]
    if any(call["name"] not in offered for call in calls):
        return INVENTED_TOOL
    said = [(call["name"], json.loads(call["arguments"])) for call in calls]
    if any(earlier == later for earlier, later in pairwise(said)):
        return REPEATED_CALLS
    if not ended:
        return UNFINISHED
    missed = [part for part, value in breakdown.items() if value < 1.0]
    for part, fault in FAULT_OF_PART.items():
        if part in missed:
            return fault
    return f"failed_{missed[0]}" if missed else UNKNOWN
