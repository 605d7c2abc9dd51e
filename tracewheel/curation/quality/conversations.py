"""Counts over conversations for the quality report, read in batches."""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from tracewheel.curation.quality.counts import histogram
from tracewheel.environments.recorded.calls import calls_in, is_error

if TYPE_CHECKING:
    import pandas

TEXT_COLUMNS = ("messages", "tools")


class ConversationCounts:
    """Tools and lengths, counted over batches of episodes."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._called: Counter[str] = Counter()
        self._offered: Counter[str] = Counter()
        self._known: Counter[str] = Counter()
        self._solved: Counter[str] = Counter()
        self._lengths: dict[str, list[int]] = {"messages": [], "calls": [], "characters": []}

    def add(self, episodes: pandas.DataFrame) -> None:
        """Count episodes with `messages`, `tools` (JSON text) and `label` (NaN where unknown)."""
        columns = (episodes[name] for name in (*TEXT_COLUMNS, "label"))
        for text, tools, label in zip(*columns, strict=True):
            messages = json.loads(text)
            made = calls_in(messages)
            names = {call.name for call in made}
            self._offered.update(_names(tools))
            self._calls.update(call.name for call in made)
            self._errors.update(call.name for call in made if call.reply is not None and is_error(call.reply))
            self._called.update(names)
            if not math.isnan(label):
                self._known.update(names)
                self._solved.update(names if label >= 1.0 else ())
            for what, length in (("messages", len(messages)), ("calls", len(made)), ("characters", len(text))):
                self._lengths[what].append(length)

    def tools(self) -> list[dict[str, Any]]:
        """Each tool, the most called first: `calls`, `episodes` that call it or where it was `offered`, `errors`, `success`.

        The success is that of the episodes that call it and have a known label, None where there are none.
        """
        return [
            {
                "name": name,
                "calls": self._calls[name],
                "episodes": self._called[name],
                "offered": self._offered[name],
                "errors": self._errors[name],
                "success": self._solved[name] / self._known[name] if self._known[name] else None,
            }
            for name in sorted(self._calls.keys() | self._offered.keys(), key=lambda name: (-self._calls[name], name))
        ]

    def lengths(self) -> dict[str, dict[str, Any]]:
        """Lengths of episodes in messages, calls and characters, each as a `histogram`."""
        return {what: histogram(lengths) for what, lengths in self._lengths.items()}


@functools.lru_cache(maxsize=256)
def _names(tools: str) -> frozenset[str]:
    return frozenset(tool["function"]["name"] for tool in json.loads(tools))
