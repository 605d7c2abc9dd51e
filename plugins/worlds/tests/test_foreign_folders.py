"""Task folders of hostile make: nothing of them runs or is read outside, and the good folder beside them still loads."""

import os
import random
import shutil
import sys
import time
from pathlib import Path

import pytest

from plugins.worlds.tests.foreign_folders import snapshot, traps, write, write_patch_task
from tracewheel.core.errors import DataError
from tracewheel.core.types import stored_json
from tracewheel.environments import make_environment
from tracewheel_worlds.harbor.loading import load_tasks
from tracewheel_worlds.sandbox import SandboxConfig

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None or shutil.which("git") is None,
    reason="needs git, and bubblewrap: apt-get install bubblewrap",
)
KEY = "PRIVATE-KEY-planted-77"
DONE = "[ -f /app/done ]"
HARBOR = {
    "task.toml": '[metadata]\ndifficulty = "easy"\ncategory = "c"\n[verifier]\ntimeout_sec = 30.0\n',
    "instruction.md": "Make /app/done.\n",
    "environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\n",
    "tests/test.sh": f"mkdir -p /logs/verifier\nif {DONE}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "touch /app/done\n",
}
OLD = {
    "task.yaml": "instruction: |-\n  Make /app/done.\ndifficulty: easy\ncategory: c\nmax_test_timeout_sec: 30.0\n",
    "Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\n",
    "solution.sh": "touch /app/done\n",
    "run-tests.sh": f"{DONE}\n",
    "tests/a.txt": "a\n",
}


@pytest.fixture(scope="module")
def patch_folder(tmp_path_factory):
    return write_patch_task(tmp_path_factory.mktemp("patch"))


@pytest.fixture
def all_folders(tmp_path):
    """A folder of task folders with a good one, beside a home with secrets."""
    write(tmp_path / "home", {".ssh/id_rsa": KEY, "proj/Dockerfile": HARBOR["environment/Dockerfile"], "proj/data/k": KEY})
    write(tmp_path / "home" / "t", {"test.sh": HARBOR["tests/test.sh"], "k": KEY})
    write(tmp_path / "all" / "ok", HARBOR)
    return tmp_path / "all"


@pytest.fixture
def failing_docker(tmp_path_factory, monkeypatch):
    """A Docker that is there and builds nothing."""
    folder = write(tmp_path_factory.mktemp("programs"), {"docker": "#!/bin/sh\nexit 1\n"})
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return str(folder / "docker")


def linked(folder, name, target):
    shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)


def giant(path):
    with path.open("wb") as file:
        file.truncate(8 << 30)


