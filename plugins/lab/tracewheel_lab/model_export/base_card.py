"""What a base says of itself: its licence and its name on the Hub, from its card, its licence file or its GGUF file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tracewheel import base_folder, base_hash

UNKNOWN = "unknown"
CARD = "README.md"
FRONT = re.compile(r"\A---\s*\n(.*?)\n---\s*\n", re.DOTALL)
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# How a licence file begins, and the Hub's name of the licence.
TEXTS = {"apache license version 2.0": "apache-2.0", "mit license": "mit", "bsd 3-clause license": "bsd-3-clause"}
LONGEST = 1 << 20


def base_license(base: str) -> str:
    """The Hub's name of a base's licence; `unknown` where its files do not say, `other` where they hold one that is not known.

    Raises:
        DataError: there is no such base.
    """
    if _is_gguf(base):
        from gguf import GGUFReader

        base_hash(base)  # that there is such a file
        field = GGUFReader(base).fields.get("general.license")
        return str(field.contents()) if field else UNKNOWN
    folder = base_folder(base)
    named = card_of_base(folder).get("license")
    if isinstance(named, str):
        return named
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name.upper().startswith(("LICENSE", "LICENCE")))
    if not files:
        return UNKNOWN
    words = re.sub(r"[\s,]+", " ", files[0].read_text(errors="replace")[:400].lower())
    return next((name for text, name in TEXTS.items() if text in words), "other")


def _is_gguf(base: str) -> bool:
    return base.lower().endswith(".gguf")


def hub_name(base: str) -> str | None:
    """A base's name on the Hub: how the profile names it, unless that is a place on this machine."""
    name = base.partition("@")[0]
    return None if Path(base).exists() or _is_gguf(base) or not HUB_ID.fullmatch(name) else name


def card_of_base(folder: Path) -> dict[str, Any]:
    """The front matter of a model's card; empty without one, or where it cannot be read."""
    path = folder / CARD
    if not path.is_file() or path.stat().st_size > LONGEST:
        return {}
    found = FRONT.match(path.read_text(encoding="utf-8", errors="replace"))
    try:
        front = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError:
        return {}
    return front if isinstance(front, dict) else {}
