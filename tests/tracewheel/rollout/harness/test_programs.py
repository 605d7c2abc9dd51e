"""Programs as processes: their ends, limits, output, and that none outlives us."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tracewheel.core.errors import ConfigError
from tracewheel.rollout.harness.programs import Programs, ProgramStart, find_program

ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
def programs(tmp_path):
    made = Programs(tmp_path)
    yield made
    made.close()


def ends(programs, count, seconds=30.0):
    """The ends of so many programs, by number."""
    found, deadline = {}, time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        found |= {end.number: end for end in programs.poll(0.2)}
    assert len(found) == count
    return found


def shell(line, **limits):
    return ProgramStart(["/bin/sh", "-c", line], ENV, **limits)


def gone(pid, seconds=5.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_programs_end_in_their_own_ways(programs, tmp_path):
    (tmp_path / "task.json").write_text("the task")
    programs.start(0, shell("cat; echo oops >&2; exit 3", stdin=str(tmp_path / "task.json")))
    programs.start(1, shell("kill -SEGV $$"))
    programs.start(2, shell("sleep 60", seconds=0.3))
    programs.start(3, shell("echo $SECRET $GIVEN; pwd", cwd=str(tmp_path)))
    programs.start(4, ProgramStart(["/no/such/program"], ENV))
    programs.start(5, shell("sleep 60"))
    programs.kill(5, "no longer wanted")
    found = ends(programs, 6)
    assert (found[0].exit_code, found[0].output, found[0].errors) == (3, "the task", "oops\n")
    assert (found[1].exit_code, found[1].signal, found[1].killed) == (None, signal.SIGSEGV, "")
    assert found[2].signal == signal.SIGKILL and found[2].killed == "over 0.3 s (rollout.harness.seconds)"
    assert found[3].output == f"\n{tmp_path}\n", "it gets the variables that it is given, and no others"
    assert found[4].exit_code == 127 and "cannot start /no/such/program" in found[4].errors
    assert found[5].killed == "no longer wanted"
    assert found[0].cpu_seconds > 0 and found[0].peak_kilobytes > 0


def test_output_without_end_is_cut(programs):
    programs.start(0, shell("yes 0123456789 | head -c 30000000; echo; echo the end", output_bytes=1000))
    end = ends(programs, 1)[0]
    assert end.output.endswith("\nthe end\n") and len(end.output) < 1100
    assert end.output.startswith("[29999009 bytes before this are not kept]\n")


def test_a_cut_character_is_left_out(programs):
    programs.start(0, shell("printf 'äöü'", output_bytes=3))
    assert ends(programs, 1)[0].output == "[4 bytes before this are not kept]\nü"


def test_a_program_ends_with_its_group(programs, tmp_path):
    programs.start(0, shell(f"sleep 60 & echo $! > {tmp_path}/child; exit 0"))
    assert ends(programs, 1)[0].exit_code == 0
    assert gone(int((tmp_path / "child").read_text()))


def test_memory_is_bounded(programs):
    program = ProgramStart([sys.executable, "-c", "x = bytearray(1 << 30)"], ENV, memory=512 << 20)
    programs.start(0, program)
    end = ends(programs, 1)[0]
    assert end.exit_code == 1 and "MemoryError" in end.errors


def test_when_the_launcher_dies_its_programs_are_lost_and_the_next_ones_run(programs, tmp_path):
    programs.start(0, shell(f"echo $$ > {tmp_path}/pid; sleep 60"))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        programs.poll(0.05)
    programs._launcher.kill()
    end = ends(programs, 1)[0]
    assert end.lost and end.exit_code is None
    assert gone(int((tmp_path / "pid").read_text()))
    programs.start(1, shell("exit 0"))
    assert ends(programs, 1)[1].exit_code == 0


def test_no_program_outlives_us(tmp_path):
    script = f"""
        import os, sys, time
        from pathlib import Path
        from tracewheel.rollout.harness.programs import Programs, ProgramStart
        programs = Programs(Path({str(tmp_path)!r}))
        line = "echo $$ > {tmp_path}/pid; (setsid sleep 60 & echo $! > {tmp_path}/escaped); sleep 60"
        programs.start(0, ProgramStart(["/bin/sh", "-c", line], dict(os.environ)))
        while not os.path.exists("{tmp_path}/escaped"):
            programs.poll(0.05)
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    for name in ("pid", "escaped"):
        assert gone(int((tmp_path / name).read_text())), "killed with its parent, also where it left its group"


