"""The words of MiniWoB++'s pages, read from its files as text: names, countries, and what the tiny base has as one token each."""

from __future__ import annotations

import functools
import re

from tracewheel_web.miniwob.server import html_folder

LISTS = re.compile(r"ui_utils\.(\w+) = \[(.*?)\]", re.DOTALL)
QUOTED = re.compile(r"\"([^\"]*)\"|'([^']*)'")
BUTTONS = ("submit", "okay", "ok", "yes", "no", "cancel", "next", "previous")
GENRES = [
    "action",
    "adventure",
    "comedy",
    "crime",
    "drama",
    "fantasy",
    "historical",
    "horror",
    "mystery",
    "paranoid",
    "political",
    "romance",
    "saga",
    "satire",
    "surreal",
    "thriller",
    "urban",
    "western",
]
CHARACTERS = "qwertyuiopasdfghjklzxcvbnmQWERTYUIOPASDFGHJKLZXCVBNM1234567890"


@functools.cache
def lists() -> dict[str, tuple[str, ...]]:
    """The lists of words of MiniWoB++ by name: `COUNTRIES`, `LAST_NAMES`, `lorem_words` and others.

    Raises:
        ConfigError: the package `miniwob` is not installed.
    """
    text = (html_folder() / "common" / "ui_utils.js").read_text(encoding="utf-8")
    found = {name: QUOTED.findall(body) for name, body in LISTS.findall(text)}
    return {name: tuple(dict.fromkeys(one or other for one, other in pairs)) for name, pairs in found.items()}


def latin() -> tuple[str, ...]:
    """The words of the filling text, without commas."""
    return tuple(dict.fromkeys(word.rstrip(",") for word in lists()["lorem_words"]))
