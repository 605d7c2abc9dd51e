"""What happened in the episodes of one stored result: steps, flaws, tools, and where failures part from successes.

A stored result does not change, so its digest is made once and kept in memory. Of a large one a sample is read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracewheel.core.types import first_turn
from tracewheel.curation.divergence import Path as Calls
from tracewheel.curation.divergence import first_divergence
from tracewheel.dashboard.episodes import Episodes
from tracewheel.dashboard.sources import Source
from tracewheel.dashboard.text import value_of
from tracewheel.scoring.flaws import FLAWS, NO_CALL, steps_of

MOST = 512  # episodes of a result that are read: whole groups, drawn by a hash of their names
EXAMPLES = 3
LONGEST = 200  # characters of what went wrong
BUDGET = 0.2  # seconds in which a request makes digests; the page asks again for those that are left
COLUMNS = 'id, task_id, "group", turns, messages, stop_reason, outcome'


@dataclass
class Digest:
    """Counts of some episodes.

    Attributes:
        episodes: All that the result holds; `read`: those that were looked at.
        stops: Outcome and stop reason to episodes, of all.
        flaws: Kind of flaw to episodes, of those that were read; `examples` are ids of some.
        first_trouble: Number of the step (from 1) at which a failed episode first erred, to episodes; 0 where no reply
            or call shows an error.
        lengths: Outcome to number of steps to episodes.
        parted: Number of calls that a failed episode shares with the success of its group which it follows longest, to
            episodes; `ways` is what it did then.
        calls, errors: Tool to its calls, and to those whose reply is an error.
        invented: Name of a tool that was called but not offered, to calls.
        blames: Who is at fault, and what went wrong, to episodes, of all.
        groups, alike: Groups that were read whole enough to compare, and those in which all runs of calls are the same.
    """

    episodes: int = 0
    read: int = 0
    stops: Counter[tuple[str, str]] = field(default_factory=Counter)
    flaws: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    first_trouble: Counter[int] = field(default_factory=Counter)
    lengths: dict[str, Counter[int]] = field(default_factory=dict)
    parted: Counter[int] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    invented: Counter[str] = field(default_factory=Counter)
    blames: Counter[tuple[str, str]] = field(default_factory=Counter)
    groups: int = 0
    alike: int = 0

    @property
    def outcomes(self) -> Counter[str]:
        """Episodes by outcome."""
        return _by(self.stops, 0)

    @property
    def reasons(self) -> Counter[str]:
        """Episodes by stop reason."""
        return _by(self.stops, 1)

    @property
    def at_fault(self) -> Counter[str]:
        """Episodes by who is at fault; those in which nothing went wrong are left out."""
        return _by(self.blames, 0)


def _by(stops: Counter[tuple[str, str]], place: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for key, episodes in stops.items():
        found[key[place]] += episodes
    return Counter(dict(found.most_common()))


def digests_within(sources: Sequence[Source], tools: frozenset[str] | None, seconds: float = BUDGET) -> dict[Source, Digest]:
    """The digests of some sources that are known, or can be made in time; one more is made in any case.

    Args:
        sources: Of rollouts; those in front come first.
        tools: Names of the offered tools; None where they are unknown.
        seconds: For those that are not known yet.
    """
    found: dict[Source, Digest] = {}
    started = time.monotonic()
    made = 0
    for source in sources:
        key = _key(source, tools)
        if key not in _KNOWN:
            if made and time.monotonic() - started > seconds:
                continue
            made += 1
        found[source] = _digest(key)
    return found


Key = tuple[Source, int, frozenset[str] | None]
_KNOWN: dict[Key, Digest] = {}
MOST_KNOWN = 4_000


def _key(source: Source, tools: frozenset[str] | None) -> Key:
    """The file as it is: scores that come later make another one of it."""
    return source, source.trajectories.stat().st_mtime_ns, tools


def _digest(key: Key) -> Digest:
    known = _KNOWN.get(key)
    if known is None:
        if len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.clear()
        known = _KNOWN[key] = digest(key[0], key[2])
    return known


def digest(source: Source, tools: frozenset[str] | None, most: int = MOST) -> Digest:
    """Read the episodes of a source.

    Args:
        source: Where they are.
        tools: Names of the offered tools; None where they are unknown.
        most: How many episodes are read; the stop reasons are counted over all.
    """
    table = Episodes([source])
    stops: Counter[tuple[str, str]] = Counter()
    for row in table.rows("SELECT outcome, stop_reason, count(*) n FROM {episodes} GROUP BY ALL"):
        stops[row["outcome"], row["stop_reason"]] = row["n"]
    blames: Counter[tuple[str, str]] = Counter()
    for row in table.rows(
        "SELECT fault, detail, count(*) n FROM {episodes} WHERE fault <> '' GROUP BY ALL ORDER BY n DESC, 1, 2 LIMIT ?", [MOST]
    ):
        blames[row["fault"], row["detail"][:LONGEST]] += row["n"]
    every = sum(stops.values())
    # Whole groups are read, as long as there is room: single episodes of a group say nothing about its diversity.
    rows = table.rows(f'SELECT {COLUMNS} FROM {{episodes}} ORDER BY hash("group"), "group", id LIMIT ?', [most])
    found = Digest(episodes=every, read=len(rows), stops=stops, blames=blames)
    groups: dict[str, list[tuple[str, Calls]]] = {}
    for row in rows:
        messages, turns = value_of(row["messages"]), value_of(row["turns"])
        _look(found, row, messages, turns, tools)
        own = messages[first_turn(messages, turns) :]
        groups.setdefault(row["group"], []).append((row["outcome"], Calls.of(row["id"], own, ())))
    for members in groups.values():
        _compare(found, members)
    return found


def _look(
    found: Digest,
    row: dict[str, Any],
    messages: list[dict[str, Any]],
    turns: list[dict[str, Any]],
    tools: frozenset[str] | None,
) -> None:
    steps = steps_of(messages, turns, tools) | {"stop_reason": row["stop_reason"]}
    flaws = [name for name, has in FLAWS.items() if has(steps)]
    flaws += [NO_CALL] if tools and not steps["calls"] else []
    for name in flaws:
        found.flaws[name] += 1
        if len(found.examples.setdefault(name, [])) < EXAMPLES:
            found.examples[name].append(row["id"])
    found.invented.update(steps["unknown_tools"])
    found.lengths.setdefault(row["outcome"], Counter())[len(turns)] += 1
    trouble = 0
    for step, (names, failed) in enumerate(_replies(messages[first_turn(messages, turns) :]), 1):
        found.calls.update(names)
        found.errors.update(failed)
        malformed = step <= len(turns) and turns[step - 1].get("malformed")
        invented = tools is not None and any(name not in tools for name in names)
        if not trouble and (failed or malformed or invented):
            trouble = step
    if row["outcome"] in ("failed", "partial"):
        found.first_trouble[trouble] += 1


def _replies(messages: Iterable[dict[str, Any]]) -> list[tuple[list[str], list[str]]]:
    """For each assistant turn the tools that it called, and those whose reply is an error."""
    found: list[tuple[list[str], list[str]]] = []
    named: dict[str, str] = {}
    for message in messages:
        if message["role"] == "assistant":
            calls = message.get("tool_calls") or []
            named = {str(call.get("id")): str(call["function"]["name"]) for call in calls}
            found.append(([str(call["function"]["name"]) for call in calls], []))
        elif message["role"] == "tool" and found and str(message.get("content") or "").lstrip().lower().startswith("error"):
            found[-1][1].append(named.get(str(message.get("tool_call_id")), "(not a call)"))
    return found


def _compare(found: Digest, members: list[tuple[str, Calls]]) -> None:
    """Where the failures of a group part from its successes, and whether all did the same."""
    if len(members) < 2:
        return
    found.groups += 1
    found.alike += len({tuple(calls.keys) for _, calls in members}) == 1
    solved = [calls for outcome, calls in members if outcome == "solved"]
    for outcome, calls in members:
        if outcome in ("failed", "partial") and (parts := first_divergence(calls, solved)):
            found.parted[parts.step] += 1
            found.ways[parts.way] += 1


def together(digests: Iterable[Digest]) -> Digest:
    """The sum of some digests."""
    total = Digest()
    for one in digests:
        for name in ("episodes", "read", "groups", "alike"):
            setattr(total, name, getattr(total, name) + getattr(one, name))
        for name in ("stops", "blames", "flaws", "first_trouble", "parted", "ways", "calls", "errors", "invented"):
            getattr(total, name).update(getattr(one, name))
        for name, ids in one.examples.items():
            total.examples[name] = [*total.examples.get(name, []), *ids][-EXAMPLES:]
        for outcome, counts in one.lengths.items():
            total.lengths.setdefault(outcome, Counter()).update(counts)
    return total
