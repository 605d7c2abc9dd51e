"""Locks between processes. The system releases a lock when its process ends, however it ends."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

OWNER = ".owner"
WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


@contextlib.contextmanager
def hold(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold an exclusive lock on an existing file or folder.

    Args:
        path: The file or folder.
        wait: Wait for the holder instead of giving up at once.

    Yields:
        Whether it is held: not where another thread or process holds it, or where the path is gone. Where the file system has
        no locks, a second file beside it names the holder; a folder is not held there.
    """
    try:
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    except FileNotFoundError:
        yield False
        return
    try:
        locked = _lock(handle, wait)
        if locked is None and not path.is_dir():
            with _named(path, wait) as held:
                yield held
        else:
            yield bool(locked) and _is_at(path, handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def hold_beside(path: Path) -> Iterator[None]:
    """Hold the lock of a file that is replaced or grows: a hidden file beside it. Waits for its holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    lock.touch()
    with hold(lock, wait=True):
        yield


def _lock(handle: int, wait: bool) -> bool | None:
    """Whether it is locked; None where the file system has no locks."""
    from filelock import lock_descriptor  # not at the top: `tracewheel --help` imports this module

    try:
        return lock_descriptor(handle, blocking=wait)
    except OSError as error:
        if error.errno in WITHOUT_LOCKS:
            return None
        return False


@contextlib.contextmanager
def _named(path: Path, wait: bool) -> Iterator[bool]:
    """A lock by a file that holds its owner's machine and process; one whose process has ended is taken over."""
    named = path.with_name(f"{path.name}{OWNER}")
    while not (held := _take(named)) and wait:
        time.sleep(0.1)
    try:
        yield held
    finally:
        if held:
            named.unlink(missing_ok=True)


def _take(named: Path) -> bool:
    ours = f"{socket.gethostname()} {os.getpid()}"
    for _ in range(2):
        try:
            with named.open("x") as stream:
                stream.write(ours)
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                if not _has_ended(named.read_text()):
                    return False
                named.unlink()
        else:
            return True
    return False


def _has_ended(owner: str) -> bool:
    """Whether a lock's owner is a process of this machine that has ended; of other machines nobody knows."""
    machine, _, process = owner.partition(" ")
    if machine != socket.gethostname() or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _is_at(path: Path, handle: int) -> bool:
    """Whether the path still leads to what was locked: a holder may have deleted its lock file when it ended."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
