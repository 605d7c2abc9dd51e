"""A page as text: a line for each control and each text, cut to so many words by what changed and what is in sight."""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from typing import Any

from tracewheel_web.page import View

LEAST_WORDS = 4  # of a line that is cut, so many are kept
MOST_GONE = 10


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


def listed(view: View, shown: Set[str], words: int, *, address: bool) -> tuple[str, set[str]]:
    """The page in at most about `words` words, and the lines that its reader then knows.

    Lines that were shown before are not repeated where most of the page is as it was; the end says so, and which controls are
    gone. Where not all of the rest fits, what is in sight comes first; each gap says how many lines it leaves out.

    Args:
        view: What there is to see.
        shown: The lines that its reader knows; none to show all.
        words: The most words.
        address: Whether to begin with title and path.
    """
    lines = [line_of(item) for item in view.items]
    if sum(line in shown for line in lines) < len(lines) / 2:
        shown = frozenset()  # another page
    known = {place for place, line in enumerate(lines) if line in shown}
    kept = _kept(view, [place for place in range(len(lines)) if place not in known], lines, words)
    text = [f"page: {view.title} ({view.path})"] if address else []
    text += [f"({note})" for note in view.notes]
    missing, cut = 0, False
    for place in range(len(lines)):
        if place in kept:
            text += [*_gap(missing), kept[place]]
            missing = 0
        elif place not in known:
            missing, cut = missing + 1, True
    text += _gap(missing)
    if gone := sorted(_refs(shown) - _refs(lines)):
        text.append(f"(gone: {', '.join(map(str, gone[:MOST_GONE]))}{', …' if len(gone) > MOST_GONE else ''})")
    if known:
        text.append("(the rest as before)")
    if view.unread:
        text.append("(the page is too large: the rest was not read)")
    if view.below and (cut or view.unread):
        text.append("(scroll down for more)")
    return "\n".join(text) or "(an empty page)", {lines[place] for place in {*known, *kept}}


def _refs(lines: Iterable[str]) -> set[int]:
    return {int(line.partition(" ")[0]) for line in lines if not line.startswith("-")}


def _kept(view: View, places: list[int], lines: list[str], words: int) -> dict[int, str]:
    kept: dict[int, str] = {}
    for place in sorted(places, key=lambda place: not view.items[place]["seen"]):
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
