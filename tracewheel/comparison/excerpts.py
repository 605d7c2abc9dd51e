"""Two episodes of one task side by side, from the message at which they part."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracewheel.comparison.differences import value_differences
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_table
from tracewheel.evaluation.changes import GREEDY
from tracewheel.rollout.rollout import TRAJECTORIES_FILE
from tracewheel.scoring.score import SCORES_FILE

LAST_TURNS, LONGEST, MOST_STATES = 4, 240, 3
COLUMNS = ("id", "messages", "final_state", "stop_reason", "detail")


class Episodes:
    """The greedy episodes of an evaluation, read when one is asked for."""

    def __init__(self, evaluation: Path) -> None:
        self._folder = evaluation / GREEDY
        self._rows: dict[str, dict[str, Any]] | None = None

    def get(self, trajectory: str | None) -> dict[str, Any] | None:
        """`messages`, `final_state`, `stop_reason` and the score's `detail` of an episode; None where it is not there."""
        if self._rows is None:
            self._rows = self._read()
        return self._rows.get(trajectory or "")

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            table = read_table(self._folder / TRAJECTORIES_FILE, COLUMNS)
            scores = read_table(self._folder / SCORES_FILE, ["trajectory_id", "detail"])
        except DataError:
            return {}
        said = dict(zip(scores["trajectory_id"].map(str), scores["detail"].map(str), strict=True))
        rows = [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
        return {str(row["id"]): {**row, "scored": said.get(str(row["id"]), "")} for row in rows}


def excerpt(run: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Where two episodes of a task part, and how each ends.

    Args:
        run: An episode, as `Episodes.get` gives it.
        base: The other run's.

    Returns:
        `parts_at` (number of the first message that differs, from 1; None where all are equal), and for `run` and `base`
        that message and the last `turns`, numbered and in words, `stop_reason`, `scored` (the verifier's words);
        `final_state`: the first places that differ, with the values of `base` and `run`; `more_states`: how many more do.
    """
    ours, theirs = (json.loads(episode["messages"]) for episode in (run, base))
    parts = next((at for at, (one, two) in enumerate(zip(ours, theirs, strict=False)) if one != two), None)
    if parts is None and len(ours) != len(theirs):
        parts = min(len(ours), len(theirs))
    states = [json.loads(episode["final_state"]) for episode in (base, run)]
    found = list(value_differences(*states))
    return {
        "parts_at": None if parts is None else parts + 1,
        "run": _side(run, ours, parts),
        "base": _side(base, theirs, parts),
        "final_state": [[path, _short(one), _short(two)] for path, one, two in found[:MOST_STATES]],
        "more_states": max(0, len(found) - MOST_STATES),
    }


def _side(episode: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], parts: int | None) -> dict[str, Any]:
    first = len(messages) if parts is None else parts
    last = max(len(messages) - LAST_TURNS, min(first + 1, len(messages)))
    shown = [*messages[first : first + 1], *messages[last:]]
    numbers = [*range(first + 1, min(first + 1, len(messages)) + 1), *range(last + 1, len(messages) + 1)]
    return {
        "turns": [f"{number} {in_words(message)}" for number, message in zip(numbers, shown, strict=True)],
        "stop_reason": str(episode["stop_reason"]),
        "scored": str(episode["scored"]),
    }


def in_words(message: Mapping[str, Any]) -> str:
    """A message in one line: role, text, calls."""
    content = message.get("content")
    text = content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)
    calls = [
        f"→ {call['function']['name']}({_short(call['function']['arguments'])})" for call in message.get("tool_calls") or []
    ]
    return " ".join([f"{message['role']}:", *([_short(text)] if text else []), *calls])


def _short(value: Any) -> str:
    text = " ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
