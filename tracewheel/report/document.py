"""What a page of sections is made of: sentences, tables, quotes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows of text below headings; the first column holds names."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


@dataclass(frozen=True)
class Quote:
    """A heading and lines that someone else wrote, shown as they are."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Section:
    """A heading, sentences, then tables and quotes."""

    heading: str
    sentences: Sequence[str] = ()
    parts: Sequence[Table | Quote] = ()
