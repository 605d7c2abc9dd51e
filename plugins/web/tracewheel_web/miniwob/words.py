"""The words of MiniWoB++'s pages, read from its files as text."""

from __future__ import annotations

import functools
import re

from tracewheel_web.miniwob.server import html_folder

LISTS = re.compile(r"(?:ui_utils\.|var )(\w+) = \[(.*?)\]", re.DOTALL)
FILES = ("common/ui_utils.js", "miniwob/multi-orderings.html")
QUOTED = re.compile(r"\"([^\"]*)\"|'([^']*)'")
BUTTONS = ("submit", "okay", "ok", "yes", "no", "cancel", "next", "previous")
CHARACTERS = "qwertyuiopasdfghjklzxcvbnmQWERTYUIOPASDFGHJKLZXCVBNM1234567890"


@functools.cache
def lists() -> dict[str, tuple[str, ...]]:
    """The lists of words of MiniWoB++ by name: `COUNTRIES`, `LAST_NAMES`, `lorem_words`, `GENRES` and others.

    Raises:
        ConfigError: the package `miniwob` is not installed.
    """
    text = "".join((html_folder() / name).read_text(encoding="utf-8") for name in FILES)
    found = {name: QUOTED.findall(body) for name, body in LISTS.findall(text)}
    return {name: tuple(dict.fromkeys(one or other for one, other in pairs)) for name, pairs in found.items()}


def latin() -> tuple[str, ...]:
    """The words of the filling text, without commas."""
    return tuple(dict.fromkeys(word.rstrip(",") for word in lists()["lorem_words"]))


def genres() -> tuple[str, ...]:
    """The kinds of films, as they are asked for."""
    return tuple(name.lower() for name in lists()["GENRES"])
