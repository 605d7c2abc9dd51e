"""The names of a run's figures, as a tracking server shows them: `glossary.yaml` has their units and meanings, by group."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import yaml

OF_AN_ITERATION = ("rollout", "train")  # the groups whose figures the metrics of an update have, by their bare names


@functools.cache
def _figures() -> Mapping[str, tuple[str, str]]:
    """Unit and meaning by name, or by a pattern of names."""
    text = Path(__file__).with_name("glossary.yaml").read_text(encoding="utf-8")
    return {name: (unit, meaning) for name, (unit, meaning) in yaml.safe_load(text).items()}


def iteration_name(name: str) -> str:
    """The name of a figure of an iteration with its group; one that the glossary does not know belongs to `train`."""
    return next((full for group in OF_AN_ITERATION if (full := f"{group}/{name}") in _figures()), f"train/{name}")


def knows(name: str) -> bool:
    """Whether the glossary has a figure under its full name."""
    return any(fnmatchcase(name, pattern) for pattern in _figures())


def glossary_rows() -> list[tuple[str, str, str]]:
    """Name, unit and meaning of each figure, by group."""
    return [(name, *figure) for name, figure in _figures().items()]
