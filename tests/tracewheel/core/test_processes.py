"""Processes that end with their parent."""

import socket
import subprocess
import sys

import psutil
import pytest

from tracewheel.core.processes import free_port

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


def test_a_free_port_can_be_bound_and_differs_from_call_to_call():
    port = free_port()
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        assert free_port() != port
