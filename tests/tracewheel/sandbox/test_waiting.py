"""Boxes that wait for their run: each is used once, knows nothing of another run, and ends with its owner."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tracewheel.core.errors import InfrastructureError
from tracewheel.sandbox import BoxRun, Limits, bubblewrap, keeper
from tracewheel.sandbox.bubblewrap import Bubblewrap
from tracewheel.sandbox.keeper import Keeper, keep
from tracewheel.sandbox.waiting import waiting

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")


class Counted(Bubblewrap):
    """Counts boxes that a run started itself."""

    def __init__(self, monkeypatch):
        super().__init__(shutil.which("bwrap"), waiting=True)
        self.started = 0
        start = bubblewrap.start_box

        def counted(recipe):
            self.started += 1
            return start(recipe)

        monkeypatch.setattr(bubblewrap, "start_box", counted)

    def run_waiting(self, *args, **more) -> BoxRun:
        """Run until it was in a box that had waited."""

        def once():
            before = self.started
            run = self.run(*args, **more)
            return run if self.started == before else None

        run = until(once)
        assert run, "no box was waiting for half a minute"
        return run


def until(found):
    """What a function finds, as soon as it finds something, and after half a minute whatever it does."""
    end = time.monotonic() + 30
    while not (something := found()) and time.monotonic() < end:
        time.sleep(0.05)
    return something


@pytest.fixture
def sandbox(monkeypatch):
    waiting().close()
    waiting().__init__()
    yield Counted(monkeypatch)
    waiting().close()
    waiting().__init__()


def descendants(process):
    """Processes below one, by number, with their names."""
    children = defaultdict(list)
    names = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
            number, fields = int(path.parent.name), rest.split()
            if fields[0] != "Z":
                children[int(fields[1])].append(number)
                names[number] = name
    found, new = {}, [process]
    while new:
        new = [child for parent in new for child in children[parent]]
        found |= {child: names[child] for child in new}
    return found


def boxes_of(process, at_least=1):
    """Processes of waiting boxes under one of ours, as soon as there are so many."""
    found = {}

    def are_there():
        found.clear()
        found.update(descendants(process))
        return sum(name == "bash" for name in found.values()) >= at_least

    assert until(are_there), f"no box waits below {process}: {found}"
    return found


def boxed(process):
    """Those below a process that make boxes up, and keepers: other tests may have started more, which come and go."""
    names = ("setpriv", "bwrap", "bash")
    return {number for number, name in descendants(process).items() if name in names or is_keeper(number)}


def is_keeper(process):
    try:
        return os.path.abspath(keeper.__file__).encode() in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def is_alive(process):
    """Whether a process runs; one that has ended may wait for whoever inherited it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def are_gone(processes):
    return until(lambda: not any(map(is_alive, processes)))


def test_a_single_run_starts_nothing_beforehand(sandbox):
    before = boxed(os.getpid())
    plain = Bubblewrap(shutil.which("bwrap"))
    for _ in range(3):
        assert plain.run(["true"]).exit_code == 0  # as the self-test does
    assert boxed(os.getpid()) <= before
    sandbox.run(["true"])
    kept = waiting()._process.pid
    assert sandbox.started == 4 and boxes_of(kept, keeper.BOXES) and {kept} <= boxed(os.getpid()) - before


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
        run = sandbox.run_waiting(
            ["bash", "-c", plant, secret.decode()], {"given": secret}, secret, env={"SECRET": secret.decode()}
        )
        assert run.stdout.count(secret) == 3
        seen = sandbox.run_waiting(["bash", "-c", look])
        assert seen.exit_code == 0 and not any(word in seen.text for word in ("hunter", "planted", "SECRET", "sleep"))


def test_variables_and_limits_are_each_runs_own(sandbox):
    show = "echo $A; ulimit -v; ulimit -t; ulimit -u; ulimit -f"
    for number in (1, 2, 3):
        limits = Limits(memory_mb=100 * number, seconds=12 * number, processes=10 * number)
        run = sandbox.run_waiting(["sh", "-c", 'exec bash -c "$0"', show], limits=limits, env={"A": f"of {number}"})
        assert run.stdout.decode().split("\n")[:-1] == [
            f"of {number}", str(number * 400 << 10), str(12 * number + 1), str(10 * number), str(64 << 10)
        ]  # fmt: skip
    assert sandbox.run_waiting(["sh", "-c", "echo $A"]).stdout == b"\n"
    fill = ["sh", "-c", "exec head -c 3M /dev/zero > a"]
    assert sandbox.run_waiting(fill, limits=Limits(disk_mb=1)).findings == ("disk",)
    assert sandbox.run_waiting(fill, limits=Limits(disk_mb=8)).exit_code == 0


