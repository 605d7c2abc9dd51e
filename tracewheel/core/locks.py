"""Locks between processes. The system releases a lock when its process ends, however it ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def hold(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold an exclusive lock on an existing file or folder.

    Args:
        path: The file or folder.
        wait: Wait for the holder instead of giving up at once.

    Yields:
        Whether it is held: not where another thread or process holds it, where the path is gone, or where the file system
        has no locks.
    """
    try:
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    except FileNotFoundError:
        yield False
        return
    try:
        yield _lock(handle, wait) and _is_at(path, handle)
    finally:
        os.close(handle)


def _lock(handle: int, wait: bool) -> bool:
    from filelock import lock_descriptor  # not at the top: `tracewheel --help` imports this module

    try:
        return lock_descriptor(handle, blocking=wait)
    except OSError:
        return False


def _is_at(path: Path, handle: int) -> bool:
    """Whether the path still leads to what was locked: a holder may have deleted its lock file when it ended."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
