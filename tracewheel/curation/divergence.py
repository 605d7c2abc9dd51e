"""Where a failed trace first diverges from a successful one of the same task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tracewheel.environments.recorded.calls import LoggedCall, calls_in, normalised_key, parameters_of

Message = Mapping[str, Any]
# What the failed trace did instead of the success's next call: another tool, the same tool with other arguments, no further
# call, or a further call after the success's last.
Way = Literal["tool", "arguments", "stopped", "went_on"]


@dataclass(frozen=True)
class Divergence:
    """The first step at which two traces differ.

    Attributes:
        step: Number of calls they have in common before it.
        message: Position in the failed trace of the assistant message that differs; its length where none follows.
        reference: The successful trace's id.
        reference_message: Position in the successful trace of the message to compare with.
        way: How they differ.
        expected: The tool that the success called here, "" without a further call.
        made: The tool that the failure called here, "" without a further call.
        missing: Calls of the success that the failure never made, by tool.
        extra: Calls of the failure that the success never made, by tool.
    """

    step: int
    message: int
    reference: str
    reference_message: int
    way: Way
    expected: str
    made: str
    missing: Mapping[str, int]
    extra: Mapping[str, int]


@dataclass(frozen=True)
class Path:
    """The calls of a trace, the keys that compare them, and the number of its messages."""

    trace_id: str
    calls: Sequence[LoggedCall]
    keys: Sequence[str]
    messages: int

    @classmethod
    def of(cls, trace_id: str, messages: Sequence[Message], tools: Iterable[Mapping[str, Any]]) -> Path:
        """The path of a trace; the schemas of `tools` normalise its calls' arguments."""
        parameters = parameters_of(tools)
        calls = calls_in(messages)
        return cls(trace_id, calls, [normalised_key(call.name, call.arguments, parameters) for call in calls], len(messages))


def first_divergence(failed: Path, successes: Iterable[Path]) -> Divergence | None:
    """Where `failed` diverges from the success that it follows the longest; None without a divergence or a success.

    Ties go to the success that shares most calls in any order, then to the one with fewer calls, then to the smaller id. Calls
    are equal when no tool could tell them apart.
    """
    best = min(successes, key=lambda success: _distance(failed, success), default=None)
    if best is None:
        return None
    step = _common(failed.keys, best.keys)
    if step == len(failed.keys) == len(best.keys):
        return None
    made = failed.calls[step] if step < len(failed.calls) else None
    expected = best.calls[step] if step < len(best.calls) else None
    return Divergence(
        step=step,
        message=made.message if made else failed.messages,
        reference=best.trace_id,
        reference_message=expected.message if expected else best.messages,
        way=_way(made, expected),
        expected=expected.name if expected else "",
        made=made.name if made else "",
        missing=_by_tool(best, failed),
        extra=_by_tool(failed, best),
    )


def _distance(failed: Path, success: Path) -> tuple[int, int, int, str]:
    shared = sum((Counter(failed.keys) & Counter(success.keys)).values())
    return -_common(failed.keys, success.keys), -shared, len(success.keys), success.trace_id


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    return next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _way(made: LoggedCall | None, expected: LoggedCall | None) -> Way:
    if made is None:
        return "stopped"
    if expected is None:
        return "went_on"
    return "arguments" if made.name == expected.name else "tool"


def _by_tool(one: Path, other: Path) -> dict[str, int]:
    """Numbers of calls of `one` without a counterpart in `other`, by tool."""
    left = Counter(one.keys) - Counter(other.keys)
    names = dict(zip(one.keys, (call.name for call in one.calls), strict=True))
    counts: Counter[str] = Counter()
    for key, count in left.items():
        counts[names[key]] += count
    return dict(sorted(counts.items()))
