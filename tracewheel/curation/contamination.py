"""Finds traces that contain benchmark items: by shared runs of words, and by similarity.

Runs of 13 words, and ignoring runs that many items share, follow Brown et al. 2020 (arXiv:2005.14165, appendix C). An item
shorter than a run is one run as a whole, if it has at least `FEWEST_WORDS` words.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
import numpy as np
import numpy.typing as npt

from tracewheel.config.curation import DecontaminationConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_foreign_batches
from tracewheel.curation.minhash import SALT, band_keys, signatures
from tracewheel.curation.task_text import TaskText, arguments_of

if TYPE_CHECKING:
    import pandas


ROWS = 256


@dataclass(frozen=True)
class BenchmarkItem:
    """One item: its place and its texts."""

    file: str
    line: int
    texts: tuple[str, ...]


def read_benchmark(path: Path) -> Iterator[BenchmarkItem]:
    """The items of a file: lines of JSONL, elements of a JSON list, rows of Parquet, or lines of text.

    Lines, and rows of Parquet, count from 1.

    Raises:
        DataError: the file is missing, or is not of the format that its name ends with.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such benchmark file (curation.decontamination.benchmarks)")
    try:
        match path.suffix.lower():
            case ".parquet":
                batches = read_foreign_batches(path, ROWS)
                rows: list[tuple[int, Any]] = list(enumerate((row for batch in batches for row in batch.to_pylist()), start=1))
            case ".jsonl" | ".ndjson":
                lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
                rows = [(number, json.loads(line)) for number, line in lines if line.strip()]
            case ".json":
                rows = list(_elements(path.read_text(encoding="utf-8")))
            case _:
                rows = list(enumerate(path.read_text(encoding="utf-8").splitlines(), start=1))
    except (ValueError, OSError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read as a benchmark: {error}") from error
    for number, value in rows:
        texts = tuple(texts_in(value))
        if texts:
            yield BenchmarkItem(path.name, number, texts)


def _elements(text: str) -> Iterator[tuple[int, Any]]:
    """The elements of a JSON list with the lines where they begin; a single object is one element."""
    start = len(text) - len(text.lstrip())
    if text[start : start + 1] != "[":
        yield 1, json.loads(text)
        return
    decoder, at = json.JSONDecoder(), start + 1
    line, counted = 1, 0
    while True:
        at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n,")) if text[at : at + 1] in " \t\r\n," else 0
        if text[at : at + 1] in ("]", ""):
            return
        line += text.count("\n", counted, at)
        counted = at
        value, at = decoder.raw_decode(text, at)
        yield line, value


def texts_in(value: Any) -> Iterator[str]:
    """All texts in a JSON value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from texts_in(part)
    elif isinstance(value, list | numpy.ndarray):
        for part in value:
            yield from texts_in(part)


FEWEST_WORDS = 5
PERMUTATIONS = 128
_WORD = re.compile(r"[^\W_]+")


class Overlap(NamedTuple):
    """A benchmark item in a trace.

    Attributes:
        trace_id: The trace.
        kind: `words` (shared runs of words) or `similar`.
        file: The benchmark's file.
        line: The item's line in it.
        share: Share of the item's runs that the trace contains, or the estimated similarity.
        text: The shared words, or the beginning of the item.
    """

    trace_id: str
    kind: str
    file: str
    line: int
    share: float
    text: str


class BenchmarkIndex:
    """An index of benchmark items, to find them in traces.

    Args:
        items: The items of all benchmarks.
        config: The length of a run, and how much of an item must be found.
    """

    def __init__(self, items: Iterable[BenchmarkItem], config: DecontaminationConfig) -> None:
        self._config = config
        self._items = list(items)
        self._word_numbers: dict[str, int] = {}
        self._runs: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))  # by length, by hash: the items
        self._totals: Counter[int] = Counter()
        self._add_runs()
        self._hashes = {length: np.array(sorted(runs), dtype=np.uint64) for length, runs in self._runs.items()}
        whole = [TaskText("\n".join(item.texts), ()).shingles() for item in self._items]
        self._long = [number for number, members in enumerate(whole) if len(members) >= FEWEST_WORDS]
        self._signatures = signatures([whole[number] for number in self._long], PERMUTATIONS)
        self._bands: dict[tuple[int, int], list[int]] = defaultdict(list)
        for row, keys in enumerate(band_keys(self._signatures, config.similar)):
            for band, key in enumerate(keys.tolist()):
                self._bands[band, key].append(row)

    @classmethod
    def read(cls, config: DecontaminationConfig) -> BenchmarkIndex:
        """Index the configured files.

        Raises:
            DataError: a file is missing or cannot be read.
        """
        return cls((item for path in config.benchmarks for item in read_benchmark(Path(path))), config)

    def overlaps(self, traces: pandas.DataFrame) -> Iterator[Overlap]:
        """The items in each of some traces (columns `id` and `messages`), matches by words before those by similarity."""
        for trace_id, messages in zip(traces["id"], traces["messages"], strict=True):
            yield from self._overlaps(trace_id, json.loads(messages))

    def runs_in(self, texts: Iterable[str]) -> set[int]:
        """The hashes of the items' runs in some texts."""
        return {run for text in texts for _, run, _ in self._shared_runs(text)}

    def quoted(self, messages: list[dict[str, Any]], without: Collection[int] = ()) -> dict[int, dict[int, str]]:
        """By number of an item in a conversation, its runs there with their words; only items with enough of them.

        Args:
            messages: The conversation.
            without: Runs that do not count.
        """
        found: dict[int, dict[int, str]] = defaultdict(dict)
        for text in _said(messages):
            for item, run, words in self._shared_runs(text):
                if run not in without:
                    found[item][run] = words
        return {item: runs for item, runs in sorted(found.items()) if len(runs) / self._totals[item] >= self._config.share}

    def _overlaps(self, trace_id: str, messages: list[dict[str, Any]]) -> Iterator[Overlap]:
        for item, runs in self.quoted(messages).items():
            origin, share = self._items[item], len(runs) / self._totals[item]
            yield Overlap(trace_id, "words", origin.file, origin.line, share, next(iter(runs.values())))
        texts = _said(messages)
        yield from self._alike(trace_id, TaskText.of(messages, len("\n".join(texts))).user)

    def _add_runs(self) -> None:
        """Index the runs of each item, except those that many items of its file share."""
        of_item: list[set[tuple[int, int]]] = []
        common: Counter[tuple[str, int, int]] = Counter()
        for item in self._items:
            runs: set[tuple[int, int]] = set()
            for text in item.texts:
                words = _words(text)
                length = min(self._config.words, len(words))
                if length >= min(FEWEST_WORDS, self._config.words):
                    numbers = [self._word_numbers.setdefault(word, len(self._word_numbers)) for word in words]
                    runs |= {(length, run) for run in _hashed_runs(np.array(numbers), length).tolist()}
            of_item.append(runs)
            common.update((item.file, *run) for run in runs)
        for number, (item, runs) in enumerate(zip(self._items, of_item, strict=True)):
            for length, run in runs:
                if common[item.file, length, run] <= self._config.common:
                    self._runs[length][run].append(number)
                    self._totals[number] += 1

    def _shared_runs(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Item, hash of the run, and its words, for each run of a text that is in an item."""
        words = _words(text)
        numbers = np.array([self._word_numbers.get(word, -1) for word in words], dtype=np.int64)
        for length, known in self._hashes.items():
            if len(words) < length or not len(known):
                continue
            hashes = _hashed_runs(numbers, length)
            unknown = np.convolve(numbers < 0, np.ones(length, dtype=np.int64), mode="valid") > 0
            places = np.searchsorted(known, hashes).clip(max=len(known) - 1)
            for start in np.flatnonzero((known[places] == hashes) & ~unknown).tolist():
                run = int(hashes[start])
                for item in self._runs[length][run]:
                    yield item, run, " ".join(words[start : start + length])

    def _alike(self, trace_id: str, user: str) -> Iterator[Overlap]:
        members = TaskText(user, ()).shingles()
        if not len(self._signatures) or len(members) < FEWEST_WORDS:
            return
        own = signatures([members], PERMUTATIONS)
        keys = band_keys(own, self._config.similar)[0].tolist()
        rows = sorted({row for band, key in enumerate(keys) for row in self._bands.get((band, key), ())})
        for row in rows:
            similar = float((own[0] == self._signatures[row]).mean())
            if similar >= self._config.similar:
                origin = self._items[self._long[row]]
                yield Overlap(trace_id, "similar", origin.file, origin.line, similar, " ".join(origin.texts)[:200])


def _said(messages: list[dict[str, Any]]) -> list[str]:
    """All that is said in a conversation, and the texts in the arguments of its calls."""
    texts = [message["content"] for message in messages if message.get("content")]
    return texts + [text for message in messages for call in message.get("tool_calls") or () for text in arguments_of(call)]


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


def _hashed_runs(numbers: npt.NDArray[np.int64] | Sequence[int], length: int) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of each run of `length` word numbers."""
    words = (np.asarray(numbers, dtype=np.int64) + 2).astype(np.uint64)
    words = (words * SALT[0]) ^ (words * SALT[1] >> np.uint64(31))
    count = len(words) - length + 1
    hashes = np.zeros(count, dtype=np.uint64)
    for place in range(length):
        hashes += words[place : place + count] * SALT[2 + place]
    return hashes
