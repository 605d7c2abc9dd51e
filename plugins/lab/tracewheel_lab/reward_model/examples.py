"""Verified trajectories as examples of a reward model: split by task, and paired within a task."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tracewheel import DataError, Trajectory, content_hash, read_records, read_scores, success_of

SHARES = (("train", 0.6), ("calibrate", 0.8), ("test", 1.0))


class Example(NamedTuple):
    """A verified trajectory: its task, the tokens as they were sampled, and whether it is a success."""

    task: str
    token_ids: tuple[int, ...]
    success: bool


class Pair(NamedTuple):
    """Tokens of a success and of a failure at one task."""

    chosen: tuple[int, ...]
    rejected: tuple[int, ...]


def read_examples(trajectories: Iterable[Path], scores: Iterable[Path]) -> list[Example]:
    """The scored trajectories of some files, each token sequence of a task once, ordered by content.

    Raises:
        DataError: none of them is scored.
    """
    solved: dict[str, bool] = {}
    for path in scores:
        solved |= {item.trajectory_id: success_of(item) >= 1.0 for item in read_scores(path) if item.status == "scored"}
    found = {
        Example(row.task_id, tuple(row.token_ids), solved[row.id])
        for path in trajectories
        for row in read_records(path, Trajectory)
        if row.id in solved and row.token_ids
    }
    if not found:
        raise DataError("no scored trajectory with token ids: nothing to train a reward model on")
    return sorted(found)


def split_by_task(examples: Sequence[Example], seed: int = 0) -> dict[str, list[Example]]:
    """`train`, `calibrate` and `test`: a task's place follows from its id, so that no task is in two."""
    parts: dict[str, list[Example]] = {name: [] for name, _ in SHARES}
    for example in examples:
        place = int(content_hash([seed, example.task], 8), 16) / 16**8
        parts[next(name for name, end in SHARES if place < end)].append(example)
    return parts


def pairs_of(examples: Sequence[Example], most: int, seed: int) -> list[Pair]:
    """Successes against failures of the same task, at most so many of each task, drawn with the seed."""
    pairs: list[Pair] = []
    draw = random.Random(seed)
    for task in sorted({example.task for example in examples}):
        own = [example for example in examples if example.task == task]
        good, bad = ([e.token_ids for e in own if e.success is success] for success in (True, False))
        all_pairs = [Pair(*pair) for pair in itertools.product(good, bad)]
        pairs += draw.sample(all_pairs, min(most, len(all_pairs)))
    return pairs
