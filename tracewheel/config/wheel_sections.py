"""Sections of a profile that wheels read: each belongs to a stage or a screen of theirs, by its name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import BaseModel, ValidationError

from tracewheel.core.kind_table import WHEELS, KindTable, how_to_get, naming_kinds

# Name to the object of a wheel, which has `Settings`, the section's model; `flows/wheel_stages.py` and `flows/screening.py` say
# what else.
STAGES, SCREENS = KindTable("tracewheel.stages", {}), KindTable("tracewheel.screens", {})


def how_to_read(name: str) -> str | None:
    """How the wheel of a section is installed; None for a section of no wheel."""
    return how_to_get("section", name) or how_to_get("screen", name)


def stages_among(sections: Collection[str]) -> tuple[str, ...]:
    """Of these sections of wheels those of stages, sorted, whether or not their wheels are installed."""
    return tuple(sorted(name for name in sections if name not in SCREENS and name not in WHEELS["screen"]))


def read_wheel_sections(values: Any, own: Collection[str]) -> Any:
    """The values of a profile with the sections of wheels as their models. Those of a stored run stay as they are.

    Args:
        values: Of the profile.
        own: The sections of the core.

    Raises:
        ValidationError: a section belongs to nobody that is installed, or is invalid.
    """
    if not isinstance(values, dict):
        return values
    read, problems = dict(values), list[Any]()
    for name in sorted(values.keys() - own, key=str):
        table = next((table for table in (STAGES, SCREENS) if name in table), None)
        if table is None:
            if naming_kinds() or not how_to_read(name):
                problems.append({"type": "extra_forbidden", "loc": (name,), "input": values[name]})
        elif naming_kinds() and not isinstance(values[name], BaseModel):
            try:
                read[name] = table[name].Settings.model_validate(values[name])
            except ValidationError as error:
                problems += [{**problem, "loc": (name, *problem["loc"])} for problem in error.errors(include_url=False)]
    if problems:
        raise ValidationError.from_exception_data("RetrainConfig", problems)
    return read
