"""The check that a prompt holds no task that it is judged on."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tracewheel import LeakError, read_batches, read_table, texts_of
from tracewheel_prompts.prompt import Prompt, shown_episode

WORDS, FEWEST, SHARE = 13, 5, 0.2  # as curation finds quotes: of a run, of the shortest text; the share of its runs
LONGEST_REPLY, ROWS = 300, 500
TASKS, RESERVE, EPISODES, TRAIN = "tasks.parquet", "reserve.parquet", "episodes.parquet", "train"
_WORD = re.compile(r"[^\W_]+")


class Known(NamedTuple):
    """Words of a task: of its prompt, of a text in its goal, or of a logged conversation."""

    task: str
    split: str
    words: list[str]

    @property
    def length(self) -> int:
        """Of its runs."""
        return min(WORDS, len(self.words))


def check_prompt(prompt: Prompt, curated: Path) -> None:
    """Check that no part of a prompt holds a text of a task outside training; what training tasks say as well is none.

    Raises:
        LeakError: one does; the message names the part, the task and some words.
    """
    parts = {f"demonstration {number}": text for number, text in enumerate(prompt.demonstrations, start=1)}
    parts |= {"the system message": prompt.system} | {f"the description of {name}": text for name, text in prompt.tools.items()}
    lengths = range(FEWEST, WORDS + 1)
    told = {part: {length: _runs(_words(text), length) for length in lengths} for part, text in parts.items()}
    found = []
    for known in _known(curated, training=False):
        if known.length < FEWEST:
            continue
        own = _runs(known.words, known.length)
        found += [(part, known, own & runs[known.length], len(own)) for part, runs in told.items()]
    found = [each for each in found if each[2] and len(each[2]) >= SHARE * each[3]]
    for known in _known(curated, training=True) if found else ():
        for length in {other.length for _, other, _, _ in found}:
            said = _runs(known.words, length)
            for _, other, shared, _ in found:
                shared -= said if other.length == length else set()
    for part, known, shared, count in found:
        if shared and len(shared) >= SHARE * count:
            raise LeakError(
                f"{part} of the prompt holds task {known.task} of {known.split}, on which the prompt is judged "
                f'("{min(shared)}"): leave it out, or show a training task'
            )


def _known(curated: Path, training: bool) -> Iterator[Known]:
    for path in filter(Path.is_file, (curated / TASKS, curated / RESERVE)):
        table = read_table(path, ["id", "split", "prompt", "goal"])
        for task, split, *texts in table[(table["split"] == TRAIN) == training].itertuples(index=False):
            for text in (texts[0], *texts_of(json.loads(texts[1]))):
                yield Known(task, split, _words(text))
    for batch in read_batches(curated / EPISODES, ROWS, ["task_id", "split", "messages"]):
        for row in batch.to_pylist():
            if (row["split"] == TRAIN) == training:
                yield Known(row["task_id"], row["split"], _words(shown_episode(json.loads(row["messages"]), LONGEST_REPLY)))


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


def _runs(words: list[str], length: int) -> set[str]:
    return {" ".join(words[start : start + length]) for start in range(len(words) - length + 1)}
