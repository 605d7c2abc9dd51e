"""Output folders that a person names. What a command did not write is never replaced: it is refused before any work.

Hidden files (`.gitkeep`, `.DS_Store`) do not count; `carry_hidden` takes them along when the folder is replaced.
"""

from __future__ import annotations

import os
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from tracewheel.core.errors import DataError

SHOWN = 3


class Writes(NamedTuple):
    """What a command writes into its output folder.

    Attributes:
        always: Files and folders that every complete output has.
        also: Patterns of the other files, by their path in the folder; `*` matches any text.
    """

    always: tuple[str, ...]
    also: tuple[str, ...] = ()

    def knows(self, name: str) -> bool:
        """Whether a file of this path in the folder may be one of the command's."""
        return any(fnmatchcase(name, pattern) for pattern in (*self.always, *self.also))


def check_out_folder(path: Path, writes: Writes, by: str) -> None:
    """Refuse an output folder that cannot be written, or that holds what the command did not write.

    Args:
        path: The folder; it need not exist.
        writes: What the command writes.
        by: The command, for the message.

    Raises:
        DataError: it is a file, not writable, a mount point with contents to replace, someone's own, or half of an output.
    """
    path = path.resolve()
    if path.exists() and not path.is_dir():
        raise DataError(f"--out {path}: is a file; give a folder, which is created where it does not exist")
    _check_writable(path)
    if not path.is_dir():
        return
    if path.is_mount():
        raise DataError(f"--out {path}: is a mount point, which cannot be replaced as a whole; give a folder in it")
    own = visible_files(path)
    strange = [name for name in own if not writes.knows(name)]
    if strange:
        raise DataError(
            f"--out {path}: holds {_shown(strange)}, which `tracewheel {by}` did not write and does not replace;"
            " give an empty or a new folder, or move what is yours"
        )
    missing = [name for name in writes.always if not (path / name).exists()]
    if own and missing:
        raise DataError(
            f"--out {path}: holds {_shown(own)} and no {_shown(missing)}, so it is no complete output of `tracewheel {by}`;"
            " delete it if you do not need it, or give another folder"
        )


def visible_files(folder: Path) -> list[str]:
    """The files in a folder by their paths in it, and its empty folders, without hidden ones."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        names = [name for name in files if not name.startswith(".")]
        inside = Path(place).relative_to(folder)
        found += [(inside / name).as_posix() for name in names]
        if not folders and not files and inside.parts:
            found.append(f"{inside.as_posix()}/")
    return sorted(found)


def carry_hidden(old: Path, new: Path) -> None:
    """Move the hidden files at the top of a folder to the one that replaces it."""
    for entry in old.iterdir():
        if entry.name.startswith(".") and not (new / entry.name).exists():
            os.replace(entry, new / entry.name)


def _check_writable(path: Path) -> None:
    """Try it: rights, read-only disks and system folders refuse in different ways."""
    place = next(folder for folder in path.parents if folder.exists())
    try:
        Path(tempfile.mkdtemp(prefix=".partial-trial-", dir=place)).rmdir()
    except OSError as error:
        raise DataError(f"--out {path}: {place} cannot be written to: {error.strerror}; give another folder") from error
    if path.is_dir() and not os.access(path, os.W_OK | os.X_OK):
        raise DataError(f"--out {path}: cannot be written to: its rights forbid it; give another folder")


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
