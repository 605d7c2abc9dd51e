"""The process beside the flow's own."""

import os
import signal

import psutil
import pytest

from tasks.helper import Helper
from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.files import read_json


def test_it_computes_elsewhere_and_keeps_its_process():
    with Helper() as helper:
        first, second = helper(os.getpid), helper(os.getpid)
        assert first == second != os.getpid()
    assert not psutil.pid_exists(first)


def test_what_is_raised_there_is_raised_here(tmp_path):
    with Helper() as helper, pytest.raises(DataError, match="no such file"):
        helper(read_json, tmp_path / "none.json")


def test_a_process_that_dies_is_said_plainly_and_replaced():
    with Helper() as helper:
        first = helper(os.getpid)
        with pytest.raises(InfrastructureError, match="died"):
            helper(os.kill, first, signal.SIGKILL)
        assert helper(os.getpid) != first


def test_a_failing_block_ends_the_process_at_once():
    with pytest.raises(KeyError), Helper() as helper:
        pid = helper(os.getpid)
        raise KeyError
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    with pytest.raises(InfrastructureError, match="no longer wanted"):
        helper(os.getpid)
