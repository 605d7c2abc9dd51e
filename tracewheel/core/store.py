"""The store: complete stage outputs, addressed by a hash of their inputs.

`root/<stage>-<key>/` is the output of one stage. It is written under a temporary name and renamed once it is on disk, so an
entry is either complete or absent: caching and resuming in one. `root/.facts/` holds the metadata of each entry, which is not
part of the output: digest, duration, the stage's return value, and `made`: what it was made from and with (`StageTask.facts`;
entries of earlier versions have none). Of settings and code it has the hash, by which `root/.made_from/` holds them, each
content once. An entry whose bytes do not match its digest, or whose metadata cannot be read, is made again, and `flaws` says
so. What a stage writes to `.beside/` in its output goes to `root/.beside/<stage>-<key>/`: notes about the output that are no
part of its digest.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError, InfrastructureError, TracewheelError
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.locks import hold
from tracewheel.core.out_folder import carry_hidden
from tracewheel.core.types import content_hash

PARTIAL, PREVIOUS = ".partial-", ".previous-"
FACTS, BESIDE, LOCK, MADE_FROM = ".facts", ".beside", ".lock", ".made_from"
DISK_ERRORS = {
    errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS,
    errno.EIO, errno.ENOTDIR, errno.EEXIST, errno.EFBIG,
}  # fmt: skip
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

    Attributes:
        flaws: Name of each damaged entry that `find` has met to what is wrong with it, until it is made again.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.flaws: dict[str, str] = {}
        self._metadata = root / FACTS
        self._placing = threading.Lock()
        self.reuse = root / ".reuse"  # results inside stages, which later runs reuse; no entry depends on them

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the store for this process, and delete the partial output of killed ones.

        Raises:
            InfrastructureError: another process holds the store, or it cannot be written to.
        """
        lock = self.root / LOCK
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

    def is_held(self) -> bool:
        """Whether a process holds the store now."""
        lock = self.root / LOCK
        if not lock.is_file():
            return False
        with hold(lock) as free:
            return not free

    def find(self, stage: str, key: str) -> Entry | None:
        """The entry, or None where it is missing or damaged; `flaws` has what is wrong with a damaged one."""
        name = f"{stage}-{key}"
        path, metadata_path = self.root / name, self._metadata / f"{name}.json"
        if not path.is_dir():
            return None
        try:
            metadata = read_metadata(metadata_path)
            if digest_of(path) != metadata["digest"]:
                raise DataError(f"{path}: its files are not those that were written")
        except FileNotFoundError:
            self.flaws[name] = f"{metadata_path}: no such file, so nothing says whether the entry is whole"
        except (DataError, OSError) as flaw:
            self.flaws[name] = str(flaw)
        else:
            self.flaws.pop(name, None)
            return Entry(stage, key, path, metadata["digest"], metadata["seconds"], metadata["result"], reused=True)
        return None

    def find_named(self, name: str) -> Entry | None:
        """`find` by the name of an entry."""
        stage, _, key = name.rpartition("-")
        return self.find(stage, key)

    def keep(self, content: dict[str, Any]) -> str:
        """Store JSON types that entries were made from, once; returns their hash."""
        key = content_hash(content)
        path = self.root / MADE_FROM / f"{key}.json"
        with self._placing:  # stages that run at once are made of much the same
            if not path.is_file():
                write_whole(path, json.dumps(content))
        return key

    def kept(self, key: str) -> dict[str, Any] | None:
        """What `keep` has stored; None where it is lost, or was never kept."""
        try:
            found: dict[str, Any] = json.loads((self.root / MADE_FROM / f"{key}.json").read_bytes())
        except (OSError, ValueError):
            return None
        return found

    def made(self) -> dict[str, dict[str, Any]]:
        """What each entry was made from and with (`made` in its metadata) and its digest, by name, the newest first.

        Entries whose folder or metadata is missing or damaged are left out, and those of versions that noted nothing.
        """
        found: list[tuple[float, str, dict[str, Any]]] = []
        for path in sorted(self._metadata.glob("*.json")):
            with contextlib.suppress(DataError, OSError):
                metadata = read_metadata(path)
                if "made" in metadata and (self.root / path.stem).is_dir():
                    facts = metadata["made"] | {"digest": metadata["digest"]}
                    found.append((metadata.get("finished", 0.0), path.stem, facts))
        return {name: facts for _, name, facts in sorted(found, key=lambda item: item[0], reverse=True)}

    def history(self, stage: str) -> list[float]:
        """The duration in seconds of each of the stage's entries whose metadata can be read."""
        found = []
        for path in sorted(self._metadata.glob(f"{stage}-*.json")):
            with contextlib.suppress(DataError, OSError):
                found.append(read_metadata(path)["seconds"])
        return found

    def make(
        self,
        stage: str,
        key: str,
        produce: Callable[[Path], Any],
        facts: Callable[[Path], dict[str, Any]] | None = None,
    ) -> Entry:
        """Find the entry, or make it with `produce`.

        Several threads may make entries at once. Where two make the same entry, the first to finish is kept.

        Args:
            stage: Name of the stage.
            key: Hash of everything that the output depends on.
            produce: Writes the output to the empty folder it is given, and returns JSON types.
            facts: Says of the complete output what it was made from, as JSON types.

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
        beside_partial = self.root / f"{PARTIAL}beside-{name}-{maker}"
        with disk_errors(self.root):
            try:
                self._metadata.mkdir(parents=True, exist_ok=True)
                remove(partial)
                partial.mkdir()
                started = time.perf_counter()
                result = produce(partial)
                seconds = time.perf_counter() - started
                flush(partial)
                if (partial / BESIDE).is_dir():
                    os.replace(partial / BESIDE, beside_partial)
                metadata = {"digest": digest_of(partial), "seconds": seconds, "result": result, "finished": time.time()}
                if facts:
                    metadata["made"] = facts(partial)
                metadata_partial.write_text(json.dumps(metadata))
                sync(metadata_partial)
                with self._placing:
                    made_meanwhile = self.find(stage, key)
                    if made_meanwhile:
                        return made_meanwhile
                    # Metadata first, so that an entry under its final name always has metadata.
                    os.replace(metadata_partial, self._metadata / f"{name}.json")
                    remove(beside(self.root, name))
                    if beside_partial.is_dir():
                        beside(self.root, name).parent.mkdir(exist_ok=True)
                        os.replace(beside_partial, beside(self.root, name))
                    remove(self.root / name)
                    os.replace(partial, self.root / name)
                    sync(self.root)
                    self.flaws.pop(name, None)
            finally:
                remove(partial)
                remove(metadata_partial)
                remove(beside_partial)
        return Entry(stage, key, self.root / name, metadata["digest"], seconds, json.loads(json.dumps(result)))


def beside(root: Path, name: str) -> Path:
    """The folder of notes about an entry of a store."""
    return root / BESIDE / name


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata of an entry.

    Raises:
        DataError: it is not what a store wrote.
        FileNotFoundError: it is missing.
    """
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}") from error
    kinds = {"digest": str, "seconds": int | float, "result": object}
    if not isinstance(found, dict) or not all(name in found and isinstance(found[name], kind) for name, kind in kinds.items()):
        raise DataError(f"{path}: not the metadata of an entry, which has {', '.join(kinds)}")
    return found


