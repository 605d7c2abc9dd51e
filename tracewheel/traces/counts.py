"""The counts of an ingest, which can be added and subtracted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tracewheel.core.endings import CUT, UNFINISHED, how_unfinished, prompt_is_cut
from tracewheel.core.log_formats import LOG_FORMATS
from tracewheel.core.types import Trace
from tracewheel.traces.readers.building import STRAY_RESULTS
from tracewheel.traces.readers.warnings import TOOLS_ELSEWHERE, UNREAD_TEXT

NAMES = ("read", "kept", "duplicates", "quarantined", "messages", "tool_calls", "tool_results", "unreadable_times")
FORGOTTEN, WITHOUT_USER = "forgotten", "without_user"
CUT_TURNS, FAILED_TURNS, CUT_PROMPTS, STRAYS = "cut_turns", "failed_turns", "cut_prompts", "results_left_out"
AGENT_FIRST = "agent_first"
WARNINGS = (AGENT_FIRST, TOOLS_ELSEWHERE, UNREAD_TEXT)
RARE = (
    FORGOTTEN,
    WITHOUT_USER,
    CUT_TURNS,
    FAILED_TURNS,
    CUT_PROMPTS,
    STRAYS,
    *WARNINGS,
)  # in a report only where there are some

ASKERS = ("system", "developer", "user")


def is_asked(trace: Trace) -> bool:
    """Whether the trace says what the agent was asked, as a user's message or with its starting point."""
    return any(message["role"] == "user" for message in trace.messages) or bool((trace.environment or {}).get("prompt"))


@dataclass
class Counts:
    """Records by what became of them, and of those kept the messages, calls and unreadable times.

    `without_user` are kept although nobody asks the agent for anything: no task can be made of them. `cut_turns` and
    `failed_turns` are answers of the model that are not whole, `cut_prompts` traces whose exporter cut what the agent was
    asked, `results_left_out` results of no call; `WARNINGS` are what a reader may have left. `redacted` counts redacted
    places by kind. `forgotten` records are left out: read, and neither kept nor in quarantine.
    """

    numbers: Counter[str] = field(default_factory=Counter)
    by_reason: Counter[str] = field(default_factory=Counter)
    by_format: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)

    def keep(self, trace: Trace) -> None:
        """Count a kept trace."""
        self._add(trace, 1)

    def withdraw(self, trace: Trace) -> None:
        """A kept trace that is not kept after all."""
        self._add(trace, -1)

    def put_aside(self, reason: str, instead_of: str = "") -> None:
        """Count a record in quarantine, or give it another reason."""
        self.by_reason[reason] += 1
        if instead_of:
            self.by_reason[instead_of] -= 1
        else:
            self.numbers["quarantined"] += 1

    def _add(self, trace: Trace, times: int) -> None:
        numbers = self.numbers
        calls = results = 0
        for message in trace.messages:
            if UNFINISHED in message and (how := how_unfinished(message)):
                numbers[CUT_TURNS if how == CUT else FAILED_TURNS] += times
            if message["role"] == "tool":
                results += 1
            elif message.get("tool_calls"):
                calls += len(message["tool_calls"])
        numbers["kept"] += times
        numbers["messages"] += times * len(trace.messages)
        numbers["tool_calls"] += times * calls
        numbers["tool_results"] += times * results
        if trace.info.get(STRAY_RESULTS):
            numbers[STRAYS] += times * trace.info[STRAY_RESULTS]
        if prompt_is_cut(trace.messages):
            numbers[CUT_PROMPTS] += times
        # What a reader of the user's own finds first is what the user wants.
        numbers[AGENT_FIRST] += times * (trace.messages[0]["role"] not in ASKERS and trace.format in LOG_FORMATS)
        for warning in (TOOLS_ELSEWHERE, UNREAD_TEXT):
            numbers[warning] += times * (warning in trace.info)
        if not is_asked(trace):
            numbers[WITHOUT_USER] += times
        if trace.created is None and "created" in trace.info:
            numbers["unreadable_times"] += times
        self.by_format[trace.format] += times

    def report(self) -> dict[str, Any]:
        """The counts as JSON types."""
        return {
            **{name: self.numbers[name] for name in NAMES},
            **{name: self.numbers[name] for name in RARE if self.numbers[name]},
            "by_reason": dict(sorted((+self.by_reason).items())),
            "by_format": dict(sorted((+self.by_format).items())),
            "redacted": dict(sorted((+self.redacted).items())),
        }

    @classmethod
    def of_report(cls, report: dict[str, Any]) -> Counts:
        """The inverse of `report`."""
        numbers = Counter({name: report.get(name, 0) for name in (*NAMES, *RARE)})
        return cls(numbers, Counter(report["by_reason"]), Counter(report["by_format"]), Counter(report["redacted"]))

    def __sub__(self, other: Counts) -> Counts:
        return Counts(
            self.numbers - other.numbers,
            self.by_reason - other.by_reason,
            self.by_format - other.by_format,
            self.redacted - other.redacted,
        )

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.numbers + other.numbers,
            self.by_reason + other.by_reason,
            self.by_format + other.by_format,
            self.redacted + other.redacted,
        )
