"""What went wrong in a failed episode: one of seven kinds, and a detail in the words of its environment or tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tracewheel.curation.divergence import Divergence
from tracewheel.curation.invalid_calls import invalid_argument
from tracewheel.environments.recorded.calls import LoggedCall, calls_in, parameters_of

INVENTED_TOOL, INVALID_CALL, LOOP, TOO_LONG = "invented_tool", "invalid_call", "loop", "too_long"
EARLY_STOP, WRONG_ARGUMENTS, WRONG_FINAL_STATE, UNKNOWN = "early_stop", "wrong_arguments", "wrong_final_state", "unknown"
KINDS = (INVALID_CALL, INVENTED_TOOL, LOOP, EARLY_STOP, WRONG_ARGUMENTS, TOO_LONG, WRONG_FINAL_STATE, UNKNOWN)
REPEATED_CALLS, REPEATED_CYCLE, UNFINISHED = "repeated_calls", "repeated_cycle", "unfinished"
# What a part of a verifier's breakdown says when it is not full, the most telling first.
FAULT_OF_PART = {
    "untouched": (WRONG_FINAL_STATE, "moved_too_many"),
    "files_moved": (EARLY_STOP, "stopped_early"),
    "manifest": (WRONG_FINAL_STATE, "forgot_manifest"),
}
CUT_OFF = ("max_turns", "max_tokens")
LONGEST_CYCLE, CYCLE_REPEATS = 3, 3


@dataclass(frozen=True)
class Fault:
    """What went wrong: `kind` is one of `KINDS`, `detail` says it more exactly where that is known."""

    kind: str
    detail: str = ""

    @property
    def word(self) -> str:
        """The detail where it is a word of the environment's own, else the kind."""
        known = {REPEATED_CALLS, UNFINISHED, *(detail for _, detail in FAULT_OF_PART.values())}
        return self.detail if self.detail in known or self.detail.startswith("failed_") else self.kind


def find_fault(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    breakdown: Mapping[str, float],
    ended: bool,
    *,
    divergence: Divergence | None = None,
    stop_reason: str = "",
    ignored_tools: Collection[str] = (),
) -> Fault:
    """What went wrong in an episode that is known to have failed.

    What the calls show by themselves comes first: a tool that does not exist, arguments that the tool's schema does not
    allow, a call or a short cycle of calls over and over; then an episode that was cut off, or never ended. Next comes
    what the verifier found missing, where it is a part that `FAULT_OF_PART` knows. Otherwise a successful trace of the task
    is compared with: calls left out and none too many is an early stop, a tool called with other arguments than
    the success ever gave it is wrong arguments. What is left is a wrong final state, and `UNKNOWN` where nothing tells.

    Args:
        messages: The episode, in OpenAI chat format.
        tools: What it was offered; none where that is not known.
        breakdown: The verifier's, empty where there is none.
        ended: Whether the episode came to an end of its own.
        divergence: From a success of the same task.
        stop_reason: Of a trajectory.
        ignored_tools: Tools whose calls say nothing of what was done, as one to think aloud with.
    """
    calls = calls_in(messages)
    by_manner = _invented(calls, tools) or _invalid(calls, tools) or _looped(calls)
    if by_manner:
        return by_manner
    if stop_reason in CUT_OFF:
        return Fault(TOO_LONG, stop_reason)
    if not ended:
        return Fault(EARLY_STOP, UNFINISHED)
    missed = [part for part, value in breakdown.items() if value < 1.0]
    for part, (kind, detail) in FAULT_OF_PART.items():
        if part in missed:
            return Fault(kind, detail)
    compared = _compared(divergence, ignored_tools) if divergence else None
    if compared:
        return compared
    return Fault(WRONG_FINAL_STATE, f"failed_{missed[0]}") if missed else Fault(UNKNOWN)


def fault_kind(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]], success: float | None, breakdown: dict[str, float], ended: bool
) -> str:
    """The word for an episode's failure, "" for a success or an unscored one."""
    if success is None or success != success or success >= 1.0:
        return ""
    return find_fault(messages, tools, breakdown, ended).word


def _invented(calls: Sequence[LoggedCall], tools: Sequence[Mapping[str, Any]]) -> Fault | None:
    offered = {tool["function"]["name"] for tool in tools}
    name = next((call.name for call in calls if offered and call.name not in offered), None)
    return Fault(INVENTED_TOOL, name) if name is not None else None


def _invalid(calls: Sequence[LoggedCall], tools: Sequence[Mapping[str, Any]]) -> Fault | None:
    parameters = parameters_of(tools)
    problems = ((call.name, invalid_argument(call.arguments, parameters.get(call.name, {}))) for call in calls)
    return next((Fault(INVALID_CALL, f"{name}: {problem}") for name, problem in problems if problem), None)


def _looped(calls: Sequence[LoggedCall]) -> Fault | None:
    """The same call twice in a row, or a cycle of two or three calls that is gone through three times."""
    said = [(call.name, call.arguments) for call in calls]
    if any(earlier == later for earlier, later in pairwise(said)):
        return Fault(LOOP, REPEATED_CALLS)
    for length in range(2, LONGEST_CYCLE + 1):
        for start in range(len(said) - length * CYCLE_REPEATS + 1):
            stretch = said[start : start + length * CYCLE_REPEATS]
            if stretch == stretch[:length] * CYCLE_REPEATS:
                return Fault(LOOP, REPEATED_CYCLE)
    return None


def _compared(divergence: Divergence, ignored: Collection[str]) -> Fault | None:
    missing = [name for name in divergence.missing if name not in ignored]
    extra = [name for name in divergence.extra if name not in ignored]
    if missing and not extra:
        return Fault(EARLY_STOP, f"never called {', '.join(missing)}")
    both = [name for name in missing if name in extra]
    if both:
        return Fault(WRONG_ARGUMENTS, ", ".join(both))
    if missing:
        return Fault(WRONG_FINAL_STATE, f"called {', '.join(extra)}, never {', '.join(missing)}")
    return Fault(WRONG_FINAL_STATE, f"called {', '.join(extra)} besides") if extra else None
