"""Boxes on a real bubblewrap."""

import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plugins.worlds.tests.sandbox.test_attacks import processes_saying
from tracewheel.core.errors import InfrastructureError
from tracewheel_worlds.sandbox import BoxFile, Limits, make_sandbox

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")


def test_files_go_in_and_come_out():
    run = make_sandbox().run(["sh", "-c", "cat > copy; cat d/a; ln -s /etc/passwd l"], {"d/a": b"there"}, b"in", keep=True)
    assert (run.exit_code, run.stdout, run.findings) == (0, b"there", ())
    assert (run.files["copy"].content, run.files["l"].link, run.files["l"].content) == (b"in", "/etc/passwd", b"")


def test_a_run_that_takes_too_long_is_killed():
    run = make_sandbox().run(["sleep", "20"], limits=Limits(seconds=0.3))
    assert (run.exit_code, run.findings) == (None, ("timeout",)) and run.seconds < 15


def test_a_path_that_leads_out_is_refused():
    with pytest.raises(ValueError, match="leads out"):
        make_sandbox().run(["true"], {"../a": b""})


def test_nothing_of_a_run_is_seen_in_the_next(sandbox):
    plant = (
        'for d in /tmp /dev/shm /box; do echo "$SECRET" > $d/planted; done; echo "$SECRET" > /proc/self/comm; '
        "setsid sleep 77 > /dev/null 2>&1 & cat; env; cat given"
    )
    look = (
        "ls -A /tmp /dev/shm /box; env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' ' '; cat /proc/*/comm; "
        "ls /proc/self/fd /proc/1/fd; cat"
    )
    for number in range(3):
        secret = f"hunter{number}".encode()
        run = sandbox.run(["bash", "-c", plant, secret.decode()], {"given": secret}, secret, env={"SECRET": secret.decode()})
        assert run.stdout.count(secret) == 3
        seen = sandbox.run(["bash", "-c", look])
        assert seen.exit_code == 0 and not any(word in seen.text for word in ("hunter", "planted", "SECRET", "sleep"))


def test_variables_and_limits_are_each_runs_own(sandbox):
    show = "echo $A; ulimit -v; ulimit -t; ulimit -u; ulimit -f"
    for number in (1, 2, 3):
        limits = Limits(memory_mb=100 * number, seconds=12 * number, processes=10 * number)
        run = sandbox.run(["sh", "-c", 'exec bash -c "$0"', show], limits=limits, env={"A": f"of {number}"})
        assert run.stdout.decode().split("\n")[:-1] == [
            f"of {number}", str(number * 400 << 10), str(12 * number + 1), str(10 * number), str(64 << 10)
        ]  # fmt: skip
    assert sandbox.run(["sh", "-c", "echo $A"]).stdout == b"\n"
    fill = ["sh", "-c", "exec head -c 3M /dev/zero > a"]
    assert sandbox.run(fill, limits=Limits(disk_mb=1)).findings == ("disk",)
    assert sandbox.run(fill, limits=Limits(disk_mb=8)).exit_code == 0


def test_words_arrive_as_they_are(sandbox):
    every = bytes(range(1, 256)).decode(errors="surrogateescape")
    words = [every, "", "-c", "$(id) `id` 'a' \"b\" \\", " \n\t", "a\x01\x7fb", "x" * 50000]
    show = ["python3", "-c", "import sys, os; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"]
    expected = b"\0".join(map(os.fsencode, words))
    assert sandbox.run([*show, *words]).stdout == expected
    odd = {
        "a.b": every,
        "UID": "7",
        "RANDOM": "x",
        "SHELLOPTS": "y",
        "BASH_ENV": "/box/a",
        "PATH": "/usr/bin",
        "LD_PRELOAD": "",
    }
    shown = ["/bin/python3" if Path("/bin/python3").exists() else "python3", "-c", "import os; print(dict(os.environ))"]
    seen = eval(sandbox.run(shown, {"a": b"echo planted"}, env=odd).stdout)
    assert {name: seen[name] for name in odd} == odd
    assert sandbox.run(["./a=b"], {"a=b": BoxFile(b"#!/bin/sh\necho ran $X\n", 0o755)}, env={"X": "1"}).stdout == b"ran 1\n"
    assert sandbox.run([], env={"X": "1"}).stdout == b""
    for command, env in ((["a\0b"], {}), (["a"], {"X": "\0"}), (["a"], {"X=Y": ""}), (["a"], {"": ""})):
        with pytest.raises(ValueError, match="of a box"):
            sandbox.run(command, env=env)


def test_a_box_that_somebody_else_ends_is_no_result_of_the_program(sandbox):
    slept = f"6543{os.getpid()}"
    with ThreadPoolExecutor(1) as thread:
        begun = thread.submit(sandbox.run, ["sleep", slept], limits=Limits(seconds=60))
        end = time.monotonic() + 60
        while not processes_saying(slept) and time.monotonic() < end:
            time.sleep(0.05)
        for thread_of_ours in Path("/proc/self/task").iterdir():
            for child in (thread_of_ours / "children").read_text().split():
                if Path(f"/proc/{child}/comm").read_text() == "bwrap\n":
                    os.kill(int(child), signal.SIGKILL)
        with pytest.raises(InfrastructureError, match="ended the box"):
            begun.result()


def test_sixteen_at_once_get_boxes_of_their_own(sandbox):
    def one(number):
        word = str(number)
        run = sandbox.run(
            ["sh", "-c", 'cat; cat a; echo "$X $0"; ls /tmp; touch /tmp/seen', word],
            {"a": word.encode()},
            word.encode(),
            env={"X": word},
        )
        return run.stdout.decode()

    with ThreadPoolExecutor(16) as threads:
        said = list(threads.map(one, range(48)))
    assert said == [f"{n}{n}{n} {n}\n" for n in range(48)]
