"""The store: complete stage outputs, addressed by what they were made from.

`root/<stage>-<key>/` is the output of one stage. It is written under another name and renamed when
all of it is on disk, so an entry is there whole or not at all: that is caching and resuming in one.
Beside it, in `root/.facts/`, lies what is not part of the output: its digest, its duration, the
stage's return value. An entry whose bytes no longer fit its digest is made again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
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

PARTIAL = ".partial-"
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
    """A complete stage output. `seconds` is what making it took, whenever that was."""

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
        root: Where the entries lie; made when the first is written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._facts = root / ".facts"
        self._placing = threading.Lock()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the store for this process, and clear away what a killed one left half-written.

        Raises:
            InfrastructureError: another process holds it, or it cannot be written to.
        """
        with disk_errors(self.root):
            self._facts.mkdir(parents=True, exist_ok=True)
            lock = (self.root / ".lock").open("a+")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                lock.seek(0)
                holder = lock.read().strip() or "unknown"
                raise InfrastructureError(
                    f"{self.root}: another run (process {holder}) is at work here; wait for it or use another --run-dir"
                ) from error
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            for leftover in self.root.glob(f"{PARTIAL}*"):
                remove(leftover)
            yield

    def find(self, stage: str, key: str) -> Entry | None:
        """The entry, if it is there and its bytes fit its digest."""
        path = self.root / f"{stage}-{key}"
        facts_path = self._facts / f"{stage}-{key}.json"
        if not path.is_dir() or not facts_path.is_file():
            return None
        facts = json.loads(facts_path.read_text())
        if digest_of(path) != facts["digest"]:
            return None
        return Entry(stage, key, path, facts["digest"], facts["seconds"], facts["result"], reused=True)

    def history(self, stage: str) -> list[float]:
        """Seconds that the stage's results in this store took."""
        return [json.loads(path.read_text())["seconds"] for path in self._facts.glob(f"{stage}-*.json")]

    def make(self, stage: str, key: str, produce: Callable[[Path], Any]) -> Entry:
        """The entry, made by `produce` when it is not there.

        Several threads may make entries at once; of the same entry, the first that is done stays.

        Args:
            stage: Name of the stage.
            key: Hash of everything the output depends on.
            produce: Writes the output into the empty folder it is given; returns JSON types.

        Raises:
            InfrastructureError: the disk is full or cannot be written to. Nothing is left half-written.
        """
        found = self.find(stage, key)
        if found:
            return found
        name = f"{stage}-{key}"
        maker = f"{os.getpid()}-{threading.get_ident()}"
        partial = self.root / f"{PARTIAL}{name}-{maker}"
        facts_partial = self.root / f"{PARTIAL}{name}-{maker}.json"
        with disk_errors(self.root):
            try:
                self._facts.mkdir(parents=True, exist_ok=True)
                remove(partial)
                partial.mkdir()
                started = time.perf_counter()
                result = produce(partial)
                seconds = time.perf_counter() - started
                flush(partial)
                facts = {"digest": digest_of(partial), "seconds": seconds, "result": result, "finished": time.time()}
                facts_partial.write_text(json.dumps(facts))
                _sync(facts_partial)
                with self._placing:
                    made_meanwhile = self.find(stage, key)
                    if made_meanwhile:
                        return made_meanwhile
                    # The facts come first: an entry that has its final name has its facts.
                    os.replace(facts_partial, self._facts / f"{name}.json")
                    remove(self.root / name)
                    os.replace(partial, self.root / name)
                    _sync(self.root)
            finally:
                remove(partial)
                remove(facts_partial)
        return Entry(stage, key, self.root / name, facts["digest"], seconds, json.loads(json.dumps(result)))


def write_whole(path: Path, text: str) -> None:
    """Write a text file so that it is there whole or, after a kill at any moment, as it was before."""
    partial = path.with_name(f"{PARTIAL}{path.name}")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        _sync(partial)
        os.replace(partial, path)


def produce_whole(out: Path, produce: Callable[[Path], Any]) -> Any:
    """Run a stage whose output is to be `out`; an `out` that is already there is replaced as one.

    What killed processes left half-written of it is cleared away.

    Raises:
        InfrastructureError: the disk is full or cannot be written to. `out` is then as it was before.
    """
    partial = out.with_name(f"{PARTIAL}{out.name}-{os.getpid()}")
    with disk_errors(out):
        for leftover in out.parent.glob(f"{PARTIAL}*"):
            if re.fullmatch(rf"{re.escape(PARTIAL + out.name)}-\d+", leftover.name) and _is_abandoned(leftover):
                remove(leftover)
        try:
            partial.mkdir(parents=True)
            with _held(partial):
                result = produce(partial)
                flush(partial)
                remove(out)
                os.replace(partial, out)
        finally:
            remove(partial)
    return result


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Mark a folder as one that a process is at work in, which goes with the process.

    Yields:
        Whether it is marked: not where another process has done so, nor where the disk knows no locks.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        marked = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            marked = False
        yield marked
    finally:
        os.close(handle)


def _is_abandoned(folder: Path) -> bool:
    with _held(folder) as marked:
        return marked


@contextlib.contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Turn what a full or unwritable disk causes into one clear error, however a library reports it."""
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
    """See to it that a folder and all in it are on the disk."""
    for path in [*folder.rglob("*"), folder]:
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Delete a file or a folder with all in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
