"""The helper process of a flow."""

import os
import signal

import psutil
import pytest

from tasks.engine.helper import Helper
from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.files import read_json


def test_calls_share_one_process():
    with Helper() as helper:
        first, second = helper(os.getpid), helper(os.getpid)
        assert first == second != os.getpid()
    assert not psutil.pid_exists(first)


def test_errors_of_the_process_are_raised(tmp_path):
    with Helper() as helper, pytest.raises(DataError, match="no such file"):
        helper(read_json, tmp_path / "none.json")


def test_a_dead_process_is_reported_and_replaced():
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
    with pytest.raises(InfrastructureError, match="the helper process is closed"):
        helper(os.getpid)
