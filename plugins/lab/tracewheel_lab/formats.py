"""Options of commands on finished runs, and sections in the format that was asked for: text, JSON, Markdown, or a page."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Block, Card, FileOut, Grid, Table, write_whole

if TYPE_CHECKING:
    from tracewheel import Section

FORMATS = ("text", "json", "markdown", "html")
PAGE = FileOut("page", (".html", ".htm"))
ESCAPED = str.maketrans(
    {"|": "\\|", "\n": " ", "<": "&lt;", ">": "&gt;", "&": "&amp;", "`": "\\`", "*": "\\*", "_": "\\_", "[": "\\["}
)


def ids_option(parser: argparse.ArgumentParser) -> None:
    says = "work folder in which ids are looked up (default: runs)"
    parser.add_argument("--run-dir", default="runs", metavar="DIR", help=says)


def format_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text; --json is --format json")
    parser.add_argument("--out", metavar="FILE", help="write it to a file instead of standard output")


def in_format(options: argparse.Namespace, found: dict[str, Any], title: str, sections: Sequence[Section]) -> dict[str, Any]:
    """A result in the format that was asked for, on standard output or in a file."""
    if options.json or (options.format == "text" and not options.out):
        parts: list[Grid | Block] = []
        for section in sections:
            parts.append(Block(section.heading, section.sentences))
            for part in section.parts:
                if isinstance(part, Table):
                    parts += [Block(part.title, [])] if part.title else []
                    parts.append(Grid(part.headings, part.rows))
                else:
                    parts.append(Block(part.title, part.lines))
        return {**found, "show": Card(title, parts=parts)}
    match options.format:
        case "json":
            text = json.dumps(found, indent=2, default=str) + "\n"
        case "html":
            from tracewheel import document_file

            text = document_file(title, sections)
        case _:  # a file of text is Markdown
            text = to_markdown(title, sections)
    if not options.out:
        return {**found, "show": text}
    write_whole(Path(options.out), text)
    return {**found, "show": f"{title}: {options.out}\n"}


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