def piped(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def docker(line):
    return lambda folder, home: write(folder, {"environment/Dockerfile": HARBOR["environment/Dockerfile"] + line + "\n"})


def settings(old, new):
    return lambda folder, home: write(folder, {"task.toml": HARBOR["task.toml"].replace(old, new)})


HOSTILE = {
    "linked instruction": (
        lambda folder, home: linked(folder, "instruction.md", home / ".ssh/id_rsa"),
        "instruction.md is a link",
    ),
    "linked Dockerfile": (
        lambda folder, home: linked(folder, "environment/Dockerfile", home / ".ssh/id_rsa"),
        "Dockerfile is a link",
    ),
    "linked environment": (
        lambda folder, home: linked(folder, "environment", home / "proj"),
        "environment is no folder, or a link",
    ),
    "linked tests": (lambda folder, home: linked(folder, "tests", home / "t"), "tests is no folder, or a link"),
    "linked settings": (lambda folder, home: linked(folder, "task.toml", home / ".ssh/id_rsa"), "task.toml is a link"),
    "linked file": (
        lambda folder, home: (linked(folder, "environment/k", home / ".ssh/id_rsa"), docker("COPY k /app/")(folder, home)),
        "k is a link",
    ),
    "linked folder to copy": (
        lambda folder, home: (linked(folder, "environment/p", home / "proj"), docker("COPY p /app/p/")(folder, home)),
        "p is a link",
    ),
    "zeros": (lambda folder, home: linked(folder, "instruction.md", "/dev/zero"), "instruction.md is a link"),
    "pipe": (lambda folder, home: piped(folder / "instruction.md"), "instruction.md is no regular file"),
    "pipe among the tests": (lambda folder, home: piped(folder / "tests/p"), "p is no regular file"),
    "giant": (
        lambda folder, home: (giant(folder / "environment/blob"), docker("COPY blob /app/")(folder, home)),
        "files take more than 16 MB",
    ),
    "giant instruction": (lambda folder, home: giant(folder / "instruction.md"), "instruction.md has 8589934592 bytes"),
    **{
        f"seconds {value[:9]}": (settings("30.0", value), "verifier.timeout_sec")
        for value in ("-5.0", "0", "nan", "inf", "1e300", "true", '"5"', "9" * 400, "[1]")
    },
    "sections": (settings("[verifier]", "[[verifier]]"), "task.toml: verifier"),
    "no TOML": (settings("[verifier]", "[verifier"), "task.toml cannot be read"),
    "nested": (settings("30.0", "[" * 5000), "task.toml cannot be read"),
    "no UTF-8": (lambda folder, home: (folder / "task.toml").write_bytes(b"\xff"), "task.toml is no UTF-8"),
    "category": (settings('"c"', '"a\\u0000\\nb"'), "metadata.category"),
    "only FROM": (lambda folder, home: write(folder, {"environment/Dockerfile": "FROM"}), "docker build failed"),
    "a folder of the system": (
        lambda folder, home: write(folder, {"environment/Dockerfile": "FROM debian\nWORKDIR /etc\n"}),
        "docker build failed",
    ),
}


def test_each_hostile_directory_is_refused_by_name_and_the_good_one_loads(all_folders, failing_docker):
    home = all_folders.parent / "home"
    for name, (change, _) in HOSTILE.items():
        change(write(all_folders / name, HARBOR), home)
    (all_folders / "outside").symlink_to(write(all_folders.parent / "elsewhere", HARBOR))
    began = time.monotonic()
    loaded = load_tasks(all_folders, SandboxConfig())
    assert time.monotonic() - began < 20
    assert [task.prompt for task in loaded.tasks] == ["Make /app/done."]
    assert {*HOSTILE, "outside"} == loaded.refused.keys()
    for name, (_, reason) in HOSTILE.items():
        with pytest.raises(DataError, match=reason):
            raise DataError(loaded.refused[name])
    assert KEY not in stored_json(loaded.tasks[0].to_record()) + str(loaded.refused)
    with pytest.raises(DataError, match="instruction.md is a link"):
        make_environment("harbor").tasks_from(all_folders / "linked instruction")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: &a [x]\ninstruction: *a\n", "aliases"),
        ("instruction: [", "task.yaml cannot be read"),
        ("instruction: " + "[" * 5000, "task.yaml cannot be read"),
        ("x: 1", "instruction"),
        ("- 1", "its content|valid dictionary"),
        ("", "its content"),
        ("instruction: x\nmax_test_timeout_sec: .nan\n", "max_test_timeout_sec"),
        ("instruction: 2026-99-99\n", "task.yaml"),
        ("instruction: !!python/object/apply:os.system [id]\n", "task.yaml cannot be read"),
    ],
)
def test_the_older_layout_is_held_to_the_same(tmp_path, text, reason):
    write(tmp_path / "old", {**OLD, "task.yaml": text})
    with pytest.raises(DataError, match=reason):
        make_environment("harbor").tasks_from(tmp_path)


VALUES = [
    "-1",
    "nan",
    "inf",
    "1e999",
    "true",
    '""',
    "[" * 400,
    "\0",
    "\ud7ff\u202e",
    "../..",
    "/etc/passwd",
    "$A",
    "*" * 50,
    "x" * 5000,
    "--help",
    "${",
    "\\",
    "\n",
]


