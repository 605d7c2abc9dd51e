"""Paths and texts that an agent's repository may hold."""

from __future__ import annotations

from pathlib import PurePosixPath


def clean_path(path: str) -> str:
    """A path within the repository in its one form; "" for any other."""
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\0" in path or "\n" in path or ".git" in pure.parts:
        return ""
    return str(pure) if str(pure) != "." and len(path) < 200 else ""


def is_text(value: str) -> bool:
    """Whether a value is text that UTF-8 holds, without a zero byte."""
    try:
        return b"\0" not in value.encode()
    except UnicodeEncodeError:
        return False
