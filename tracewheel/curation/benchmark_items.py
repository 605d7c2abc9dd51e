"""Reads the items of benchmark files, to compare traces with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_foreign_batches

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
