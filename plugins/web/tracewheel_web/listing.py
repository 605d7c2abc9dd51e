"""A page as text: a line for each control and each text, cut to so many words by what changed and what is in sight."""

from __future__ import annotations

import json
from collections.abc import Set
from typing import Any

from tracewheel_web.page import View

LEAST_WORDS = 4  # of a line that is cut, so many are kept


def line_of(item: dict[str, Any]) -> str:
    """A control as `3 textbox "Name" = "Ada"`, a text as `- Welcome`: no text of a page looks like a control."""
    if not item["ref"]:
        return f"- {item['name']}"
    parts = [str(item["ref"]), item["role"]]
    if item["name"]:
        parts.append(_quoted(item["name"]))
    parts += item.get("state", [])
    if item.get("value"):
        parts.append(f"= {_quoted(item['value'])}")
    if "options" in item:
        parts.append(f"of {', '.join(map(_quoted, item['options']))}")
    if item.get("row"):
        parts.append(item["row"])
    return " ".join(parts)


def listed(view: View, before: Set[str], words: int, *, address: bool) -> str:
    """The page in at most about `words` words.

    All of it where that is enough. Otherwise first what is new and in sight, then what is in sight, what is new, and the rest;
    each gap says how many lines it leaves out.

    Args:
        view: What there is to see.
        before: The lines that were there before.
        words: The most words.
        address: Whether to begin with title and path.
    """
    lines = [line_of(item) for item in view.items]
    if sum(line in before for line in lines) < len(lines) / 2:
        before = frozenset()  # another page
    kept = _kept(view, lines, before, words)
    text = [f"page: {view.title} ({view.path})"] if address else []
    text += [f"({note})" for note in view.notes]
    missing = 0
    for place in range(len(lines)):
        if place not in kept:
            missing += 1
            continue
        text += _gap(missing)
        missing = 0
        text.append(kept[place])
    text += _gap(missing)
    if view.unread:
        text.append("(the page is too large: the rest was not read)")
    if view.below and (missing or view.unread):
        text.append("(scroll down for more)")
    return "\n".join(text) or "(an empty page)"


def _kept(view: View, lines: list[str], before: Set[str], words: int) -> dict[int, str]:
    order = sorted(range(len(lines)), key=lambda place: (not view.items[place]["seen"], lines[place] in before))
    kept: dict[int, str] = {}
    for place in order:
        if words <= 0:
            break
        parts = lines[place].split(" ")
        if len(parts) > max(words, LEAST_WORDS):
            kept[place] = f"{' '.join(parts[: max(words, LEAST_WORDS)])} … ({len(parts)} words)"
        else:
            kept[place] = lines[place]
        words -= len(parts)
    return kept


def _gap(count: int) -> list[str]:
    return [f"({count} lines left out)" if count > 1 else "(1 line left out)"] if count else []


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
