"""What a cheating agent runs: the host is unharmed, other boxes go on, and the finding is set."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plugins.worlds.tests.sandbox.attacks import ATTACKS, SLEPT, SMALL
from tracewheel_worlds.sandbox import BoxFile, Limits

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")
SECRET = "hunter2-of-this-test"


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """A file, a variable and a process of this machine, which no attack may touch: a process of the user that boxes run as."""
    folder = tmp_path_factory.mktemp("host")
    folder.chmod(0o755)
    (folder / "canary").write_text(SECRET)
    (folder / "canary").chmod(0o666)
    os.environ["TRACEWHEEL_TEST_SECRET"] = SECRET
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    other = subprocess.Popen(["/bin/sleep", "600"], cwd="/", **user)
    yield folder
    assert other.poll() is None, "an attack killed a process outside of its box"
    assert (folder / "canary").read_text() == SECRET and os.listdir(folder) == ["canary"]
    other.kill()
    other.wait()
    del os.environ["TRACEWHEEL_TEST_SECRET"]


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
def test_an_attack(sandbox, host, attack):
    run = sandbox.run(attack.command, limits=attack.limits, keep=True)
    assert run.findings == ((attack.finding,) if attack.finding else ()), run.text[-500:]
    assert run.seconds < SMALL.seconds
    assert not re.search(attack.never, run.text) and SECRET not in run.text
    if attack.says:
        assert re.search(attack.says, run.text, re.MULTILINE), run.text
    assert is_gone(SLEPT)


def processes_saying(word):
    """Processes of this machine with a word in their command line, but not those that are ending."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
    return found


def is_gone(word):
    """Whether no process says a word any more; on a busy machine a killed one may take a while to end."""
    end = time.monotonic() + 30
    while processes_saying(word) and time.monotonic() < end:
        time.sleep(0.05)
    return not processes_saying(word)


def test_servers_of_this_machine_are_out_of_reach(sandbox):
    name = f"tracewheel-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        port = server.getsockname()[1]
        program = (
            "import socket\n"
            f"for family, address in ((socket.AF_INET, ('127.0.0.1', {port})), (socket.AF_UNIX, '\\0{name}')):\n"
            "  try: socket.socket(family).connect(address); print('reached')\n"
            "  except OSError as error: print(error)"
        )
        here = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        assert here.stdout.splitlines() == [b"reached"] * 2  # without the box, both can be reached
        run = sandbox.run(["python3", "-c", program])
    assert run.stdout.count(b"Connection refused") == 2 and run.findings == ("network",)


def test_links_that_one_box_leaves_lead_nowhere_in_the_next(sandbox, host, tmp_path):
    """Kept files go back into a later box, which binds no folder that an earlier one wrote (CVE-2026-87766)."""
    canary = host / "canary"
    plant = f"ln -s {canary} file; ln -s {host} folder; ln -s / root; ln -s ../../.. up; ln -s /proc/1/root proc; mkdir d; "
    plant += f"ln -s {host} d/e"
    left = sandbox.run(["bash", "-c", plant], keep=True)
    assert left.findings == () and {path: file.link for path, file in left.files.items()}["file"] == str(canary)
    use = "for f in file folder/canary root/root/x up/etc/x proc/etc/x d/e/canary d/e/new; do echo PWNED > $f; cat $f; done"
    again = sandbox.run(["bash", "-c", use], left.files, keep=True)
    assert SECRET not in again.text and canary.read_text() == SECRET and os.listdir(host) == ["canary"]
    assert {path: file.link for path, file in again.files.items()} == {path: file.link for path, file in left.files.items()}
    with pytest.raises(ValueError, match="which is a file or a link"):
        sandbox.run(["true"], {**left.files, "folder/canary": b"PWNED"})


def test_no_bind_source_can_be_written_by_a_box(sandbox):
    """All that a box sees of this machine's disks is mounted read-only and belongs to another user."""
    mounts = sandbox.run(["cat", "/proc/self/mountinfo"]).stdout.decode().splitlines()
    assert len(mounts) > 5
    for mount in mounts:
        fields = mount.split()
        kind = fields[fields.index("-") + 1]
        if fields[5].split(",")[0] != "ro":
            assert kind in ("tmpfs", "proc", "devpts") or fields[4].startswith("/dev/"), mount
    find = "find /usr/bin /usr/lib/python3* /etc/alternatives -maxdepth 2 -user 1000 -o -maxdepth 2 -writable ! -type l"
    listed = sandbox.run(["sh", "-c", find]).stdout
    assert listed == b""


