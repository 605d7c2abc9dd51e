"""Locks between processes: exclusive, and released when their holder ends."""

import os
import subprocess
import sys
import threading

import pytest

from tracewheel.core.locks import hold

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
