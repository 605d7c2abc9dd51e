"""Sections and tables that can be shown on a terminal, as Markdown, or as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ESCAPED = str.maketrans(
    {"|": "\\|", "\n": " ", "<": "&lt;", ">": "&gt;", "&": "&amp;", "`": "\\`", "*": "\\*", "_": "\\_", "[": "\\["}
)


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


def to_markdown(title: str, sections: Sequence[Section]) -> str:
    """The page as Markdown; text of policies and logs stays text."""
    lines = [f"# {_text(title)}", ""]
    for section in sections:
        lines += [f"## {_text(section.heading)}", ""]
        for sentence in section.sentences:
            lines += [_text(sentence), ""]
        for part in section.parts:
            if part.title:
                lines += [f"**{_text(part.title)}**", ""]
            if isinstance(part, Table):
                lines += [_row(part.headings), "|---|" + "---:|" * (len(part.headings) - 1)]
                lines += [_row(row) for row in part.rows]
            else:
                lines += [f"> {_text(line)}  " for line in part.lines]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_text, cells))} |"


def _text(text: str) -> str:
    return text.translate(ESCAPED)
