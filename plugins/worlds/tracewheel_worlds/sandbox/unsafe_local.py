"""Running an agent's code as our own user: limits, and no isolation at all."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tracewheel import InfrastructureError
from tracewheel_worlds.sandbox.archives import packed_files
from tracewheel_worlds.sandbox.base import BoxFile, BoxRun, Finding, Limits
from tracewheel_worlds.sandbox.leftovers import Unreadable, files_left
from tracewheel_worlds.sandbox.places import places

# Limits that a system lacks are left out: macOS has none of memory.
RUN = (
    "tar -xpf - && for limit in '-c 0' '-n 256' '-f {file}' '-v {memory}' '-t {seconds}'; do ulimit $limit 2>/dev/null; done; "
    'exec "$@" < "$STDIN_OF_RUN"'
)


class UnsafeLocal:
    """A folder, a time limit and no more: the program can read, write and reach whatever this user can.

    >>> UnsafeLocal().run(["cat", "a"], {"a": b"hello"}).stdout
    b'hello'
    """

    kind = "unsafe_local"

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()

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
        packed = packed_files(files or {}, limits)
        with tempfile.TemporaryDirectory(prefix="box-") as folder, tempfile.TemporaryDirectory(prefix="box-") as ours:
            given, archive, stdout, stderr = (Path(ours, name) for name in ("stdin", "files.tar", "stdout", "stderr"))
            given.write_bytes(stdin)
            archive.write_bytes(packed)
            findings: list[Finding] = []
            with places().one():
                began = time.monotonic()
                code = self._wait(command, limits, folder, env or {}, (given, archive, stdout, stderr), findings)
                seconds = time.monotonic() - began
            said = []
            for path in (stdout, stderr):
                with path.open("rb") as file:
                    said.append(file.read(limits.output_bytes))
                if path.stat().st_size > limits.output_bytes and "output" not in findings:
                    findings.append("output")
            if code == -signal.SIGXFSZ:
                findings.append("disk")
            left = self._left(folder, limits, findings) if keep and not findings else {}
        return BoxRun(None if findings else code, said[0], said[1], tuple(findings), seconds, left)

    def _wait(
        self,
        command: Sequence[str],
        limits: Limits,
        folder: str,
        env: Mapping[str, str],
        paths: tuple[Path, Path, Path, Path],
        findings: list[Finding],
    ) -> int:
        given, archive, stdout, stderr = paths
        script = RUN.format(
            file=limits.disk_mb << 10, memory=limits.memory_mb * 4 << 10, seconds=int(limits.seconds) + 1
        )  # fmt: skip
        path = f"/usr/local/bin:/usr/bin:/bin:{Path(sys.executable).parent}"
        variables = {"PATH": path, "HOME": folder, "LANG": "C.UTF-8", **env, "STDIN_OF_RUN": str(given)}
        with archive.open("rb") as inside, stdout.open("wb") as out, stderr.open("wb") as err:
            try:
                process = subprocess.Popen(
                    ["/bin/bash", "-c", script, "bash", *command],
                    stdin=inside, stdout=out, stderr=err, cwd=folder, env=variables, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise InfrastructureError(f"{command[0]} did not start: {error}") from error
            try:
                code = process.wait(limits.seconds)
            except subprocess.TimeoutExpired:
                findings.append("timeout")
                code = -signal.SIGKILL
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return code

    def _left(self, folder: str, limits: Limits, findings: list[Finding]) -> dict[str, BoxFile]:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return files_left(descriptor, limits)
        except Unreadable as error:
            findings.append(error.finding)
            return {}
        finally:
            os.close(descriptor)
