"""Which sandbox a config gets, what is refused, and the self-test."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tracewheel.core.box_calls import ABSENT, ARCHITECTURES, KILLED
from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.core.machine import machine_record
from tracewheel_worlds.sandbox import BoxFile, BoxRun, Limits, SandboxConfig, make_sandbox
from tracewheel_worlds.sandbox.bubblewrap import Bubblewrap, about
from tracewheel_worlds.sandbox.docker import Docker
from tracewheel_worlds.sandbox.making import Checked
from tracewheel_worlds.sandbox.self_test import EXCESSES, self_test
from tracewheel_worlds.sandbox.unsafe_local import UnsafeLocal

boxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")


@boxed
def test_all_promises_hold_here():
    promises = self_test(Bubblewrap(shutil.which("bwrap")))
    assert len(promises) == 13 and [promise for promise in promises if not promise.holds] == []


def test_a_run_without_isolation_keeps_none_of_the_promises_that_count(monkeypatch):
    """The self-test finds what is open: it is run on a sandbox that is none."""
    monkeypatch.setattr("tracewheel_worlds.sandbox.self_test.EXCESSES", {"timeout": EXCESSES["timeout"]})
    broken = {promise.name for promise in self_test(UnsafeLocal()) if not promise.holds}
    assert {"no network", "no secrets", "no foreign processes", "system calls are filtered"} <= broken


class Leaky:
    kind = "leaky"

    def run(self, command, files=None, stdin=b"", limits=None, keep=False, env=None):
        return UnsafeLocal().run(command, files, stdin, limits, keep, env)


def test_a_sandbox_that_breaks_its_promises_runs_nothing(monkeypatch):
    monkeypatch.setattr("tracewheel_worlds.sandbox.self_test.EXCESSES", {"timeout": EXCESSES["timeout"]})
    with pytest.raises(ConfigError, match="does not keep its promises on this machine.*no network"):
        Checked(Leaky()).run(["true"])


def test_unsafe_local_is_refused_without_the_flag_and_recorded_with_it(monkeypatch, caplog):
    monkeypatch.delenv("TRACEWHEEL_UNSAFE_LOCAL", raising=False)
    with pytest.raises(ConfigError, match="--unsafe-local"):
        make_sandbox(SandboxConfig(kind="unsafe_local"))
    monkeypatch.setenv("TRACEWHEEL_UNSAFE_LOCAL", "1")
    run = make_sandbox(SandboxConfig(kind="unsafe_local")).run(
        ["sh", "-c", "cat; echo y > b; env"], {"a": b"x"}, b"in", keep=True
    )
    assert "without isolation" in caplog.text and machine_record()["variables"]["TRACEWHEEL_UNSAFE_LOCAL"] == "1"
    assert (run.exit_code, run.findings, set(run.files)) == (0, (), {"a", "b"}) and b"TRACEWHEEL" not in run.stdout


@pytest.mark.parametrize(
    ("program", "finding"),
    [("sleep 9", "timeout"), ("head -c 100000 /dev/zero", "output"), ("head -c 3M /dev/zero > a", "disk")],
)
def test_unsafe_local_has_limits(program, finding):
    limits = Limits(seconds=0.5 if finding == "timeout" else 30, output_bytes=1000, disk_mb=1)
    run = UnsafeLocal(limits).run(["sh", "-c", f"exec {program}"])
    assert (run.findings, run.exit_code) == ((finding,), None) and len(run.stdout) <= 1000


def test_where_no_isolation_is_there_it_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for kind in ("auto", "bubblewrap"):
        with pytest.raises(ConfigError, match="apt-get install bubblewrap.*--unsafe-local"):
            make_sandbox(SandboxConfig(kind=kind))
    with pytest.raises(ConfigError, match="install Docker"):
        make_sandbox(SandboxConfig(kind="gvisor"))


def test_a_box_that_cannot_be_made_is_no_result_of_the_program(tmp_path):
    """A broken bubblewrap is the machine's failure: it must not look like a program that failed."""
    for body in ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "exit 0", "kill -9 $$"):
        broken = tmp_path / "bwrap"
        broken.write_text(f"#!/bin/sh\n{body}\n")
        broken.chmod(0o755)
        tmp_path.chmod(0o755)
        with pytest.raises(InfrastructureError, match="not set up"):
            Bubblewrap(str(broken)).run(["true"])
    with pytest.raises(InfrastructureError, match="not start"):
        Docker(str(tmp_path / "none"), "image").run(["true"])


def test_the_version_of_bubblewrap_is_looked_at(tmp_path):
    for version, warned in (("0.8.0", True), ("0.11.9", True), ("0.12.0", False), ("1.0.0", False)):
        program = tmp_path / f"bwrap-{version}"
        program.write_text(f"#!/bin/sh\necho bubblewrap {version}\n")
        program.chmod(0o755)
        assert ("CVE-2026-87766" in about(str(program))) is warned


