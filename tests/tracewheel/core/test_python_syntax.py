"""Python source is read from several threads."""

import ast
import gc
import time
from concurrent.futures import ThreadPoolExecutor

from tracewheel.core.strict_json import parse_python

SOURCE = "x = [1, (2 + 3) * -4]\n" * 100


class Loop:
    """Garbage whose end lets other threads run, wherever it is collected: in the middle of making a tree, too."""

    def __init__(self):
        self.me = self

    def __del__(self):
        time.sleep(0.0001)


def read(_):
    for _ in range(20):
        Loop()
    return ast.dump(parse_python(SOURCE))


def test_threads_read_at_once():
    """Without the lock CPython 3.11 raises SystemError."""
    before = gc.get_threshold()
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(8) as threads:
            trees = set(threads.map(read, range(48)))
    finally:
        gc.set_threshold(*before)
    assert trees == {ast.dump(ast.parse(SOURCE))}
