"""Real signals to real processes: where the work ends, when, and with which exit code."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORK = """
import os, sys, time
from tracewheel.core import stopping
grace, last, how = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
try:
    with stopping.stoppable(grace=grace, last=last):
        print("ready", flush=True)
        for step in range(600):
            if how == "steps":
                time.sleep(0.1)
                stopping.check()
            elif how == "busy":  # a stage that does not look
                time.sleep(0.1)
            else:  # a library that swallows everything
                try:
                    time.sleep(60)
                except BaseException:
                    pass
except stopping.Stopped as stop:
    time.sleep(0.3)  # the clean-up
    print(stop, flush=True)
    sys.exit(stop.request.exit_code)
"""


@pytest.fixture
def work():
    started = []

    def start(grace, last, how):
        command = [sys.executable, "-c", WORK, str(grace), str(last), how]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_work_ends_at_its_next_safe_point(work, number, code):
    process = work(30, 60, "steps")
    process.send_signal(number)
    process.send_signal(number)  # as `timeout` does, which signals the process and its group: no second word
    out, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert f"{number.name}: stopping at the next safe point" in err
    assert f"stopped ({number.name}); the same command resumes" in out


def test_work_without_a_safe_point_is_abandoned_after_the_grace(work):
    process = work(0.5, 60, "busy")
    started = time.monotonic()
    process.terminate()
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 143 and "stopped (SIGTERM)" in out
    assert time.monotonic() - started >= 0.5


def test_a_second_signal_ends_at_once(work):
    process = work(60, 120, "busy")
    process.terminate()
    time.sleep(1.3)
    assert process.poll() is None
    process.terminate()
    out, err = process.communicate(timeout=20)
    assert process.returncode == 143 and "ended at once" in err and "stopped" not in out


def test_a_process_that_never_comes_out_ends_all_the_same(work):
    process = work(0.2, 1.0, "deaf")
    process.terminate()
    _, err = process.communicate(timeout=20)
    assert process.returncode == 143 and "the clean-up took over 1 s; ended without it" in err


LISTENING = """
import atexit, sys, time
from tracewheel.core import stopping

def pause(name, moment=sys.argv[1], seconds=float(sys.argv[2]), sleep=time.sleep):
    if name == moment:
        print(name, flush=True)
        sleep(seconds)

class Last:  # freed after the interpreter has given signals their defaults back
    def __del__(self, pause=pause):
        pause("clean-up of the interpreter")

kept = Last()
try:
    stopping.listen()
    atexit.register(pause, "exit")
    pause("before the work")
    with stopping.stoppable(grace=0.3):
        stopping.check()
        stopping.done()
        pause("done")
    pause("after the work")
except stopping.Stopped as stop:
    pause("clean-up of the work")
    sys.exit(stop.request.exit_code)
sys.exit(3)
"""


@pytest.fixture
def listening():
    started = []

    def start(moment, seconds):
        command = [sys.executable, "-c", LISTENING, moment, str(seconds)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == f"{moment}\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["done", "after the work", "exit", "clean-up of the interpreter"])
def test_complete_work_ends_with_its_own_exit_code(listening, moment, number):
    process = listening(moment, 0.7)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 3, err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_before_the_work_ends_the_process_at_once(listening, number, code):
    process = listening("before the work", 60)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == code


def test_a_process_that_is_held_back_hears_a_signal_of_its_start_when_it_listens():
    child = "import sys, time; print('starting', flush=True); time.sleep(0.5)\n" + LISTENING
    starter = f"""
import subprocess, sys, time
from tracewheel.core.stopping import held_back
with held_back():
    child = subprocess.Popen([sys.executable, "-c", {child!r}, "nothing", "0"], stdout=subprocess.PIPE)
child.stdout.readline()
child.terminate()
print(child.wait())
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", starter], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "143\n"
        process.terminate()
        assert process.wait() == -signal.SIGTERM, "the one that starts it is not held back"
