"""Flawed steps: what an episode did badly on the way, whatever its outcome.

A reward for the end alone reinforces these steps too. The rubric can subtract from it (`rubric.flawed_penalty`), and the
doctor counts the successes that have a flaw.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from tracewheel.core.errors import TracewheelError
from tracewheel.core.types import Trajectory, canonical_json, first_turn
from tracewheel.environments import make_environment

LOOP = 3
LONGEST_CYCLE = 3
CAPS = ("max_tokens", "max_turns")
HALF = 0.5
LEAST_STEP = 1e-9

# What counts as a flaw, from `steps_of` and the stop reason. An error that the episode recovered from does not.
FLAWS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "malformed calls": lambda episode: episode["malformed"] > 0,
    "invented tools": lambda episode: len(episode["unknown_tools"]) > 0,
    "half the calls failed": lambda episode: episode["calls"] > 0 and episode["errors"] >= HALF * episode["calls"],
    "loops": lambda episode: episode["loop"] >= LOOP,
    "cut off": lambda episode: episode["stop_reason"] in CAPS,
}
NO_CALL = "no call at all"


def flaws_of(trajectory: Trajectory, tools: Collection[str] | None) -> list[str]:
    """The kinds of flaws that an episode has.

    Args:
        trajectory: The episode.
        tools: Names of the offered tools; None where they are unknown.
    """
    episode = {**steps_of(trajectory.messages, trajectory.turns, tools), "stop_reason": trajectory.stop_reason}
    found = [name for name, has in FLAWS.items() if has(episode)]
    return [*found, NO_CALL] if tools and not episode["calls"] else found


@functools.lru_cache(maxsize=8)
def offered_tools(kind: str) -> frozenset[str] | None:
    """Names of an environment's tools; None where it has none, as where a program brings its own, or cannot be built here."""
    try:
        return frozenset(str(tool["function"]["name"]) for tool in make_environment(kind).tools()) or None
    except (TracewheelError, KeyError, TypeError):
        return None


def steps_of(
    messages: Sequence[Mapping[str, Any]], turns: Sequence[Mapping[str, Any]], tools: Collection[str] | None
) -> dict[str, Any]:
    """Figures of an episode's calls and replies. A conversation that the episode continues from does not count.

    `named_calls`: well-formed calls; `unknown_tools`: tools that were called but not offered; `errors`: replies that begin
    with "error", as those of the built-in environment and to malformed calls do; `loop`: see `longest_loop`.
    """
    steps = list(_calls_and_replies(messages[first_turn(messages, turns) :]))
    names = [name for name, _, _ in steps if name is not None]
    return {
        "turns": len(turns),
        "calls": sum(turn["calls"] for turn in turns),
        "malformed": sum(turn["malformed"] for turn in turns),
        "named_calls": len(names),
        "unknown_tools": [name for name in names if tools is not None and name not in tools],
        "errors": sum(reply.lstrip().lower().startswith("error") for _, _, reply in steps),
        "loop": longest_loop([canonical_json(step) for step in steps]),
    }


def longest_loop(steps: Sequence[str]) -> int:
    """How often in a row the same step, or cycle of two or three steps, occurs; 1 without a repetition, 0 without steps."""
    longest = min(1, len(steps))
    for period in range(1, LONGEST_CYCLE + 1):
        alike = 0
        for index in range(period, len(steps)):
            alike = alike + 1 if steps[index] == steps[index - period] else 0
            longest = max(longest, alike // period + 1)
    return longest


def _calls_and_replies(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str | None, str, str]]:
    """(tool, arguments, reply) of each call in order; a turn without a readable call has tool None."""
    replies: dict[str, list[str]] = {}
    for message in messages:
        if message["role"] == "tool":
            replies.setdefault(message.get("tool_call_id", ""), []).append(message["content"])
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        for call in message.get("tool_calls") or []:
            reply = replies.get(call["id"], [""])[0]
            yield call["function"]["name"], call["function"]["arguments"], reply
        if not message.get("tool_calls"):
            after = messages[index + 1] if index + 1 < len(messages) else {"role": "", "content": ""}
            yield None, message.get("content") or "", after["content"] if after["role"] == "tool" else ""
