"""Boxes made by Docker, with its default runtime or gVisor's `runsc`: a container without rights for each run."""

from __future__ import annotations

import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence

from tracewheel import InfrastructureError
from tracewheel_worlds.sandbox.archives import packed_files, unpacked_files
from tracewheel_worlds.sandbox.base import WORKING_FOLDER, BoxFile, BoxRun, Finding, Limits
from tracewheel_worlds.sandbox.places import places

USER = "65534:65534"
FILES, STDIN = "files.tar", "stdin"
STDOUT, STDERR, STATUS, LEFT = "stdout", "stderr", "status", "left.tar"
STARTUP_SECONDS = 60.0
# Docker's own exit codes: its daemon failed, or the container's first program could not start.
NOT_STARTED = (125, 126)
# A container has one stream in and one out: both are archives. What the command says is kept on the container's small disk.
RUN = (
    "mkdir /tmp/.run && cd /tmp/.run && tar -xf - && tar -xpf files.tar -C /box && cd /box || exit 126; "
    "{{ ulimit -c 0; ulimit -f {blocks}; timeout -s KILL {seconds} \"$@\"; }} "
    "< /tmp/.run/stdin > /tmp/.run/stdout 2> /tmp/.run/stderr; "
    "echo $? > /tmp/.run/status; kill -9 -1 2>/dev/null; tar -cf /tmp/.run/left.tar -C /box . 2>/dev/null; "
    "tar -cf - -C /tmp/.run stdout stderr status left.tar"
)  # fmt: skip


class Docker:
    """A sandbox on Docker.

    >>> Docker("docker", "python:3.11-slim").line(["true"], Limits(processes=9), "box-1")[:4]
    ['docker', 'run', '--rm', '--interactive']
    """

    def __init__(self, program: str, image: str, limits: Limits | None = None, runtime: str | None = None) -> None:
        self.kind = "gvisor" if runtime else "docker"
        self._program, self._image, self._runtime = program, image, runtime
        self._limits = limits or Limits()

    @property
    def made_of(self) -> tuple[str, ...]:
        """What all its boxes have in common, whatever the limits of a run."""
        return (self._program, self._image)

    def line(self, command: Sequence[str], limits: Limits, name: str, env: Mapping[str, str] | None = None) -> list[str]:
        """The command line of a run: a container of the given name that reads an archive and writes one."""
        # An output beyond its limit, and the archive of what is left, need room on the disk, too.
        size = 3 * (limits.disk_mb << 20) + 2 * limits.output_bytes
        disk = f"rw,nosuid,nodev,mode=0700,uid=65534,gid=65534,nr_inodes={limits.files + 16}"
        line = [self._program, "run", "--rm", "--interactive", "--name", name, "--pull", "never"]
        if self._runtime:
            line += ["--runtime", self._runtime]
        line += ["--network", "none", "--user", USER, "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        line += [
            "--pids-limit",
            str(limits.processes),
            "--memory",
            f"{limits.memory_mb}m",
            "--memory-swap",
            f"{limits.memory_mb}m",
        ]
        line += ["--ulimit", "nofile=256:256", "--ulimit", "core=0:0", "--ipc", "private", "--init", "--hostname", "box"]
        line += ["--tmpfs", f"/tmp:{disk},size={size}", "--tmpfs", f"{WORKING_FOLDER}:{disk},exec,size={limits.disk_mb << 20}"]
        for variable, value in {"HOME": WORKING_FOLDER, "LANG": "C.UTF-8", **(env or {})}.items():
            line += ["--env", f"{variable}={value}"]
        script = RUN.format(blocks=limits.disk_mb << 11, seconds=limits.seconds)
        return [*line, "--workdir", WORKING_FOLDER, "--entrypoint", "/bin/sh", self._image, "-c", script, "sh", *command]

    def run(
        self,
        command: Sequence[str],
        files: Mapping[str, BoxFile | bytes] | None = None,
        stdin: bytes = b"",
        limits: Limits | None = None,
        keep: bool = False,
        env: Mapping[str, str] | None = None,
        counted: str = "",
    ) -> BoxRun:
        limits = limits or self._limits
        name = f"tracewheel-{uuid.uuid4().hex}"
        room = Limits(disk_mb=limits.disk_mb * 4 + 1)
        given = packed_files({FILES: packed_files(files or {}, limits), STDIN: stdin}, room)
        with places().one():
            return self._run(self.line(command, limits, name, env), given, name, limits, keep)

    def _run(self, line: list[str], given: bytes, name: str, limits: Limits, keep: bool) -> BoxRun:
        began = time.monotonic()
        try:
            process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            raise InfrastructureError(f"docker did not start: {error}") from error
        try:
            packed, said = process.communicate(given, limits.seconds + STARTUP_SECONDS)
        except subprocess.TimeoutExpired:
            subprocess.run([self._program, "kill", name], capture_output=True, check=False, timeout=STARTUP_SECONDS)
            process.kill()
            process.communicate()
            return BoxRun(None, b"", b"", ("timeout",), time.monotonic() - began)
        if process.returncode in NOT_STARTED:
            raise InfrastructureError(f"the box was not set up: {said.decode(errors='replace').strip()[-500:]}")
        return _result(packed, process.returncode, limits, keep, time.monotonic() - began)


def _result(packed: bytes, code: int, limits: Limits, keep: bool, seconds: float) -> BoxRun:
    """What a container's archive says; one that gives no sound archive was killed for its memory, or broke its own run."""
    parts = unpacked_files(packed, Limits(disk_mb=limits.disk_mb * 4 + 1, files=8))
    if parts is None or not {STDOUT, STDERR, STATUS} <= set(parts):
        return BoxRun(None, b"", b"", ("memory",) if code == 137 else ("destroyed",), seconds)
    stdout, stderr = parts[STDOUT].content, parts[STDERR].content
    findings: list[Finding] = []
    if max(len(stdout), len(stderr)) > limits.output_bytes:
        findings.append("output")
    status = parts[STATUS].content.strip()
    number = int(status) if status.isdigit() else 255
    if number == 128 + signal.SIGKILL and seconds >= limits.seconds:
        findings.append("timeout")
    if number == 128 + signal.SIGXFSZ:
        findings.append("disk")
    left = {}
    if keep and not findings and LEFT in parts:
        unpacked = unpacked_files(parts[LEFT].content, limits)
        if unpacked is None:
            findings.append("destroyed")
        left = unpacked or {}
    number = 128 - number if 128 < number <= 192 else number
    return BoxRun(
        None if findings else number,
        stdout[: limits.output_bytes],
        stderr[: limits.output_bytes],
        tuple(findings),
        seconds,
        left,
    )
