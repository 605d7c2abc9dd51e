"""The search of one record: what it knows, and which of the values that were found count."""

from __future__ import annotations

import copy
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from tracewheel.core.types import Trace
from tracewheel.traces.redaction.detector import Detector, mixed
from tracewheel.traces.redaction.known_values import SHORTEST_SECRET, WORD, Found, KnownValues
from tracewheel.traces.redaction.pseudonyms import Pseudonyms, standins

BETWEEN_OBJECTS = re.compile(r"\}, ?(?=\{)")  # no value continues from one JSON object into the next
SHORTEST_PART = 200
AROUND = 80  # characters around a value in which to look for pseudonyms that overlap it
LARGEST_DOUBT, SECRETS_ONLY, CERTAIN = 3, 2, 0
KNOWN_ELSEWHERE = 4  # more than any detector's doubt


@dataclass
class Search:
    """What a search of one record knows: its pseudonyms, and the values that have one."""

    pseudonyms: Pseudonyms
    most_doubt: int = LARGEST_DOUBT
    names: frozenset[str | None] = frozenset()
    in_base64: bool = True
    known: KnownValues = field(init=False)
    values: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        self.refresh()

    def allows(self, detector: Detector) -> bool:
        """Whether what a detector finds counts."""
        return detector.doubt <= self.most_doubt or (detector.kind == "email" and self.most_doubt > 0)

    def within(self, most_doubt: int) -> Search:
        """The same search for less doubtful values."""
        inner = copy.copy(self)
        inner.most_doubt = min(self.most_doubt, most_doubt)
        return inner

    def refresh(self) -> bool:
        """Search for the values found so far, too; returns whether there are new ones."""
        before, self.values = self.values, len(self.pseudonyms)
        if self.values != before:
            self.known = KnownValues(self.identities())
        return self.values != before

    def identities(self) -> list[tuple[str, str]]:
        """The values to find again. A name of the record, such as its model's, is none, though it may follow `token:`."""
        return [pair for pair in self.pseudonyms.identities() if pair[1] not in self.names]


def names_in(trace: Trace) -> Iterator[str | None]:
    """The names of the model, the tools and the format."""
    yield from (trace.model, trace.format)
    for tool in trace.tools:
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            yield name


def parts(written: str) -> Iterator[tuple[int, str]]:
    """A text in parts with their places, so that a match in one message does not cost a search of all others."""
    at = 0
    for match in BETWEEN_OBJECTS.finditer(written):
        if match.end() - at >= SHORTEST_PART:
            yield at, written[at : match.end()]
            at = match.end()
    yield at, written[at:]


def is_made(text: str, item: Found) -> bool:
    """Whether a value overlaps a pseudonym, and does not hold another secret beside it."""
    first = max(item.start - AROUND, 0)
    spans = [(first + start, first + end) for start, end in standins(text[first : item.end + AROUND])]
    spans = [(start, end) for start, end in spans if start < item.end and item.start < end]
    if not spans:
        return False
    if any(start < item.start or item.end < end for start, end in spans):
        return True
    rest = text[item.start : item.end]
    for start, end in reversed(spans):
        rest = rest[: start - item.start] + " " + rest[end - item.start :]
    return not any(len(word) >= SHORTEST_SECRET and mixed(word) for word in WORD.findall(rest))


def apart(candidates: list[tuple[int, Found]]) -> list[Found]:
    """Candidates without overlaps: the least doubt wins, then the longest."""
    chosen: list[Found] = []
    for _, item in sorted(candidates, key=lambda entry: (entry[0], entry[1].start - entry[1].end)):
        place = bisect_left(chosen, item)
        before, after = chosen[max(place - 1, 0) : place], chosen[place : place + 1]
        if all(other.end <= item.start for other in before) and all(item.end <= other.start for other in after):
            chosen.insert(place, item)
    return chosen