def mutated(folder, home, rng):
    """One to three changes of a task folder: its bytes, its values, its files and what they are."""
    for _ in range(rng.randint(1, 3)):
        files = sorted(
            path
            for path in folder.rglob("*")
            if path.is_file()
            and not path.is_symlink()
            and path.stat().st_size < 1 << 20
            and ".git" not in path.relative_to(folder).parts
        )
        if not files:
            return
        path = rng.choice(files)
        content = path.read_bytes()
        at = rng.randrange(len(content) + 1)
        words = content.split()
        match rng.choice(["bytes", "cut", "word", "word", "line", "link", "pipe", "giant", "gone", "folder", "repository"]):
            case "bytes":
                path.write_bytes(content[:at] + rng.randbytes(rng.randint(1, 9)) + content[at + 2 :])
            case "cut":
                path.write_bytes(content[:at])
            case "word" if words:
                path.write_bytes(content.replace(rng.choice(words), rng.choice(VALUES).encode("utf-8", "surrogatepass"), 1))
            case "line":
                lines = content.split(b"\n")
                lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines) + rng.choice(VALUES).encode())
                path.write_bytes(b"\n".join(lines))
            case "link":
                path.unlink()
                path.symlink_to(rng.choice([home / ".ssh/id_rsa", Path("/dev/zero"), home, Path("/etc/passwd"), path]))
            case "pipe":
                piped(path)
            case "giant":
                giant(path)
            case "gone":
                path.unlink()
            case "folder":
                path.unlink()
                path.mkdir()
            case "repository":
                inside = folder / "repository" / ".git"
                parts = [one for one in inside.rglob("*") if one.is_file() and not one.is_symlink()] if inside.is_dir() else []
                if parts:
                    part = rng.choice(sorted(parts))
                    data = part.read_bytes()
                    part.chmod(0o644)
                    part.write_bytes(data[: len(data) // 2] + rng.randbytes(5))


PROGRAMS = {"sh", "bwrap", "setpriv", Path(sys.executable).name}  # git's limits, the boxes, and what keeps boxes
STARTS = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "socket.connect")


def note_starts(seen):
    """Note the programs and connections of this process in a list, as long as there is one in `seen`; hooks stay for ever."""

    def hook(event, args):
        started = event == "subprocess.Popen" and Path(os.fsdecode(args[0])).name not in PROGRAMS
        if seen and (started or event in STARTS):
            seen[0].append((event, args))

    sys.addaudithook(hook)


def test_a_hundred_mutated_folders_are_data_and_nothing_else(patch_folder, tmp_path, failing_docker):
    rng = random.Random(20261128)
    home = write(tmp_path / "home", {".ssh/id_rsa": KEY})
    bases = {
        "harbor": write(tmp_path / "harbor", HARBOR),
        "terminal": write(tmp_path / "old", OLD),
        "patch": tmp_path / "patch",
    }
    shutil.copytree(patch_folder, bases["patch"])
    traps(bases["patch"], tmp_path / "pwned")
    for number in range(100):
        kind = ("harbor", "terminal", "harbor", "terminal", "patch")[number % 5]
        folder = tmp_path / "all" / ("patch" if kind == "patch" else "harbor") / f"{number:03}"
        shutil.copytree(bases[kind], folder)
        mutated(folder, home, rng)
    good = {}
    for kind in ("harbor", "patch"):
        shutil.copytree(bases[kind], tmp_path / "all" / kind / "good")
        good[kind] = make_environment(kind).tasks_from(tmp_path / "all" / kind / "good")[0]
    before, modules, noted = snapshot(tmp_path), set(sys.modules), []
    seen = [noted]
    note_starts(seen)
    began = time.monotonic()
    for kind, task in good.items():
        tasks = make_environment(kind).tasks_from(tmp_path / "all" / kind)
        assert task in tasks and KEY not in "".join(stored_json(task.to_record()) for task in tasks)
    seen.clear()
    assert time.monotonic() - began < 300, "a machine under load; what waits for a pipe never ends"
    noted = [start for start in noted if failing_docker not in start[1]]
    assert noted == [] and not (tmp_path / "pwned").exists() and snapshot(tmp_path) == before
    assert [name for name in set(sys.modules) - modules if not name.startswith(("tracewheel", "yaml", "encodings"))] == []
