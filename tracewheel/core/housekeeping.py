"""Housekeeping of the store: what could be freed, how many bytes that is, and freeing it.

A file that hard links share between entries is freed with the last of them. A killed housekeeping leaves entries that are
whole and others that are gone, never half of one.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.store import BESIDE, FACTS, LOCK, MADE_FROM, PARTIAL, beside, disk_errors, read_metadata, remove


@dataclass(frozen=True)
class Freeable:
    """Paths that can be deleted.

    Attributes:
        paths: Folders and files, each with what it counts as: the stage of an entry, or another kind.
        sizes: Kind to the bytes that deleting all of them frees.
        counts: Kind to the number of its folders.
    """

    paths: tuple[tuple[Path, str], ...]
    sizes: dict[str, int]
    counts: dict[str, int]

    @property
    def total(self) -> int:
        """Bytes."""
        return sum(self.sizes.values())

    def to_record(self) -> dict[str, Any]:
        """JSON types."""
        kinds = {kind: {"entries": self.counts.get(kind, 0), "bytes": self.sizes[kind]} for kind in sorted(self.sizes)}
        return {"bytes": self.total, "entries": sum(self.counts.values()), "kinds": kinds}


def entries_of(root: Path) -> dict[str, float | None]:
    """The names of a store's entries, and when each was finished (seconds since 1970); None where its facts do not say."""
    folders = (path.name for path in root.glob("*-*") if path.is_dir() and not path.name.startswith("."))
    return {name: _finished(root / FACTS / f"{name}.json") for name in folders}


def freeable(root: Path, keep: Collection[str], others: Iterable[tuple[Path, str]] = ()) -> Freeable:
    """What a store can do without.

    Args:
        root: The store.
        keep: Names of the entries to keep.
        others: Further folders that can be deleted, each with its kind.
    """
    entries = [name for name in sorted(entries_of(root)) if name not in keep]
    paths = [(root / name, name.rpartition("-")[0]) for name in entries]
    facts = [(root / FACTS / f"{name}.json", name.rpartition("-")[0]) for name in entries]
    facts += [(beside(root, name), name.rpartition("-")[0]) for name in entries]
    orphans = [(path, "facts") for path in sorted((root / FACTS).glob("*.json")) if not (root / path.stem).is_dir()]
    orphans += [(path, "facts") for path in sorted((root / BESIDE).glob("*-*")) if not (root / path.name).is_dir()]
    used = {key for name in entries_of(root) if name in keep for key in _made_from(root / FACTS / f"{name}.json")}
    orphans += [(path, "facts") for path in sorted((root / MADE_FROM).glob("*.json")) if path.stem not in used]
    folders = [*paths, *others]
    chosen = (*folders, *((path, kind) for path, kind in facts if path.exists()), *orphans)
    counts = Counter(kind for _, kind in folders)
    return Freeable(chosen, sizes_of(chosen), dict(counts))


def sizes_of(paths: Iterable[tuple[Path, str]]) -> dict[str, int]:
    """The bytes by kind that deleting all these paths frees: those of files that have no other name elsewhere."""
    names: Counter[tuple[int, int]] = Counter()
    sizes: Counter[str] = Counter()
    for path, kind in paths:
        sizes[kind] += 0
        for state in _files(path):
            names[state.st_dev, state.st_ino] += 1
            if names[state.st_dev, state.st_ino] == state.st_nlink:
                sizes[kind] += state.st_size
    return dict(sizes)


def bytes_in(folder: Path) -> int:
    """The bytes of a folder's files, a file with several names once; not of a store's lock, which holds a process's number."""
    return sum({(state.st_dev, state.st_ino): state.st_size for state in _files(folder)}.values())


def free(found: Freeable) -> None:
    """Delete what was found. Whoever calls it holds the store."""
    for path, _ in found.paths:
        with disk_errors(path):
            if path.is_dir():
                # Renamed first: a kill in the middle leaves a partial output, which the next run or housekeeping deletes.
                gone = path.with_name(f"{PARTIAL}gone-{path.name}")
                remove(gone)
                os.replace(path, gone)
                remove(gone)
            else:
                remove(path)


def _files(path: Path) -> Iterator[os.stat_result]:
    for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
        if (file.is_symlink() or file.is_file()) and file.name != LOCK:
            yield file.lstat()


def _made_from(facts: Path) -> tuple[str, ...]:
    """The names of the settings and the code that an entry was made from."""
    try:
        made = read_metadata(facts).get("made", {})
    except (DataError, OSError):
        return ()
    return str(made.get("settings")), str(made.get("code"))


def _finished(facts: Path) -> float | None:
    try:
        finished = json.loads(facts.read_text())["finished"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return float(finished) if isinstance(finished, int | float) else None