@contextlib.contextmanager
def _placing(path: Path) -> Iterator[Path]:
    """Where to write what is then put in a file's place."""
    partial = path.with_name(f"{PARTIAL}{path.name}")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        sync(partial)
        os.replace(partial, path)


def write_whole(path: Path, text: str | bytes) -> None:
    """Write a file atomically: a kill at any moment leaves the old text or the new one."""
    with _placing(path) as partial:
        partial.write_bytes(text.encode() if isinstance(text, str) else text)


def rewrite_whole(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change what a file holds, atomically. It keeps its mode, and nobody else can read it on the way.

    No line is lost of those that a `ConversationLog` appends meanwhile: both hold the folder.
    """
    with hold(path.parent, wait=True), disk_errors(path):
        before = path.read_bytes()
        if (after := change(before)) == before:
            return
        with _placing(path) as partial:
            partial.unlink(missing_ok=True)
            partial.touch(mode=0o600)
            partial.write_bytes(after)
            partial.chmod(stat.S_IMODE(path.stat().st_mode))


def place_copy(source: Path, path: Path) -> None:
    """Copy a file atomically: a kill at any moment leaves the old file or the new one."""
    with _placing(path) as partial:
        shutil.copyfile(source, partial)


def link(source: Path, target: Path) -> None:
    """Put a file or a folder under a second name; a copy where the disk cannot hold one file under two names."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=link_file)
    else:
        link_file(source, target)


def link_file(one: str | Path, other: str | Path) -> None:
    """Link a file, whose bytes are never changed in place; copy it where the file system has no links."""
    try:
        os.link(one, other)
    except OSError:
        shutil.copy2(one, other)


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
    recover(out)
    with disk_errors(out):
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


def recover(out: Path) -> None:
    """Put an output folder back that a kill took from its place between two renames, and delete what killed processes left."""
    with disk_errors(out):
        for leftover in (*_left(out, PARTIAL), *_left(out, PREVIOUS)):
            is_output = leftover.name.startswith(PREVIOUS) and not out.exists()
            os.replace(leftover, out) if is_output else remove(leftover)


def _left(out: Path, kind: str) -> Iterator[Path]:
    """The folders of this kind beside `out` that no process holds any more."""
    named = re.compile(rf"{re.escape(kind + out.name)}-\d+")
    for path in [path for path in out.parent.glob(f"{kind}*") if named.fullmatch(path.name)]:
        with hold(path) as is_left:
            pass
        if is_left:
            yield path


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
        sync(path)


def sync(path: Path) -> None:
    """Write one file, or the names in one folder, through to the disk."""
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