@boxed
@pytest.mark.skipif(platform.machine() not in ARCHITECTURES, reason="the filter knows no numbers of this machine")
def test_each_filtered_system_call_is_stopped():
    numbers = KILLED[platform.machine()], ABSENT[platform.machine()]
    program = (
        "import ctypes, os, sys\nkilled, absent = eval(sys.stdin.read())\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "for names in (killed, absent):\n"
        "  for name, number in names.items():\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "      value = libc.syscall(number, 0, 0, 0, 0, 0)\n"
        "      os._exit(ctypes.get_errno() if value == -1 else 0)\n"
        "    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    said = make_sandbox().run(["python3", "-c", program], stdin=repr(numbers).encode()).stdout.decode().split("\n")[:-1]
    assert said == [f"{name} -31" for name in numbers[0]] + [f"{name} 38" for name in numbers[1]]


PROMISED = (
    "--network none", "--read-only", "--cap-drop ALL", "--security-opt no-new-privileges", "--user 65534:65534",
    "--pids-limit 9", "--memory 100m", "--memory-swap 100m", "nr_inodes=66", "--ulimit nofile=256:256", "--init", "--rm",
    "--pull never",
)  # fmt: skip


def test_containers_get_the_same_promises():
    line = Docker("docker", "image:1").line(["echo", "a b"], Limits(processes=9, memory_mb=100, files=50, disk_mb=5), "box-1")
    assert all(option in " ".join(line) for option in PROMISED) and line[-2:] == ["echo", "a b"]
    assert not [part for part in line if part in ("-v", "--volume", "--mount", "--privileged", "--env-file")]
    assert "--runtime runsc" in " ".join(Docker("docker", "image:1", runtime="runsc").line(["true"], Limits(), "box-2"))


@pytest.mark.skipif(shutil.which("docker") is None, reason="needs docker's client")
def test_docker_without_a_daemon_is_the_machines_failure():
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0:
        pytest.skip("a daemon runs here")
    with pytest.raises(InfrastructureError, match="not set up"):
        Docker(shutil.which("docker"), "image").run(["true"])


@boxed
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (
            "cat a; cat; echo b > b; echo e >&2; exit 3",
            BoxRun(3, b"xin", b"e\n", (), 0, {"a": BoxFile(b"x"), "b": BoxFile(b"b\n")}),
        ),
        ("yes | head -c 2000", BoxRun(None, b"y\n" * 500, b"", ("output",))),
        ("sleep 20", BoxRun(None, b"", b"Killed\n", ("timeout",))),
        ("rm -rf /tmp/.run; echo forged", BoxRun(None, b"", b"", ("destroyed",))),
    ],
)
def test_what_a_container_writes_is_read_back(tmp_path, program, expected):
    """Docker's part is played by bubblewrap: the container's own script runs, and its archive is read."""
    client = tmp_path / "docker"
    client.write_text(
        '#!/bin/bash\nwhile [ "$1" != --entrypoint ]; do shift; done; shift 3\n'
        "exec bwrap --unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib "
        '--symlink usr/lib64 /lib64 --dev /dev --tmpfs /tmp --tmpfs /box --chdir /box -- /bin/sh "$@"\n'
    )
    client.chmod(0o755)
    limits = Limits(seconds=1 if "timeout" in expected.findings else 10, output_bytes=1000)
    run = Docker(str(client), "image", limits).run(["sh", "-c", program], {"a": b"x"}, b"in", keep=True)
    assert (run.exit_code, run.findings, run.stdout) == (expected.exit_code, expected.findings, expected.stdout)
    assert dict(run.files) == dict(expected.files)


@boxed
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_user_without_rights_gets_the_same_box(tmp_path):
    """Most people are not root: the box is then made, watched and read by an ordinary user."""
    wheel, root = Path(__file__).parents[2], Path(__file__).parents[4]
    copy = tmp_path / "code"
    for path in [*(root / "tracewheel").rglob("*.py"), *(wheel / "tracewheel_worlds" / "sandbox").rglob("*.py")]:
        inside = path.relative_to(wheel if wheel in path.parents else root)
        if inside.parts[1] in ("sandbox", "core", "config", "__init__.py"):
            target = copy / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    pydantic = [str(Path(part)) for part in os.sys.path if part.endswith("site-packages")]
    packages = tmp_path / "packages"
    for name in ("pydantic", "pydantic_core", "annotated_types", "typing_inspection", "typing_extensions.py", "yaml"):
        for part in pydantic:
            source = Path(part, name)
            if source.is_dir():
                shutil.copytree(source, packages / name, dirs_exist_ok=True)
            elif source.is_file():
                packages.mkdir(exist_ok=True)
                shutil.copy(source, packages / name)
    subprocess.run(["chmod", "-R", "a+rX", str(tmp_path)], check=True)
    for parent in tmp_path.parents:
        parent.chmod(parent.stat().st_mode | 0o111)
    program = (
        "import os\nfrom tracewheel_worlds.sandbox import make_sandbox, Limits\n"
        "s = make_sandbox()\n"
        "print(os.getuid(), s.run(['sh', '-c', 'id -u; echo x > a; chmod 0 a'], {'b': b'y'}, keep=True))\n"
        "print(s.run(['python3', '-c', 'import os\\nwhile 1:\\n  try: os.fork()\\n  except OSError: pass']).findings)\n"
    )
    done = subprocess.run(
        [python, "-c", program], capture_output=True, text=True, check=False, cwd="/", user=4321, group=4321, extra_groups=[],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{copy}:{packages}", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert (
        done.stdout.startswith("4321 BoxRun(exit_code=0, stdout=b'1000\\n'")
        and "'a': BoxFile(content=b'x\\n', mode=0" in done.stdout
    )
    assert "('processes',)" in done.stdout
