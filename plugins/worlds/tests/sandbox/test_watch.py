"""A run whose box cannot be watched has no result: no finding would say nothing."""

import ctypes
import errno
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from plugins.worlds.tests.sandbox.attacks import CALL
from tracewheel.core.errors import InfrastructureError
from tracewheel_worlds.sandbox import Limits, watch
from tracewheel_worlds.sandbox.bubblewrap import Bubblewrap

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")


class Refusing:
    """A C library whose kernel has no inotify instance left; those of this user are not taken: other tests need them."""

    def inotify_init1(self, flags):
        ctypes.set_errno(errno.EMFILE)
        return -1


def test_a_box_that_cannot_be_watched_is_a_failure_of_the_machine(monkeypatch):
    sandbox = Bubblewrap(shutil.which("bwrap"))
    sandbox.run(["true"])
    with monkeypatch.context() as refused:
        refused.setattr(watch, "LIBRARY", Refusing())
        with pytest.raises(InfrastructureError, match=r"cannot be watched .*raise fs\.inotify\.max_user_instances"):
            sandbox.run(["cat", "/etc/shadow"])
    assert sandbox.run(["cat", "/etc/shadow"]).findings == ("escape",)


HOG = (
    CALL
    + """
import time
held = []
while (made := libc.inotify_init1(0)) >= 0: held.append(made)
slots = 0
while libc.syscall(206, 1024, ctypes.byref(ctypes.c_ulong())) == 0: slots += 1
print(len(held), slots, flush=True)
time.sleep(2)
"""
)


def test_a_box_takes_nothing_that_its_sibling_or_the_machine_needs():
    """Fails as an ordinary user alone where a box may hold instances: root's boxes are another user's."""
    sandbox = Bubblewrap(shutil.which("bwrap"))
    with ThreadPoolExecutor() as threads:
        hog = threads.submit(sandbox.run, ["python3", "-c", HOG], limits=Limits(seconds=30))
        found = [sandbox.run(["sh", "-c", "sleep 0.5; cat /etc/shadow"]).findings for _ in range(2)]
        assert hog.result().stdout == b"0 0\n"
    assert found == [("escape",)] * 2


def test_writes_of_a_folder_are_counted():
    sandbox = Bubblewrap(shutil.which("bwrap"))
    program = "for n in 1 2; do echo $n > d/a; cat d/a; done; > d/b; > c; mv c d/c; "
    program += "(exec 3<> d/d; sleep 0.2; echo 1 > d/d; echo 2 >&3)"
    run = sandbox.run(["bash", "-c", program], {"d/old": b""}, counted="d")
    assert (run.writes, run.exit_code) == ({"a": 2, "b": 1, "c": 1, "d": 2}, 0)
    assert sandbox.run(["bash", "-c", program], {"d/old": b""}).writes == {}
