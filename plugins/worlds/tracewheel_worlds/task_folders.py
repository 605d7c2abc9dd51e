"""Loads folders of tasks that someone else made: one that cannot be used is named, and the others are loaded."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tracewheel import DataError, ForeignFolder, Task

logger = logging.getLogger(__name__)
NAMED = 5
MOST_SETTINGS = 64 << 10
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Loaded:
    """What came of a folder: the tasks, and why others cannot be used, by the name of their folder."""

    tasks: list[Task] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def load_each(path: Path, marks: Sequence[str], make: Callable[[ForeignFolder], Task]) -> Loaded:
    """Load a folder with a task, or all of those that lie in a folder.

    Args:
        path: The folder that the user named.
        marks: The names of files of which a folder with a task holds one.
        make: Makes the task of a folder; a DataError or ValueError says why there is none.

    Raises:
        DataError: there is none that can be used; the message names folders and reasons.
    """

    def is_task(folder: Path) -> bool:
        return any(os.path.lexists(folder / mark) for mark in marks)

    try:
        names = [""] if is_task(path) else sorted(one.name for one in path.iterdir() if is_task(one))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    if not names:
        raise DataError(f"{path}: no task directory: one holds a {', or a '.join(marks)}")
    loaded = Loaded()
    for name in names:
        try:
            loaded.tasks.append(make(ForeignFolder(path, name)))
        except (DataError, ValueError) as error:
            loaded.refused[name or path.name] = str(error)
            logger.warning("%s is left out: %s", path / name, error)
    if not loaded.tasks:
        reasons = "; ".join(f"{path / name}: {loaded.refused[name or path.name]}" for name in names[:NAMED])
        raise DataError(f"{reasons}{f'; and {len(names) - NAMED} more' if len(names) > NAMED else ''}")
    if loaded.refused:
        logger.warning("%d of %d task directories are left out", len(loaded.refused), len(names))
    return loaded


def read_settings(folder: ForeignFolder, name: str, model: type[M], parse: Callable[[str], Any]) -> M:
    """A file of settings.

    Args:
        folder: Where it lies.
        name: Its name.
        model: Checks them.
        parse: Parses its text; a ValueError says why it cannot.

    Raises:
        DataError: it is broken; the message names the field.
    """
    text = folder.text(name, MOST_SETTINGS)
    try:
        return model.model_validate(parse(text))
    except ValidationError as error:
        first = error.errors()[0]
        said = f"{'.'.join(map(str, first['loc'])) or 'its content'}: {first['msg']}, but it is {str(first['input'])[:80]!r}"
        raise DataError(f"{name}: {said}") from None
    except (ValueError, LookupError, RecursionError) as error:
        raise DataError(f"{name} cannot be read: {type(error).__name__}: {' '.join(str(error).split())[:200]}") from None