def test_what_a_box_leaves_is_read_as_data(sandbox):
    left = sandbox.run(
        ["bash", "-c", "mkfifo pipe; echo a > a; ln a b; mkdir -p e/f g; echo x > g/h; chmod 0 a; chmod 4755 g/h; python3 -c "
         "'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'"], keep=True,
    )  # fmt: skip
    assert set(left.files) == {"a", "b", "e/f", "g/h"} and left.findings == ()
    assert left.files["a"] == BoxFile(b"a\n", 0) and left.files["g/h"].mode == 0o755 and left.files["e/f"].folder


@pytest.mark.parametrize(
    ("program", "finding"),
    [
        ("for n in {1..100}; do mkdir d; cd d; done", "destroyed"),
        ("touch $'\\xff'", "destroyed"),
        ("for n in {1..9}; do truncate -s 1M $n; done", "disk"),
        ("head -c 3M /dev/zero > a; ln a b", "disk"),
    ],
)
def test_what_cannot_be_read_back_is_a_finding(sandbox, program, finding):
    run = sandbox.run(["bash", "-c", program], keep=True, limits=SMALL)
    assert (run.findings, run.files) == ((finding,), {})


def test_boxes_beside_attacks_are_unaffected(sandbox):
    """The limit of processes is each box's own; sixteen boxes at once, half of them attacks."""
    hostile = {attack.name: attack for attack in ATTACKS}
    bombs = [hostile[name] for name in ("fork bomb", "10 GB, bit by bit", "huge stdout", "many small files")] * 2
    honest = [
        "python3",
        "-c",
        "import subprocess\nps = [subprocess.Popen(['sleep', '0.2']) for _ in range(12)]\nprint(sum(p.wait() for p in ps))",
    ]
    with ThreadPoolExecutor(16) as threads:
        attacks = [threads.submit(sandbox.run, bomb.command, limits=SMALL) for bomb in bombs]
        runs = [threads.submit(sandbox.run, honest, limits=Limits(seconds=60, processes=24)) for _ in range(8)]
        assert [run.result().stdout for run in runs] == [b"0\n"] * 8
        assert [attack.result().findings for attack in attacks] == [(bomb.finding,) for bomb in bombs]


# In a process of its own: other tests leave threads, children and descriptors in this one, which come and go.
TWO_HUNDRED = """
import contextlib, os, shutil, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tracewheel_worlds.sandbox.bubblewrap import Bubblewrap

sandbox = Bubblewrap(shutil.which("bwrap"))
sandbox.run(["true"])
before, threads_before = sorted(os.listdir("/proc/self/fd")), threading.active_count()
with ThreadPoolExecutor(16) as threads:
    runs = list(threads.map(lambda n: sandbox.run(["echo", str(n)] if n % 20 else ["yes"], {"a": b"x"}, keep=True), range(200)))
for n, run in enumerate(runs):
    if n % 20:
        assert (run.stdout, run.findings, set(run.files)) == (f"{n}\\n".encode(), (), {"a"})
    else:
        assert run.findings == ("output",)
assert sorted(os.listdir("/proc/self/fd")) == before and threading.active_count() == threads_before
for child in Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text().split():
    with contextlib.suppress(OSError):
        assert "bwrap" not in Path(f"/proc/{child}/comm").read_text()
"""


def test_two_hundred_runs_of_sixteen_threads_leave_nothing_open():
    """Some of them are killed."""
    done = subprocess.run([sys.executable, "-c", TWO_HUNDRED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_box_dies_with_us():
    slept = f"5432{os.getpid()}"
    run = f"make_sandbox().run(['sleep', '{slept}'], limits=Limits(seconds=60))"
    ours = subprocess.Popen([sys.executable, "-c", f"from tracewheel_worlds.sandbox import Limits, make_sandbox\n{run}"])
    end = time.monotonic() + 60
    while not processes_saying(slept) and ours.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    boxed = processes_saying(slept)
    ours.kill()
    ours.wait()
    assert boxed and is_gone(slept)
