"""Locks between processes: exclusive, and released when their holder ends."""

import errno
import os
import socket
import subprocess
import sys
import threading

import pytest

from tracewheel.core.errors import InfrastructureError
from tracewheel.core.locks import hold
from tracewheel.core.store import Store

HOLDER = """
import sys, time
from pathlib import Path
from tracewheel.core.locks import hold
with hold(Path(sys.argv[1])) as held:
    print(held, flush=True)
    time.sleep(60)
"""


@pytest.fixture(params=["file", "folder"])
def path(request, tmp_path):
    target = tmp_path / "target"
    target.touch() if request.param == "file" else target.mkdir()
    return target


def test_a_lock_is_exclusive_and_can_be_taken_again_after_release(path):
    with hold(path) as first, hold(path) as second:
        assert first and not second
    with hold(path) as held:
        assert held


def test_a_killed_holder_releases_its_lock(path):
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "True\n"
        with hold(path) as held:
            assert not held
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    with hold(path) as held:
        assert held


def test_waiting_ends_when_the_holder_releases(path):
    taken, release, order = threading.Event(), threading.Event(), []

    def work():
        with hold(path):
            taken.set()
            release.wait(timeout=30)
            order.append("released")

    thread = threading.Thread(target=work)
    thread.start()
    taken.wait(timeout=30)
    threading.Timer(0.1, release.set).start()
    with hold(path, wait=True) as held:
        order.append("held")
    thread.join()
    assert held and order == ["released", "held"]


def test_a_path_that_is_gone_is_not_held(tmp_path):
    with hold(tmp_path / "absent") as held:
        assert not held
    assert not (tmp_path / "absent").exists()


def test_a_lock_file_that_its_holder_has_deleted_is_not_held(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    path.touch()
    opened = os.open

    def open_then_delete(*arguments, **keywords):
        handle = opened(*arguments, **keywords)
        path.unlink()
        return handle

    monkeypatch.setattr(os, "open", open_then_delete)
    with hold(path) as held:
        assert not held


@pytest.fixture
def without_locks(monkeypatch):
    """A file system that answers as some network file systems do."""

    def refuse(*arguments, **keywords):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("filelock.lock_descriptor", refuse)


@pytest.mark.usefixtures("without_locks")
def test_without_locks_of_the_file_system_a_file_names_the_holder(tmp_path):
    path, owner = tmp_path / "lock", tmp_path / "lock.owner"
    path.touch()
    with hold(path) as first, hold(path) as second:
        assert (first, second) == (True, False)
        assert owner.read_text().split()[1] == str(os.getpid())
    assert not owner.exists()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    owner.write_text(f"{socket.gethostname()} {ended.pid}")
    with hold(path) as held:
        assert held, "its process has ended"
    owner.write_text(f"elsewhere {ended.pid}")
    with hold(path) as held:
        assert not held, "nobody knows of another machine's processes"


@pytest.mark.usefixtures("without_locks")
def test_a_store_on_a_file_system_without_locks_is_used_by_one_run_at_a_time(tmp_path):
    refused = pytest.raises(InfrastructureError, match="in use by another run")
    with Store(tmp_path).exclusive(), refused, Store(tmp_path).exclusive():
        pass