SCRIPT = """
import atexit, json, os, sys, threading
import colorsys
if __name__ == "__main__":
    atexit.register(print, "at exit")
    threading.Thread(target=lambda: print("from a thread")).start()
    said = sys.stdin.read()
    place = os.path.basename(sys.path[0])
    print(json.dumps([sys.argv, said, os.environ.get("GIVEN"), os.getcwd(), place, os.getpgrp() == os.getpid()]))
    print("preloaded" if hasattr(colorsys, "MARK") else "imported", file=sys.stderr)
    if len(sys.argv) > 1 and sys.argv[1] == "raise":
        raise ValueError("on purpose")
    sys.exit("a reason" if len(sys.argv) > 1 else 5)
"""


@pytest.mark.parametrize("preload", [(), ("colorsys", "marks")], ids=["exec", "preload"])
def test_a_preloaded_program_runs_as_one_that_is_started(tmp_path, preload):
    (tmp_path / "agent.py").write_text(SCRIPT)
    (tmp_path / "marks.py").write_text("import colorsys\ncolorsys.MARK = True\n")
    (tmp_path / "task").write_text("the task")
    programs = Programs(tmp_path, preload=preload, path=str(tmp_path), cwd=str(tmp_path))
    env = {**ENV, "GIVEN": "1"}
    try:
        for number, more in enumerate([[], ["raise"], ["why"]]):
            command = [sys.executable, "agent.py", *more]
            programs.start(number, ProgramStart(command, env, str(tmp_path), str(tmp_path / "task")))
        found = ends(programs, 3)
    finally:
        programs.close()
    for number, (code, why) in enumerate([(5, ""), (1, "ValueError: on purpose"), (1, "a reason")]):
        more = [[], ["raise"], ["why"]][number]
        expected = [["agent.py", *more], "the task", "1", str(tmp_path), tmp_path.name, True]
        lines = found[number].output.splitlines()
        assert sorted(lines) == sorted([json.dumps(expected), "from a thread", "at exit"])
        assert found[number].exit_code == code and why in found[number].errors
        assert found[number].errors.startswith("preloaded" if preload else "imported")


def test_a_module_that_cannot_be_preloaded_is_named(tmp_path):
    with pytest.raises(ConfigError, match="rollout.harness.preload: no_such_module: ModuleNotFoundError"):
        Programs(tmp_path, preload=["no_such_module"], path=str(tmp_path))


def test_commands_are_found_or_refused(tmp_path):
    (tmp_path / "agent.py").write_text("")
    path, here = os.environ["PATH"], str(tmp_path)
    assert find_program(["python", "agent.py"], here, ["python"], path) == [sys.executable, "agent.py"]
    (tmp_path / "own").symlink_to(sys.executable)
    assert find_program(["./own"], here, [], path) == [here + "/own"], "a virtual environment is found by its link"
    assert find_program(["sh", "-c", "true"], None, [], path)[0].endswith("/sh")
    for command, cwd, said in [
        (["no-such-agent"], None, "no program 'no-such-agent'"),
        (["./agent.py"], here, "no program './agent.py'"),
        (["python", "other.py"], here, "no file other.py"),
        (["python", "agent.py"], here + "/nowhere", "is no folder"),
    ]:
        with pytest.raises(ConfigError, match=said):
            find_program(command, cwd, ["python"], path)
