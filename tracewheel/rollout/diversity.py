"""How much the episodes of a group differ, which group-relative learning depends on.

An episode counts as its sequence of calls, read from the messages. Each figure is the mean over the groups with at
least two episodes:

- `distinct_tool_sequences`: distinct sequences of tool names per episode. 1 when no two are alike, 1 / G when
  all G are.
- `group_diversity`: the mean over pairs of episodes of the edit distance (Levenshtein 1966) between
  their calls, names and arguments together, over the longer one's length. 0 when all are alike.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from tracewheel.core.types import canonical_json

WORDS = ""


def calls_of(messages: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """The calls (name, arguments) that an assistant makes, in order; a turn without a readable call is ("", its words)."""
    calls: list[tuple[str, str]] = []
    for message in messages:
        if message["role"] == "assistant":
            made = message.get("tool_calls") or []
            calls += [(call["function"]["name"], canonical_json(call["function"]["arguments"])) for call in made]
            calls += [] if made else [(WORDS, str(message.get("content") or ""))]
    return tuple(calls)


def group_diversity(groups: Iterable[Hashable], conversations: Iterable[Iterable[Mapping[str, Any]]]) -> dict[str, float]:
    """The two figures as metrics; empty when no group has two episodes.

    Args:
        groups: [N] the group of each episode.
        conversations: [N] the messages of each episode.
    """
    members: defaultdict[Hashable, list[tuple[tuple[str, str], ...]]] = defaultdict(list)
    for group, messages in zip(groups, conversations, strict=True):
        members[group].append(calls_of(messages))
    several = [sequences for sequences in members.values() if len(sequences) > 1]
    if not several:
        return {}
    return {
        "group_diversity": sum(mean_distance(sequences) for sequences in several) / len(several),
        "distinct_tool_sequences": sum(_distinct_share(sequences) for sequences in several) / len(several),
    }


def mean_distance(sequences: Sequence[Sequence[Hashable]]) -> float:
    """The mean normalised edit distance over all pairs of two or more sequences; equal ones are compared once."""
    counts = Counter(tuple(sequence) for sequence in sequences)
    total = sum(counts[one] * counts[other] * normalised_distance(one, other) for one, other in combinations(counts, 2))
    return total / (len(sequences) * (len(sequences) - 1) / 2)


def normalised_distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> float:
    """Insertions, deletions and substitutions that make `one` into `other`, over the longer one's length; in [0, 1]."""
    if not one or not other:
        return float(bool(one) or bool(other))
    before = list(range(len(other) + 1))
    for row, item in enumerate(one, 1):
        current = [row]
        for column, opposite in enumerate(other, 1):
            current.append(min(before[column] + 1, current[-1] + 1, before[column - 1] + (item != opposite)))
        before = current
    return before[-1] / max(len(one), len(other))


def _distinct_share(sequences: Sequence[Sequence[tuple[str, str]]]) -> float:
    return len({tuple(name for name, _ in sequence) for sequence in sequences}) / len(sequences)
