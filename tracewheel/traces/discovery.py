"""Finds the log files in paths, folders and globs, and names them without the folders they share.

A link that the user names is followed; one that lies in a folder or matches a glob only to where the folder is.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import logging
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError
from tracewheel.traces.compression import is_compressed
from tracewheel.traces.sources import address_in

logger = logging.getLogger(__name__)
SUFFIXES = {".json", ".jsonl", ".ndjson", ".traj", ".parquet", ".eval"}
OUTCOME_SUFFIXES = {".csv", ".tsv", ".json", ".jsonl", ".ndjson"}


def find_logs(config: IngestConfig, without: Path | None = None) -> dict[str, Path]:
    """The log files of some settings, as `find_files`, but for those that are files of outcomes.

    Raises:
        DataError: a path does not exist, or a folder or glob has no log file.
    """
    apart = set(find_outcomes(config).values())
    found = find_files(config.paths, without)
    return {name: path for name, path in found.items() if path not in apart} if apart else found


def find_outcomes(config: IngestConfig) -> dict[str, Path]:
    """The files of `ingest.outcomes.paths`.

    Raises:
        DataError: a path does not exist, or a folder or glob has no such file.
    """
    found = find_files(config.outcomes.paths, suffixes=OUTCOME_SUFFIXES, setting="ingest.outcomes.paths")
    return {f"outcomes/{name}": path for name, path in found.items()}


def log_files(config: IngestConfig) -> dict[Path, str]:
    """All files that an ingest would read now, logs and outcomes, with their names in its records; of a lost path, none."""
    there, said = [], dict[str, Path]()
    for path in config.paths:
        with contextlib.suppress(DataError):
            find_files([path])
            there.append(path)
    with contextlib.suppress(DataError):
        said = find_outcomes(config)
    return {file: name for name, file in [*find_files(there).items(), *said.items()]}


def find_files(
    paths: Iterable[str],
    without: Path | None = None,
    suffixes: Collection[str] = frozenset(SUFFIXES),
    setting: str = "ingest.paths",
) -> dict[str, Path]:
    """The log files, each once, in the order of the paths. Of a folder, those with a known suffix.

    Args:
        paths: Files, folders, and globs.
        without: A folder to leave out: the output folder.
        suffixes: Of the files that are taken from folders.
        setting: Where the paths are from.

    Raises:
        DataError: a path does not exist, or a folder or glob has no log file.
    """
    found: dict[Path, None] = {}
    for path in paths:
        files = [file.resolve() for file in _matches(path, suffixes, setting)]
        if not files and not address_in(path):
            raise DataError(f"{path}: holds no trace file: {', '.join(sorted(suffixes))}, also as .gz or .zst ({setting})")
        for file in files:
            if without is None or not file.is_relative_to(without.resolve()):
                found.setdefault(file)
    parents = [file.parent.parts for file in found]
    shared = 0
    while parents and all(len(parts) > shared and parts[shared] == parents[0][shared] for parts in parents):
        shared += 1
    return {_readable("/".join(file.parts[shared:])): file for file in found}


def are_empty(paths: Iterable[str]) -> bool:
    """Whether all paths are folders that hold no log file yet, or sources of which nothing was fetched."""
    return all((Path(path).is_dir() or address_in(path)) and not any(_inside(Path(path), SUFFIXES)) for path in paths)


def _matches(path: str, suffixes: Collection[str], setting: str) -> Iterator[Path]:
    is_glob = glob.has_magic(path) and not Path(path).exists()
    matches = [Path(match) for match in sorted(glob.glob(path, recursive=True))] if is_glob else [Path(path)]
    if not matches:
        raise DataError(f"{path}: no trace file matches this pattern ({setting})")
    for match in matches:
        if is_glob:
            # A glob matches files; the folders on the way are not searched.
            yield from [match] if _is_own(match, _named_folder(path)) else []
        elif match.is_dir():
            yield from sorted(_inside(match, suffixes))
        elif match.is_file():
            yield match
        elif not address_in(path):  # a source may be fetched later
            raise DataError(f"{match}: {'is no regular file' if match.exists() else 'no such trace file'} ({setting})")


def _inside(folder: Path, suffixes: Collection[str]) -> Iterator[Path]:
    for file in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if not hidden and _kind(file) in suffixes and _is_own(file, folder):
            yield file


def _named_folder(pattern: str) -> Path:
    """The folder that a glob begins in."""
    parts = Path(pattern).parts
    return Path(*parts[: next(place for place, part in enumerate(parts) if glob.has_magic(part))])


def _is_own(file: Path, folder: Path) -> bool:
    """Whether a path is that of a regular file that lies in the folder; links that lead out of it are not followed."""
    if not file.is_file():
        return False
    inside = file.resolve().is_relative_to(folder.resolve())
    if not inside:
        _warn_of_link(file)
    return inside


@functools.cache
def _warn_of_link(file: Path) -> None:
    logger.warning("%s is left out: a link leads out of the folder; name what it leads to (ingest.paths)", file)


def skipped_files(paths: Iterable[str], files: Iterable[Path], without: Path | None = None) -> list[str]:
    """The files in folders that are not logs, by their relative names. Reports list them."""
    taken = set(files)
    skipped = []
    for path in paths:
        folder = Path(path)
        for file in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if not file.is_file() or file.resolve() in taken:
                continue
            if without is None or not file.resolve().is_relative_to(without.resolve()):
                skipped.append(_readable(file.relative_to(folder).as_posix()))
    return skipped


def _readable(name: str) -> str:
    """A file's name as valid text; names on disk may be any bytes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def is_log_name(name: str) -> bool:
    """Whether a file of this name is taken for a log where its folder is read."""
    return _kind(Path(name)) in SUFFIXES


def _kind(file: Path) -> str:
    return (file.with_suffix("") if is_compressed(file) else file).suffix.lower()
