"""The store: complete stage outputs, addressed by a hash of their inputs.

`root/<stage>-<key>/` is the output of one stage. It is written under a temporary name and renamed once it is on disk, so
an entry is either complete or absent. That gives caching and resuming in one. `root/.facts/` holds the metadata of each
entry, which is not part of the output: digest, duration and the stage's return value. An entry whose bytes do not match
its digest is made again.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel.core.errors import InfrastructureError, TracewheelError
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.locks import hold
from tracewheel.core.out_folder import carry_hidden

PARTIAL, PREVIOUS = ".partial-", ".previous-"
DISK_ERRORS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EIO,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EFBIG,
}
LEAST_FREE_BYTES = 1 << 20


@dataclass(frozen=True)
class Entry:
    """A complete stage output. `seconds` is how long it took to make, in this run or an earlier one."""

    stage: str
    key: str
    path: Path
    digest: str
    seconds: float
    result: Any
    reused: bool = False


class Store:
    """A folder of entries.

    Args:
        root: The folder; created when the first entry is written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._metadata = root / ".facts"
        self._placing = threading.Lock()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the store for this process, and delete the partial output of killed ones.

        Raises:
            InfrastructureError: another process holds the store, or it cannot be written to.
        """
        lock = self.root / ".lock"
        with disk_errors(self.root):
            self._metadata.mkdir(parents=True, exist_ok=True)
            lock.touch()
        with hold(lock) as held:
            if not held:
                holder = lock.read_text().strip() or "unknown"
                raise InfrastructureError(
                    f"{self.root}: in use by another run (process {holder}); wait for it or use another --run-dir"
                )
            lock.write_text(str(os.getpid()))
            for leftover in self.root.glob(f"{PARTIAL}*"):
                remove(leftover)
            yield

    def find(self, stage: str, key: str) -> Entry | None:
        """The entry, or None where it is missing or its bytes do not match its digest."""
        path = self.root / f"{stage}-{key}"
        metadata_path = self._metadata / f"{stage}-{key}.json"
        if not path.is_dir() or not metadata_path.is_file():
            return None
        metadata = json.loads(metadata_path.read_text())
        if digest_of(path) != metadata["digest"]:
            return None
        return Entry(stage, key, path, metadata["digest"], metadata["seconds"], metadata["result"], reused=True)

    def history(self, stage: str) -> list[float]:
        """The duration in seconds of each of the stage's entries."""
        return [json.loads(path.read_text())["seconds"] for path in self._metadata.glob(f"{stage}-*.json")]

    def make(self, stage: str, key: str, produce: Callable[[Path], Any]) -> Entry:
        """Find the entry, or make it with `produce`.

        Several threads may make entries at once. Where two make the same entry, the first to finish is kept.

        Args:
            stage: Name of the stage.
            key: Hash of everything that the output depends on.
            produce: Writes the output to the empty folder it is given, and returns JSON types.

        Raises:
            InfrastructureError: the disk is full or cannot be written to. No partial output is left.
        """
        found = self.find(stage, key)
        if found:
            return found
        name = f"{stage}-{key}"
        maker = f"{os.getpid()}-{threading.get_ident()}"
        partial = self.root / f"{PARTIAL}{name}-{maker}"
        metadata_partial = self.root / f"{PARTIAL}{name}-{maker}.json"
        with disk_errors(self.root):
            try:
                self._metadata.mkdir(parents=True, exist_ok=True)
                remove(partial)
                partial.mkdir()
                started = time.perf_counter()
                result = produce(partial)
                seconds = time.perf_counter() - started
                flush(partial)
                metadata = {"digest": digest_of(partial), "seconds": seconds, "result": result, "finished": time.time()}
                metadata_partial.write_text(json.dumps(metadata))
                _sync(metadata_partial)
                with self._placing:
                    made_meanwhile = self.find(stage, key)
                    if made_meanwhile:
                        return made_meanwhile
                    # Metadata first, so that an entry under its final name always has metadata.
                    os.replace(metadata_partial, self._metadata / f"{name}.json")
                    remove(self.root / name)
                    os.replace(partial, self.root / name)
                    _sync(self.root)
            finally:
                remove(partial)
                remove(metadata_partial)
        return Entry(stage, key, self.root / name, metadata["digest"], seconds, json.loads(json.dumps(result)))


def write_whole(path: Path, text: str) -> None:
    """Write a text file atomically: a kill at any moment leaves the old text or the new one."""
    partial = path.with_name(f"{PARTIAL}{path.name}")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        _sync(partial)
        os.replace(partial, path)


def place_copy(source: Path, path: Path) -> None:
    """Copy a file atomically: a kill at any moment leaves the old file or the new one."""
    partial = path.with_name(f"{PARTIAL}{path.name}")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, partial)
        _sync(partial)
        os.replace(partial, path)


def produce_whole(out: Path, produce: Callable[[Path], Any]) -> Any:
    """Run a stage with `out` as its output folder, which is replaced as a whole once the stage has finished.

    Partial outputs that killed processes left beside `out` are deleted. Hidden files in `out` stay; a link stays a link.

    Args:
        out: The output folder.
        produce: Writes the output to the empty folder it is given.

    Returns:
        What `produce` returns.

    Raises:
        InfrastructureError: the disk is full or cannot be written to. `out` is left as it was.
    """
    out = out.resolve()
    partial = out.with_name(f"{PARTIAL}{out.name}-{os.getpid()}")
    previous = out.with_name(f"{PREVIOUS}{out.name}-{os.getpid()}")
    with disk_errors(out):
        for leftover in _left(out, PARTIAL):
            remove(leftover)
        for leftover in _left(out, PREVIOUS):
            # A kill between the two renames: the old output is back where it was.
            if out.exists():
                remove(leftover)
            else:
                os.replace(leftover, out)
        try:
            partial.mkdir(parents=True)
            with hold(partial):
                result = produce(partial)
                flush(partial)
                if out.exists():
                    os.replace(out, previous)
                with hold(previous):
                    os.replace(partial, out)
                    if previous.exists():
                        carry_hidden(previous, out)
                        remove(previous)
        finally:
            remove(partial)
    return result


def _left(out: Path, kind: str) -> list[Path]:
    """The folders of this kind that killed processes left beside `out`."""
    named = re.compile(rf"{re.escape(kind + out.name)}-\d+")
    return [path for path in out.parent.glob(f"{kind}*") if named.fullmatch(path.name) and _is_abandoned(path)]


def _is_abandoned(folder: Path) -> bool:
    """Whether no process holds the folder any more; a process that works in one holds it."""
    with hold(folder) as held:
        return held


@contextlib.contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Turn the errors of a full or unwritable disk into one `InfrastructureError`, however a library reports them."""
    try:
        yield
    except TracewheelError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            raise InfrastructureError(f"{error.filename or where}: {error.strerror}") from error
        existing = next(path for path in [where, *where.absolute().parents] if path.exists())
        if shutil.disk_usage(existing).free < LEAST_FREE_BYTES:
            raise InfrastructureError(f"{where}: no space left on the disk") from error
        raise


def flush(folder: Path) -> None:
    """Write a folder and everything in it through to the disk."""
    for path in [*folder.rglob("*"), folder]:
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Delete a file, or a folder with its contents, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
