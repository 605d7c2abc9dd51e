"""The episodes that the quality report shows: training episodes of every kind, shortened."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.curation.curated_folder import TRAIN

if TYPE_CHECKING:
    import pandas

LONGEST_TEXT, MOST_MESSAGES = 600, 40


def choose_examples(labelled: pandas.DataFrame, tasks: pandas.DataFrame, limit: int, episodes: Path) -> list[dict[str, Any]]:
    """Up to `limit` episodes of the training split, taken in turn from each failure kind and the successes, in order of ids.

    Failures with a known divergence come first within their kind.

    Args:
        labelled: Episodes with labels.
        tasks: Task records.
        limit: The largest number of examples.
        episodes: The file with their conversations.
    """
    import pyarrow.dataset

    training = labelled[labelled["split"] == TRAIN]
    prompts = dict(zip(tasks["id"], tasks["prompt"], strict=True))
    known = training[training["label"].notna()].assign(unlike=lambda frame: frame["diverges_at"].isna())
    ordered = known.sort_values(["unlike", "trace_id"])
    kinds = [group.head(limit).to_dict("records") for _, group in ordered.groupby("failure_kind")]
    chosen = list(_in_turn(kinds))[:limit]
    if not chosen:
        return []
    wanted = pyarrow.dataset.field("trace_id").isin([row["trace_id"] for row in chosen])
    found = pyarrow.dataset.dataset(episodes, format="parquet").to_table(columns=["trace_id", "messages"], filter=wanted)
    said = dict(zip(*(found[name].to_pylist() for name in ("trace_id", "messages")), strict=True))
    return [_example(row, said[row["trace_id"]], prompts) for row in chosen]


def _in_turn(groups: Sequence[Sequence[dict[Any, Any]]]) -> Iterator[dict[Any, Any]]:
    for place in range(max(map(len, groups), default=0)):
        yield from (group[place] for group in groups if place < len(group))


def _example(row: dict[Any, Any], said: str, prompts: dict[str, str]) -> dict[str, Any]:
    messages = json.loads(said)
    parts = row["diverges_message"] if row["diverges_message"] == row["diverges_message"] else None
    at = None if parts is None or str(parts) == "<NA>" else int(parts)
    return {
        "trace": row["trace_id"],
        "task": row["task_id"],
        "prompt": prompts.get(row["task_id"], "")[:LONGEST_TEXT],
        "label": float(row["label"]),
        "source": row["outcome_source"],
        "failure_kind": row["failure_kind"],
        "failure_detail": row["failure_detail"],
        "diverges_message": at,
        "diverges_from": row["diverges_from"] or None,
        "left_out": max(0, len(messages) - MOST_MESSAGES),
        "messages": [_shown(message) for message in messages[:MOST_MESSAGES]],
    }


def _shown(message: dict[str, Any]) -> dict[str, Any]:
    calls = [call["function"] for call in message.get("tool_calls") or []]
    return {
        "role": message["role"],
        "text": _short(message.get("content") or ""),
        "calls": [{"name": call["name"], "arguments": _short(str(call["arguments"]))} for call in calls],
    }


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({len(text) - LONGEST_TEXT:,} characters more)"
