"""A test run that is killed leaves no process behind."""

import contextlib
import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.reaper import MARK

ROOT = Path(__file__).parents[1]
PATIENCE = 300
SERVER = "prefect.server"  # in the name of a module that a Prefect server runs


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 2])
def test_killing_pytest_leaves_no_process(processes, tmp_path):
    files = ["tests/flows/test_triggers_server.py", "tests/flows/test_pools.py"]  # Prefect servers, `deploy`, and its runs
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(processes), *files, "--basetemp", str(tmp_path / "inner")]
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    with (tmp_path / "log").open("w") as log:
        pytest_itself = psutil.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    deadline = time.monotonic() + PATIENCE
    while not any(SERVER in name for name in names(pytest_itself)):
        assert pytest_itself.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
        time.sleep(0.2)
    left = pytest_itself.children(recursive=True)
    assert len(left) > processes + 1  # with the one that watches
    pytest_itself.kill()
    pytest_itself.wait()
    assert not psutil.wait_procs(left, timeout=30)[1]


def names(parent):
    """The command lines of all processes below one."""
    found = []
    for process in parent.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found.extend(process.cmdline())
    return found