def test_limits_count_from_the_run(sandbox):
    sandbox.run(["true"])
    boxes_of(waiting()._process.pid, keeper.BOXES)
    time.sleep(2.1)
    run = sandbox.run_waiting(["sleep", "0.1"], limits=Limits(seconds=2))
    assert (run.exit_code, run.findings) == (0, ()) and 0.1 <= run.seconds < 2
    run = sandbox.run_waiting(["sleep", "9"], limits=Limits(seconds=0.2))
    assert (run.exit_code, run.findings) == (None, ("timeout",)) and 0.2 <= run.seconds < 8


def test_words_arrive_as_they_are(sandbox):
    every = bytes(range(1, 256)).decode(errors="surrogateescape")
    words = [every, "", "-c", "$(id) `id` 'a' \"b\" \\", " \n\t", "a\x01\x7fb", "x" * 50000]
    show = ["python3", "-c", "import sys, os; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"]
    expected = b"\0".join(map(os.fsencode, words))
    assert sandbox.run_waiting([*show, *words]).stdout == expected
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
    seen = eval(sandbox.run_waiting(shown, {"a": b"echo planted"}, env=odd).stdout)
    assert {name: seen[name] for name in odd} == odd
    assert (
        sandbox.run_waiting(["./a=b"], {"a=b": bubblewrap.BoxFile(b"#!/bin/sh\necho ran $X\n", 0o755)}, env={"X": "1"}).stdout
        == b"ran 1\n"
    )
    assert sandbox.run_waiting([], env={"X": "1"}).stdout == b""
    for command, env in ((["a\0b"], {}), (["a"], {"X": "\0"}), (["a"], {"X=Y": ""}), (["a"], {"": ""})):
        with pytest.raises(ValueError, match="of a box"):
            sandbox.run(command, env=env)


