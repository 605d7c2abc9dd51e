"""Tracebacks in records: short, readable, without paths of this machine; and whose fault an exception is."""

import errno
import os

import pytest

from tracewheel.core.tracebacks import FRAMES, LONGEST, fault_of, short_traceback
from tracewheel.environments import repeat
from tracewheel.environments.workspace.environment import WorkspaceEnvironment

MODULE = """
class Desk:
    def look(self, depth=0):
        if depth < 40:
            return self.look(depth + 1)
        raise KeyError(f"no drawer in {self!r}")

    def open(self):
        try:
            self.look()
        except KeyError as error:
            raise RuntimeError("cannot open") from error
"""


def raised(call):
    with pytest.raises(BaseException) as caught:
        call()
    return caught.value


@pytest.fixture
def desk(tmp_path):
    path = tmp_path / "desk_of_mine.py"
    path.write_text(MODULE)
    names = {}
    exec(compile(MODULE, str(path), "exec"), names)
    return names["Desk"]


def test_a_traceback_names_the_users_code_and_no_folder(desk, tmp_path, monkeypatch):
    text = short_traceback(raised(desk().open))
    assert str(tmp_path) not in text and "0x…" in text and len(text) <= LONGEST
    assert 'File "desk_of_mine.py", line 12, in open' in text and 'raise RuntimeError("cannot open") from error' in text
    assert text.endswith("RuntimeError: cannot open") and "The above exception was the direct cause" in text
    assert text.count("in look") <= FRAMES
    assert text == short_traceback(raised(desk().open)), "another object, the same words"
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path.parent)
    assert f'File "{tmp_path.name}/desk_of_mine.py"' in short_traceback(raised(desk().open))


def test_the_loops_own_frames_are_left_out():
    class Breaks(WorkspaceEnvironment):
        def step(self, tool, args):
            return os.stat("/no/such/file")

    text = short_traceback(raised(lambda: repeat(Breaks(), "look", {})))
    assert "environments/base.py" not in text.partition("in <lambda>")[0] and "in step" in text


def test_an_endless_message_is_cut():
    assert len(short_traceback(ValueError("word " * 10_000))) <= LONGEST + 3


def test_whose_fault():
    class ServerGone(Exception):
        fault = "tool"

    assert fault_of(ServerGone()) == "tool"
    assert fault_of(ValueError()) == "environment" and fault_of(ValueError(), "harness") == "harness"
    assert fault_of(MemoryError()) == fault_of(OSError(errno.ENOSPC, "full")) == "machine"
    assert fault_of(OSError(errno.ENOENT, "none")) == "environment"
    assert fault_of(type("Odd", (Exception,), {"fault": "somebody"})()) == "environment"
