"""Classifies failed episodes: a kind of fault, and a detail named by the environment or its tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tracewheel.curation.divergence import Divergence
from tracewheel.environments.recorded.calls import LoggedCall, calls_in, parameters_of

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def invalid_argument(arguments: Any, schema: Mapping[str, Any]) -> str:
    """Why a call's arguments violate a JSON Schema of an object, or "".

    Only the first level is checked: required names, unknown names, types and enumerations. The tool itself checks the rest of
    the schema, and its reply is in the log.
    """
    if not isinstance(arguments, dict):
        return "no object"
    properties = schema.get("properties") or {}
    missing = [name for name in schema.get("required") or () if name not in arguments]
    if missing:
        return f"no '{missing[0]}'"
    if schema.get("additionalProperties") is False and (strange := sorted(set(arguments) - set(properties))):
        return f"'{strange[0]}' is no argument"
    for name, value in arguments.items():
        own = properties.get(name)
        if isinstance(own, Mapping) and not _allowed(value, own):
            return f"'{name}' is not what the schema asks for"
    return ""


def _allowed(value: Any, schema: Mapping[str, Any]) -> bool:
    if value is None and schema.get("nullable") is True:
        return True
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(kinds, list) and all(kind in TYPES for kind in kinds) and not any(_is(value, kind) for kind in kinds):
        return False
    choices = schema.get("enum")
    return not isinstance(choices, list) or value in choices


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[kind])


INVENTED_TOOL, INVALID_CALL, LOOP, TOO_LONG = "invented_tool", "invalid_call", "loop", "too_long"
EARLY_STOP, WRONG_ARGUMENTS, WRONG_FINAL_STATE, UNKNOWN = "early_stop", "wrong_arguments", "wrong_final_state", "unknown"
KINDS = (INVALID_CALL, INVENTED_TOOL, LOOP, EARLY_STOP, WRONG_ARGUMENTS, TOO_LONG, WRONG_FINAL_STATE, UNKNOWN)
REPEATED_CALLS, REPEATED_CYCLE, UNFINISHED = "repeated_calls", "repeated_cycle", "unfinished"
# The fault behind each part of a verifier's breakdown that is below 1, the most specific first.
FAULT_OF_PART = {
    "untouched": (WRONG_FINAL_STATE, "moved_too_many"),
    "files_moved": (EARLY_STOP, "stopped_early"),
    "manifest": (WRONG_FINAL_STATE, "forgot_manifest"),
}
CUT_OFF = ("max_turns", "max_tokens")
LONGEST_CYCLE, CYCLE_REPEATS = 3, 3


@dataclass(frozen=True)
class Fault:
    """A fault: `kind` is one of `KINDS`, `detail` is "" where nothing more is known."""

    kind: str
    detail: str = ""

    @property
    def word(self) -> str:
        """The detail where the environment defines it, else the kind."""
        known = {REPEATED_CALLS, UNFINISHED, *(detail for _, detail in FAULT_OF_PART.values())}
        return self.detail if self.detail in known or self.detail.startswith("failed_") else self.kind


@dataclass(frozen=True)
class FinishedEpisode:
    """An episode to find the fault of.

    Attributes:
        messages: The episode, in OpenAI chat format.
        tools: The tools it was offered; empty where unknown.
        breakdown: The parts of the verifier's score; empty where there is none.
        ended: Whether the episode ended by itself.
        stop_reason: The trajectory's, or "".
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]
    breakdown: Mapping[str, float] = field(default_factory=dict)
    ended: bool = True
    stop_reason: str = ""


def find_fault(episode: FinishedEpisode, divergence: Divergence | None = None) -> Fault:
    """The fault of an episode that is known to have failed.

    Faults are looked for in this order:

    1. In the calls themselves: a tool that does not exist, arguments that the tool's schema does not allow, a call or a short
       cycle of calls repeated.
    2. An episode that was cut off, or did not end.
    3. A part of the verifier's breakdown that `FAULT_OF_PART` names.
    4. In comparison with a success: only missing calls are an early stop, a tool called with other arguments than the success
       ever gave it is wrong arguments.

    Otherwise the fault is a wrong final state, or `UNKNOWN` without any sign of it.

    Args:
        episode: The episode.
        divergence: Its divergence from a success of the same task.
    """
    calls = calls_in(episode.messages)
    in_calls = _invented(calls, episode.tools) or _invalid(calls, episode.tools) or _looped(calls)
    if in_calls:
        return in_calls
    if episode.stop_reason in CUT_OFF:
        return Fault(TOO_LONG, episode.stop_reason)
    if not episode.ended:
        return Fault(EARLY_STOP, UNFINISHED)
    missed = sorted(part for part, value in episode.breakdown.items() if value < 1.0)
    for part, (kind, detail) in FAULT_OF_PART.items():
        if part in missed:
            return Fault(kind, detail)
    compared = _compared(divergence) if divergence else None
    if compared:
        return compared
    return Fault(WRONG_FINAL_STATE, f"failed_{missed[0]}") if missed else Fault(UNKNOWN)


def fault_word(episode: FinishedEpisode, success: float | None) -> str:
    """The word for an episode's fault, "" for a successful or unscored episode."""
    if success is None or success != success or success >= 1.0:
        return ""
    return find_fault(episode).word


def _invented(calls: Sequence[LoggedCall], tools: Sequence[Mapping[str, Any]]) -> Fault | None:
    offered = {tool["function"]["name"] for tool in tools}
    name = next((call.name for call in calls if offered and call.name not in offered), None)
    return Fault(INVENTED_TOOL, name) if name is not None else None


def _invalid(calls: Sequence[LoggedCall], tools: Sequence[Mapping[str, Any]]) -> Fault | None:
    parameters = parameters_of(tools)
    problems = ((call.name, invalid_argument(call.arguments, parameters.get(call.name, {}))) for call in calls)
    return next((Fault(INVALID_CALL, f"{name}: {problem}") for name, problem in problems if problem), None)


def _looped(calls: Sequence[LoggedCall]) -> Fault | None:
    """The same call twice in a row, or a cycle of two or three calls repeated three times."""
    said = [(call.name, call.arguments) for call in calls]
    if any(earlier == later for earlier, later in pairwise(said)):
        return Fault(LOOP, REPEATED_CALLS)
    for length in range(2, LONGEST_CYCLE + 1):
        for start in range(len(said) - length * CYCLE_REPEATS + 1):
            stretch = said[start : start + length * CYCLE_REPEATS]
            if stretch == stretch[:length] * CYCLE_REPEATS:
                return Fault(LOOP, REPEATED_CYCLE)
    return None


def _compared(divergence: Divergence) -> Fault | None:
    missing, extra = divergence.missing, divergence.extra
    if missing and not extra:
        return Fault(EARLY_STOP, f"never called {', '.join(missing)}")
    both = [name for name in missing if name in extra]
    if both:
        return Fault(WRONG_ARGUMENTS, ", ".join(both))
    if missing:
        return Fault(WRONG_FINAL_STATE, f"called {', '.join(extra)}, never {', '.join(missing)}")
    return Fault(WRONG_FINAL_STATE, f"called {', '.join(extra)} besides") if extra else None
