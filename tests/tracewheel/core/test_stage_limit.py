"""The limit of a whole stage, in the main thread and in others, and for code that nothing in the process can interrupt."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tracewheel.core.errors import TimeLimitError
from tracewheel.core.time_limits import stage_limit

ROOT = Path(__file__).parents[3]
MESSAGE = r"update 3: over 0.2 s \(stage_seconds\)"


def wait():
    threading.Event().wait(60)


def spin():
    end = time.monotonic() + 60
    while time.monotonic() < end:
        pass


@pytest.mark.parametrize("work", [wait, spin])
def test_a_stage_in_the_main_thread_ends_at_its_limit(work):
    started = time.monotonic()
    with pytest.raises(TimeLimitError, match=MESSAGE), stage_limit(0.2, "update 3"):
        work()
    assert time.monotonic() - started < 20
    with stage_limit(1.0, "update 3"), stage_limit(None, "no limit"):
        pass
    time.sleep(1.2)  # the limit does not outlive its stage


def test_a_stage_in_another_thread_ends_at_its_limit():
    found = []

    def stage():
        try:
            with stage_limit(0.2, "update 3"):
                spin()
        except TimeLimitError as error:
            found.append(str(error))
        with stage_limit(0.1, "quick"):
            pass
        time.sleep(0.2)
        found.append("goes on")

    thread = threading.Thread(target=stage)
    thread.start()
    thread.join(30)
    assert len(found) == 2 and found[0].startswith("update 3: over 0.2 s") and found[1] == "goes on"


def test_a_process_whose_stage_never_lets_go_ends_and_says_where():
    code = """
import collections, ctypes, itertools
from tracewheel.core.time_limits import stage_limit
def stuck():  # a loop in C, which keeps the interpreter's lock and looks for no signal
    collections.deque(map(ctypes.PyDLL(None).usleep, itertools.repeat(1000)), maxlen=0)
with stage_limit(0.2, "stage", grace=0.5):
    stuck()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 1
    assert "Timeout" in done.stderr and "in stuck" in done.stderr
