"""The tiny base policy that ships with Tracewheel, for projects that begin without a model."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import tracewheel
from tracewheel.core.errors import InputError

# A clone has it in data/base, an installed package beside its other data (`data-files` in pyproject.toml).
CLONE = Path(tracewheel.__file__).resolve().parents[1] / "data" / "base"
INSTALLED = Path("share", "tracewheel", "base")
NEEDED = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def tiny_base(given: str | None = None) -> dict[str, Path]:
    """The files of the base policy to copy, by their names.

    Args:
        given: A folder to take instead of the one that ships.

    Raises:
        InputError: there is none, or the folder that was given holds no model.
    """
    places = [Path(given)] if given else [CLONE, *(root / INSTALLED for root in _roots())]
    for place in places:
        if all((place / name).is_file() for name in NEEDED):
            return {file.name: file for file in sorted(place.iterdir()) if file.is_file()}
    if given:
        missing = [name for name in NEEDED if not (Path(given) / name).is_file()]
        raise InputError(f"--base {given}: holds no model: {missing[0]} is missing")
    raise InputError(
        "this installation of Tracewheel is without its tiny base policy: give a folder with a model as --base DIR, for "
        "example data/base of a clone of the repository"
    )


def _roots() -> list[Path]:
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    return [Path(sysconfig.get_path("data", scheme)) for scheme in schemes]
