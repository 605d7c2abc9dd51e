"""Finds training conversations that quote a held-out task: its prompt, or the gold answer that only its verifier may see.

Copies of a task are on its side anyway (`side_replay.py`). This is about other tasks, whose conversation holds such a text all
the same: in a tool's reply, in what a user or the agent wrote, in a system message. Texts are compared by runs of words, as
benchmarks are (`contamination.py`). What a conversation shares with a held-out task because their tasks are alike is no
quote: runs of its own goal, in prompts also of its own prompt, and phrases that many conversations or many held-out tasks hold.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tracewheel.config.curation import CurationConfig, DecontaminationConfig
from tracewheel.core.files import read_batches
from tracewheel.core.types import Task
from tracewheel.curation.contamination import BenchmarkIndex, BenchmarkItem, texts_in
from tracewheel.curation.replayed_traces import ReplayedTraces
from tracewheel.curation.side_replay import TraceLinks
from tracewheel.curation.split_keeping import Candidates, KeptSplits, describe_ledger, keep_splits
from tracewheel.curation.split_record import TASK, TEST, SplitRecord, identity_key

ROWS_AT_ONCE = 1000
PROMPT, GOAL = "prompt", "goal"
QUOTES, QUOTED = "quotes a held-out task", "quoted in a conversation that was trained on"


class Quote(NamedTuple):
    """A conversation of a task that holds a text of a held-out task."""

    task: str
    trace: str
    held_out: str


def splits_without_quotes(
    links: TraceLinks,
    candidates: Candidates,
    config: CurationConfig,
    earlier: SplitRecord | None,
    replayed: ReplayedTraces,
) -> tuple[KeptSplits, dict[str, str]]:
    """The splits without the tasks that a quote keeps out of the sets, and these tasks with the reason.

    The task of a conversation that quotes a held-out task leaves; where it may have been trained on before, the quoted one.

    Raises:
        DataError: as `keep_splits`.
    """
    left, seen, earlier = dict[str, str](), set[str](), earlier or SplitRecord()
    while True:
        splits = keep_splits(links, candidates, config, earlier)
        states = {task_id: splits.record.states[identity_key(TASK, task_id)] for task_id in candidates.kept["id"]}
        # What is trained on now, or was in an earlier curation.
        trained = {task_id for task_id, state in states.items() if state.trained} - seen
        held = [task_id for task_id, state in states.items() if state.side == TEST]
        own = links.rows[links.rows["task_id"].isin(trained)]
        if own.empty or not held:
            return splits, left
        seen |= trained
        texts = HeldOutTexts(held, replayed.tasks.task, config.decontamination)
        for quote in texts.quotes(replayed.file, dict(zip(own["id"], own["task_id"], strict=True))):
            before = earlier.states.get(identity_key(TASK, quote.task))
            used = earlier.lost or (before is not None and before.trained > 0)
            left |= {quote.held_out: QUOTED} if used else {quote.task: QUOTES}
        if not left:
            return splits, left
        candidates = replace(candidates, kept=candidates.kept[~candidates.kept["id"].isin(left)])


def with_quotes(ledger: dict[str, Any], quotes: Mapping[str, str]) -> dict[str, Any]:
    """The ledger of the splits with the numbers of tasks that quotes keep out of the sets, and in words."""
    counts = {"quoting": list(quotes.values()).count(QUOTES), "quoted": list(quotes.values()).count(QUOTED)}
    says = describe_ledger(ledger)
    if quotes:
        says += (
            f" Conversations quote held-out tasks: {counts['quoting']} training tasks are left out for it, and"
            f" {counts['quoted']} held-out tasks, where the conversation's task had been trained on."
        )
    return {**ledger, **counts, "says": says}


class HeldOutTexts:
    """Prompts and gold answers of tasks of the test side.

    Args:
        tasks: These tasks.
        task_of: The task of an id.
        config: How long a run is, how much of a text counts, and what is a common phrase.
    """

    def __init__(self, tasks: Iterable[str], task_of: Callable[[str], Task], config: DecontaminationConfig) -> None:
        self._ids, self._task_of, self._common = list(tasks), task_of, config.common
        texts: dict[str, list[BenchmarkItem]] = {PROMPT: [], GOAL: []}
        for number, task_id in enumerate(self._ids):
            task = task_of(task_id)
            texts[PROMPT].append(BenchmarkItem(PROMPT, number, (task.prompt,)))
            texts[GOAL].append(BenchmarkItem(GOAL, number, tuple(texts_in(task.goal))))
        self._indexes = {kind: BenchmarkIndex(items, config) for kind, items in texts.items()}

    def quotes(self, replayed: Path, wanted: Mapping[str, str]) -> list[Quote]:
        """The quotes in some conversations.

        Args:
            replayed: Parquet file of replayed traces (`id`, `messages`).
            wanted: Trace id to the id of its task.
        """
        found: dict[tuple[str, int], set[Quote]] = defaultdict(set)
        tasks_with: dict[tuple[str, int], set[str]] = defaultdict(set)
        own: dict[str, dict[str, set[int]]] = {}
        for batch in read_batches(replayed, ROWS_AT_ONCE, ["id", "messages"]):
            for trace, messages in zip(batch["id"].to_pylist(), batch["messages"].to_pylist(), strict=True):
                if trace not in wanted:
                    continue
                task = wanted[trace]
                own.setdefault(task, self._own_runs(task))
                for kind, index in self._indexes.items():
                    for item, runs in index.quoted(json.loads(messages), without=own[task][kind]).items():
                        for run in runs:
                            tasks_with[kind, run].add(task)
                            found[kind, run].add(Quote(task, trace, self._ids[item]))
        telling = (quotes for run, quotes in found.items() if len(tasks_with[run]) <= self._common)
        return sorted(set().union(*telling))

    def _own_runs(self, task_id: str) -> dict[str, set[int]]:
        task = self._task_of(task_id)
        goal = list(texts_in(task.goal))
        return {PROMPT: self._indexes[PROMPT].runs_in([task.prompt, *goal]), GOAL: self._indexes[GOAL].runs_in(goal)}
