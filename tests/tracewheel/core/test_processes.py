"""Processes that end with their parent."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tracewheel.core.processes import free_port

ROOT = Path(__file__).parents[3]
CHILD = """
import subprocess, sys, time
from tracewheel.core import processes

processes.end_with_parent(int(sys.argv[1]), getattr(processes, sys.argv[2]))
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(grandchild.pid, flush=True)
time.sleep(600)
"""
PARENT = """
import os, subprocess, sys, time
command = [sys.executable, "-c", sys.argv[1], str(os.getpid()), sys.argv[2]]
child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
print(child.pid, child.stdout.readline(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("end", "group_ends"), [("exit_at_once", False), ("terminate", False), ("kill_group", True)])
def test_a_child_ends_with_its_killed_parent(end, group_ends):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD, end], stdout=subprocess.PIPE, text=True)
    child, grandchild = map(psutil.Process, map(int, parent.stdout.readline().split()))
    try:
        assert child.is_running()
        parent.kill()
        parent.wait()
        assert not psutil.wait_procs([child], timeout=30)[1]
        assert bool(psutil.wait_procs([grandchild], timeout=30 if group_ends else 0)[1]) is not group_ends
    finally:
        parent.stdout.close()
        for process in (child, grandchild):
            if process.is_running():
                process.kill()


HEAVY = """
import multiprocessing, os, time
if multiprocessing.current_process().name != "MainProcess":
    print(os.getpid(), flush=True)
    time.sleep(600)

def work(): ...
"""
PROGRAM = """
import multiprocessing
from tracewheel.core.processes import end_with_spawner

end_with_spawner()
if __name__ == "__main__":
    import heavy
    process = multiprocessing.get_context("spawn").Process(target=heavy.work)
    process.start()
    process.join()
"""


def test_a_process_that_is_still_importing_ends_with_the_parent_that_spawned_it(tmp_path):
    (tmp_path / "heavy.py").write_text(HEAVY)
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    command = [sys.executable, str(tmp_path / "program.py")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    gone = not psutil.wait_procs([child], timeout=30)[1]
    if not gone:
        child.kill()
    assert gone


def test_a_free_port_can_be_bound_and_differs_from_call_to_call():
    port = free_port()
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        assert free_port() != port
