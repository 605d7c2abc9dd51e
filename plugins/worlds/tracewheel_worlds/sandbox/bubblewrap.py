"""Boxes made by bubblewrap, without privileges: namespaces of their own, a read-only system and a small memory disk."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tracewheel import InfrastructureError, hidden_folders, said_version, seccomp_program, system_view
from tracewheel_worlds.sandbox.archives import packed_files
from tracewheel_worlds.sandbox.attendance import END_SECONDS, Given, attend
from tracewheel_worlds.sandbox.base import WORKING_FOLDER, BoxFile, BoxRun, Limits
from tracewheel_worlds.sandbox.places import places
from tracewheel_worlds.sandbox.starting import Box, start_box

PATH = "/usr/local/bin:/usr/bin:/bin"
OUR_PACKAGE = str(Path(__file__).resolve().parents[1])
NOBODY = 65534
USER = "1000"
VARIABLES = {"PATH": PATH, "HOME": WORKING_FOLDER, "LANG": "C.UTF-8"}
FILES = {
    "/etc/passwd": f"agent:x:{USER}:{USER}::{WORKING_FOLDER}:/bin/sh\n".encode(),
    "/etc/group": f"agent:x:{USER}:\n".encode(),
    "/etc/hosts": b"127.0.0.1 localhost\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
    "/etc/shadow": b"",
}
# Releases before 0.12.0 follow links that a boxed program made in a bind source (CVE-2026-87766).
SAFE_BIND_SOURCES = (0, 12, 0)
# Each process may reserve this many times the memory that it may use with all others together.
ADDRESS_SPACES = 4
# The kernel's out-of-memory killer takes boxes first. Written outside, as a box may not write to its `/proc`; where root writes
# it, it is the least that the box may have.
FIRST_OUT = ("/bin/sh", "-c", 'echo 1000 > /proc/self/oom_score_adj; exec "$@"', "sh")
SPARE_DISK = 4 << 20  # a box is found to have filled its disk before the kernel stops it


class Bubblewrap:
    """A sandbox on bubblewrap.

    >>> import shutil
    >>> program = shutil.which("bwrap")
    >>> run = Bubblewrap(program).run(["cat", "a"], {"a": b"hello"}) if program else BoxRun(0, b"hello", b"")
    >>> run.stdout
    b'hello'
    """

    kind = "bubblewrap"

    def __init__(self, program: str, limits: Limits | None = None, folders: Sequence[str] = ()) -> None:
        self.program = program
        self._folders = tuple(folders)
        self._limits = limits or Limits()

    @property
    def made_of(self) -> tuple[str, ...]:
        """What all its boxes have in common, whatever the limits of a run."""
        return (self.program, *self._folders)

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
        given = Given(_order(command, bool(files), limits, env or {}), stdin, packed_files(files, limits) if files else b"")
        with places().one():
            try:
                process, box = self._start(limits)
            except OSError as error:
                raise InfrastructureError(f"bubblewrap did not start: {error}") from error
            try:
                return attend(box, given, limits, keep, counted)
            finally:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_SECONDS)

    def _start(self, limits: Limits) -> tuple[subprocess.Popen[bytes], Box]:
        line: list[str | int] = [*self._box(limits)]
        texts: list[bytes] = []
        for path, text in FILES.items():
            line += ["--perms", "0444", "--file", len(texts), path]
            texts.append(text)
        program = seccomp_program()
        if program:
            line += ["--seccomp", len(texts)]
            texts.append(program)
        # What a box writes to /proc is its rank for the out-of-memory killer, or another process's memory.
        line += ["--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORKING_FOLDER]
        return start_box(line, texts, VARIABLES)

    def _box(self, limits: Limits) -> list[str]:
        line = [
            *FIRST_OUT,
            *_as_nobody(),
            self.program,
            "--unshare-all",
            "--unshare-user",
            "--disable-userns",
            "--cap-drop",
            "ALL",
        ]
        line += ["--die-with-parent", "--new-session", "--uid", USER, "--gid", USER, "--hostname", "box"]
        line += system_view(hidden_folders(OUR_PACKAGE))
        size = str((limits.disk_mb << 20) + SPARE_DISK)
        for folder in ("/tmp", "/dev/shm", WORKING_FOLDER):
            line += ["--size", size, "--tmpfs", folder]
        for name in self._folders:
            line += ["--symlink", f"{WORKING_FOLDER}/{name}", f"/{name}"]
        return line


def about(program: str) -> str:
    """The version of bubblewrap, and what it means here."""
    return known_hole(program) or said_version(program) or "bubblewrap's version is unknown"


def known_hole(program: str) -> str:
    """What is known against an old release, with its version; "" for a later one, and where none is said."""
    said = said_version(program)
    numbers = tuple(int(number) for number in re.findall(r"\d+", said)[:3])
    if not numbers or numbers >= SAFE_BIND_SOURCES:
        return ""
    return (
        f"{said}: releases before 0.12.0 follow links in folders that they bind (CVE-2026-87766). The hole is of no use here, "
        "as no box binds a folder that a boxed program could write. To upgrade, take a later release from your distribution "
        "(apt-get install --only-upgrade bubblewrap) or https://github.com/containers/bubblewrap/releases, first on the PATH"
    )


@cache
def _as_nobody() -> tuple[str, ...]:
    """Gives up root's rights, which no limit of processes binds. Python can do so itself, but then copies our memory's map."""
    if os.geteuid() != 0:
        return ()
    program = shutil.which("setpriv")
    if program is None:
        raise InfrastructureError(
            "as root a box needs setpriv (Debian, Ubuntu: apt-get install util-linux), or run as another user"
        )
    return (program, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", "--")


def _order(command: Sequence[str], files: bool, limits: Limits, env: Mapping[str, str]) -> bytes:
    """What a box is told, as words that end in zero bytes.

    Raises:
        ValueError: a word holds a zero byte, or a variable has no name.
    """
    if env and command:
        if any(not name or "=" in name for name in env):
            raise ValueError("a variable of a box has a name without '='")
        # bash would keep some variables for itself. `env` would take a program whose name holds a '=' for one more of them.
        shell = ["/bin/bash", "-c", 'exec -- "$@"', "bash"] if "=" in command[0] else []
        command = ["/usr/bin/env", *(f"{name}={value}" for name, value in env.items()), *shell, *command]
    words = [
        "files" if files else "",
        str(limits.disk_mb << 10),
        str(limits.memory_mb * ADDRESS_SPACES << 10),
        str(int(limits.seconds) + 1),
        str(limits.processes),
        *command,
    ]
    if any("\0" in word for word in words):
        raise ValueError("an argument or a variable of a box holds a zero byte")
    return b"".join(os.fsencode(word) + b"\0" for word in words)
