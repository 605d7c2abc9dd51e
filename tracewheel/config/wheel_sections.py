"""Sections of a profile that wheels read: each belongs to a stage of the group `tracewheel.stages`, by its name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import BaseModel, ValidationError

from tracewheel.core.kind_table import KindTable, how_to_get, naming_kinds

# Name to the object of a wheel, which has `Settings`, the section's model; `flows/wheel_stages.py` says what else.
STAGES = KindTable("tracewheel.stages", {})


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
        if name not in STAGES:
            if naming_kinds() or not how_to_get("section", name):
                problems.append({"type": "extra_forbidden", "loc": (name,), "input": values[name]})
        elif naming_kinds() and not isinstance(values[name], BaseModel):
            try:
                read[name] = STAGES[name].Settings.model_validate(values[name])
            except ValidationError as error:
                problems += [{**problem, "loc": (name, *problem["loc"])} for problem in error.errors(include_url=False)]
    if problems:
        raise ValidationError.from_exception_data("RetrainConfig", problems)
    return read