def test_a_waiting_box_that_died_is_replaced_at_once(sandbox):
    for _ in range(3):
        sandbox.run(["true"])
        found = boxes_of(waiting()._process.pid)
        for number, name in found.items():
            if name in ("bwrap", "bash"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
        began = time.monotonic()
        assert sandbox.run(["echo", "there"], {"a": b"x"}, keep=True).stdout == b"there\n"
        assert time.monotonic() - began < 15


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
def test_runs_do_without_a_keeper(sandbox, how):
    sandbox.run_waiting(["true"])
    kept = waiting()._process.pid
    os.kill(kept, how)
    try:
        for number in range(5):
            assert sandbox.run(["echo", str(number)]).stdout == f"{number}\n".encode()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(kept, signal.SIGCONT)
    if how == signal.SIGSTOP:  # answers that came too late are answers to nobody
        assert sandbox.run_waiting(["echo", "again"]).stdout == b"again\n"


def test_a_box_that_somebody_else_ends_is_no_result_of_the_program(sandbox, monkeypatch):
    monkeypatch.setattr("tracewheel.sandbox.waiting.ANSWER_SECONDS", 30.0)  # the box that waits is taken, however long it takes
    sandbox.run(["true"])
    kept = waiting()._process
    boxes_of(kept.pid)
    with ThreadPoolExecutor(1) as thread:
        begun = thread.submit(sandbox.run, ["sleep", "6543"], limits=Limits(seconds=60))
        until(lambda: "sleep" in descendants(kept.pid).values())
        kept.kill()
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

    sandbox.run(["true"])
    boxes_of(waiting()._process.pid, keeper.BOXES)
    before = sandbox.started
    with ThreadPoolExecutor(16) as threads:
        said = list(threads.map(one, range(96)))
    assert said == [f"{n}{n}{n} {n}\n" for n in range(96)]
    assert sandbox.started - before < 96, "no run was in a box that had waited"


OWNER = (
    "import os, sys, time, shutil\nfrom tracewheel.sandbox.bubblewrap import Bubblewrap\n"
    "s = Bubblewrap(shutil.which('bwrap'), waiting=True)\n"
    "for _ in range(2): s.run(['true'])\n"
)  # fmt: skip


@pytest.mark.parametrize(
    ("more", "ended"),
    [("print(1, flush=True); time.sleep(60)", True), ("print(1, flush=True); sys.stdin.read()", False)],
    ids=["killed", "at its end"],
)
def test_an_owner_leaves_no_boxes(more, ended):
    with subprocess.Popen([sys.executable, "-c", OWNER + more], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        owner.stdout.readline()
        found = boxes_of(owner.pid, keeper.BOXES)
        assert any(name == "bwrap" for name in found.values())
        if ended:
            owner.kill()
        owner.stdin.close()
        owner.wait(30)
    assert are_gone(found)


@pytest.mark.slow
def test_a_forked_process_has_a_keeper_of_its_own():
    """And holds none of its parent's boxes, which end with the parent."""
    more = (
        "child = os.fork()\n"
        "if child == 0:\n"
        "  for n in range(3): print(s.run(['echo', 'of the child']).stdout, flush=True)\n"
        "  time.sleep(60)\n"
        "print(child, s.run(['echo', 'of the parent']).stdout, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", OWNER + more], stdout=subprocess.PIPE, text=True) as owner:
        said = [owner.stdout.readline() for _ in range(4)]
        child = next(int(line.split()[0]) for line in said if "parent" in line)
        try:
            assert sum("of the child" in line for line in said) == 3 and sum("of the parent" in line for line in said) == 1
            of_child = boxes_of(child, keeper.BOXES)
            of_parent = boxes_of(owner.pid, 2 * keeper.BOXES).keys() - of_child.keys() - {child}
            owner.kill()
            owner.wait(30)
            assert of_parent and are_gone(of_parent) and is_alive(child)
        finally:
            os.kill(child, signal.SIGKILL)
        assert are_gone(of_child)


def test_boxes_that_nobody_takes_end(monkeypatch):
    monkeypatch.setattr(keeper, "IDLE_SECONDS", 0.0)
    recipe = Bubblewrap(shutil.which("bwrap"))._recipe(Limits())
    kept = Keeper()
    assert kept.take(recipe) is None and kept.start_one() and kept.start_one() and not kept.start_one()
    started = [process.pid for process, _ in kept._boxes[recipe]]
    found = {*started, *(number for process in started for number in boxes_of(process))}
    held = {
        descriptor: os.fstat(descriptor).st_ino
        for _, box in kept._boxes[recipe]
        for descriptor in box
        if descriptor != box.process
    }
    assert len(started) == keeper.BOXES and len(held) == keeper.BOXES * 7
    assert kept.tidy() is False and are_gone(found) and not any(map(is_held, held, held.values()))


def is_held(descriptor, inode):
    """Whether a descriptor is still open on what it was open on."""
    try:
        return os.fstat(descriptor).st_ino == inode
    except OSError:
        return False


def test_only_the_recipes_asked_for_last_are_kept():
    recipes = [Bubblewrap(shutil.which("bwrap"))._recipe(Limits(disk_mb=size)) for size in (1, 2, 3)]
    with contextlib.closing(Keeper()) as kept:
        for recipe in recipes:
            kept.take(recipe)
            while kept.start_one():
                pass
        assert [recipe in kept._boxes for recipe in recipes] == [False, True, True]
        assert sum(map(len, kept._boxes.values())) == 4


def test_a_keeper_without_work_ends(monkeypatch):
    monkeypatch.setattr(keeper, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(keeper, "TICK_SECONDS", 0.05)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, ThreadPoolExecutor(1) as thread:
        ours.send(b"1\n" + Bubblewrap(shutil.which("bwrap"))._recipe(Limits()))
        ended = thread.submit(keep, os.getppid(), theirs)
        ours.settimeout(30)
        assert ours.recv(10) == b"1"
        assert ended.result(30) is None


def test_a_box_that_is_ended_while_it_is_set_up_leaves_no_process():
    """Bubblewrap's second process waits for its first one before it would end with it."""
    size = 700 + os.getpid()
    mark = str((size << 20) + bubblewrap.SPARE_DISK).encode()
    for tenths in range(200):
        kept = Keeper()
        kept.take(Bubblewrap(shutil.which("bwrap"))._recipe(Limits(disk_mb=size)))
        kept.start_one()
        time.sleep(tenths / 10_000)
        kept.close()
    assert are_gone([number for number, line in commands() if mark in line])


def commands():
    """Each process's number and command line; one that has ended and was not yet read has no line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.parent.name, path.read_bytes()
