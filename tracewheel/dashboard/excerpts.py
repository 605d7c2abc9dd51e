"""The places in episodes where the words of a search are, read from the stored trajectories."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import duckdb

from tracewheel.dashboard.episodes import cursor
from tracewheel.dashboard.index.episode_facts import words_of
from tracewheel.dashboard.library import Place
from tracewheel.dashboard.sources import TRAJECTORIES
from tracewheel.dashboard.text import value_of

AROUND = 110


def with_excerpts(place: Place, rows: Sequence[dict[str, Any]], words: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a search with `excerpt`: text before, the words, text after."""
    files = sorted({str(place.path / "store" / row["entry"] / row["part"] / TRAJECTORIES) for row in rows})
    texts: dict[str, str] = {}
    if files:
        database = cursor()
        try:
            holes = ", ".join("?" for _ in rows)
            found = database.execute(
                f"SELECT id, messages FROM read_parquet(?) WHERE id IN ({holes})",
                [files, *(row["trajectory"] for row in rows)],
            )
            texts = {name: words_of(value_of(messages)) for name, messages in found.fetchall()}
        except (duckdb.Error, ValueError):
            pass  # freed or damaged since it was read: the rows are shown without their words
        finally:
            database.close()
    return [row | {"excerpt": excerpt(texts.get(row["trajectory"], ""), words)} for row in rows]


def excerpt(text: str, words: Sequence[str]) -> tuple[str, str, str]:
    """The surroundings of the first of some words in a text; its beginning where none is there as it was typed."""
    for word in words:
        pieces = [re.escape(piece) for piece in re.findall(r"\w+", word)]
        found = re.search(r"[\W_]+".join(pieces), text, re.IGNORECASE) if pieces else None
        if found:
            begin, end = max(0, found.start() - AROUND), found.end() + AROUND
            return ("…" if begin else "") + text[begin : found.start()], found.group(), text[found.end() : end]
    return text[: 2 * AROUND], "", ""
