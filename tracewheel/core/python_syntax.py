"""Reading Python source from several threads."""

from __future__ import annotations

import ast
import os
import threading
from typing import Any

# CPython 3.11 counts how deep a tree is in one place for all threads, and raises SystemError where two make trees at once.
_one_at_a_time = threading.Lock()


def _begin_anew() -> None:
    """In a forked process; a thread that is not here may hold the lock."""
    global _one_at_a_time
    _one_at_a_time = threading.Lock()


os.register_at_fork(after_in_child=_begin_anew)


def parse_python(source: str | bytes, mode: str = "exec") -> Any:
    """The syntax tree of a source, as `ast.parse` makes it.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as `ast.parse` does.
    """
    with _one_at_a_time:
        return ast.parse(source, mode=mode)
