"""How long a computation takes, for tests that bound it."""

import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object], enough: float) -> float:
    """The CPU seconds of this thread for `work`, at once if below `enough`; else the least of three runs.

    One run may hold what is not its own: a collection of the whole process's garbage, a page that is read anew.
    """
    least = float("inf")
    for _ in range(3):
        begun = time.thread_time()
        work()
        least = min(least, time.thread_time() - begun)
        if least < enough:
            break
    return least
