"""Few-shot demonstrations: verified episodes of training tasks, chosen by where the policy fails."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tracewheel import Task, content_hash, read_table
from tracewheel_prompts.prompt import shown_episode

MOST, LONGEST_REPLY = 200, 300


class Demonstration(NamedTuple):
    """An episode as text, and the family of its task."""

    family: str
    text: str


class Pool:
    """The demonstrations that there are, by id.

    Args:
        curated: The curated folder.
        tasks: The training tasks whose episodes may be shown.
        longest: The most characters of one.
        held: Texts that the prompt has already.
    """

    def __init__(self, curated: Path, tasks: Sequence[Task], longest: int, held: Sequence[str] = ()) -> None:
        families = {task.id: task.family for task in tasks}
        found: dict[str, str] = {}
        table = read_table(curated / "episodes.parquet", ["task_id", "messages", "success"])
        for task_id, messages, success in zip(table["task_id"], table["messages"], table["success"], strict=True):
            if success is not None and success >= 1.0 and task_id in families:
                text = shown_episode(json.loads(messages), LONGEST_REPLY)
                if len(text) <= longest and (task_id not in found or (len(text), text) < (len(found[task_id]), found[task_id])):
                    found[task_id] = text
        shortest = sorted(found.items(), key=lambda item: (len(item[1]), item[0]))
        self._known = {name_of(text): Demonstration("", text) for text in held}
        self._known |= {name_of(text): Demonstration(families[task], text) for task, text in shortest[:MOST]}

    def __len__(self) -> int:
        return len(self._known)

    def texts(self, ids: str) -> tuple[str, ...]:
        """The texts of ids, which stand in a line."""
        return tuple(self._known[name].text for name in ids.split())

    def next(self, ids: str, records: Sequence[Mapping[str, Any]], most: int) -> str:
        """Ids with one more: the shortest episode of the family that fails most. The oldest makes room.

        Args:
            ids: Those that the prompt has.
            records: `family` and `score` of the minibatch's tasks.
            most: How many a prompt holds.
        """
        held = ids.split()
        scores: dict[str, list[float]] = {}
        for record in records:
            scores.setdefault(record["family"], []).append(record["score"])
        for family in sorted(scores, key=lambda name: (sum(scores[name]) / len(scores[name]), name)):
            for name, one in self._known.items():
                if one.family == family and name not in held:
                    return " ".join([*held, name][-most:])
        return ids


def name_of(text: str) -> str:
    """The id of a demonstration."""
    return content_hash(text, length=10)
