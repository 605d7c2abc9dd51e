"""The folder of a program that has tools of its own: the task's files at the start, and what it holds at the end."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.foreign_folder import ForeignFolder
from tracewheel.core.types import Task

FILES, PROBLEM = "files", "files_problem"
MOST_BYTES = 256 << 10  # of a final state: it is stored with each trajectory


def lay_out(task: Task, folder: Path) -> None:
    """Write the texts of the task's `initial_state.files`, by their paths in the folder.

    Raises:
        ConfigError: one is no text, or its path leads out of the folder; the message names task and path.
    """
    for name, text in task.initial_state.get(FILES, {}).items():
        path = PurePosixPath(name)
        if not isinstance(text, str) or path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name:
            raise ConfigError(
                f"rollout.harness: initial_state.files[{name!r}] of task {task.id} is no text at a path in a folder, so it "
                "cannot lie in {workdir}"
            )
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="")


def left_in(folder: Path) -> dict[str, Any]:
    """The final state of a folder: its `files` as texts; none, and `files_problem`, where it holds what is not read."""
    try:
        found = ForeignFolder(folder).files(MOST_BYTES)
        return {FILES: {name: file.content.decode() for name, file in found.items()}}
    except (DataError, UnicodeDecodeError) as error:
        return {FILES: {}, PROBLEM: str(error)}
