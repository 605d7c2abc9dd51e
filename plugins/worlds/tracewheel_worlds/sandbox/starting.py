"""Starts a box up to where its command begins: a shell in it waits for its run, in memory, and for a look at the box."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
# Waits for its run, unpacks the files, sets the limits (within the box, so that only its own processes count), and waits for a
# look at the box. Then it becomes the command: nothing of ours is left in the box that a command could turn against us. It is
# bash, because descriptors of two digits are beyond a plain shell.
RUN = (
    "talk=$1 order=$2 files=$3; "
    "echo >&$talk; read -r -t 300 -u $talk || exit 125; mapfile -d '' -t -u $order words; "
    'if [ "${words[0]}" ]; then tar -xpf - -C /box <&$files || exit 125; fi; '
    "ulimit -c 0 -n 256 -i 1024 -f ${words[1]} -v ${words[2]} -t ${words[3]} -u ${words[4]} || exit 125; "
    "echo >&$talk; read -r -t 300 -u $talk || exit 125; exec {talk}>&- {order}<&- {files}<&-; "
    'exec -- "${words[@]:5}"'
)


class Box(NamedTuple):
    """Descriptors of a box that waits for its run.

    Attributes:
        process: bubblewrap.
        talk: Where the box writes a line when it is ready, and waits for one: for its run first, then for its command's begin.
        status: What bubblewrap says about it (`--json-status-fd`), up to its end.
        stdout: What the command says.
        stderr: The same for errors.
        stdin: Memory to fill with what the command reads.
        order: Memory to fill with words that end in zero bytes: whether there are files, four limits, and the command.
        files: Memory to fill with an archive.
    """

    process: int
    talk: int
    status: int
    stdout: int
    stderr: int
    stdin: int
    order: int
    files: int

    def close(self) -> None:
        """Close all of them, which ends a box that waits."""
        for descriptor in self:
            os.close(descriptor)


def start_box(
    line: Sequence[str | int], texts: Sequence[bytes], variables: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], Box]:
    """Start a box that waits for its run.

    Args:
        line: The command line of bubblewrap; a number in it stands for the descriptor of a text.
        texts: Contents of its files and its filter of system calls.
        variables: Its environment.

    Raises:
        OSError: bubblewrap did not start.
    """
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:

        def kept(descriptor: int, by: contextlib.ExitStack) -> int:
            by.callback(os.close, descriptor)
            return descriptor

        here, there = (end.detach() for end in socket.socketpair())
        talk, far_talk = kept(here, ours), kept(there, theirs)
        (status, tells), (stdout, says), (stderr, complains) = (
            (kept(here, ours), kept(there, theirs)) for here, there in (os.pipe() for _ in range(3))
        )
        stdin, order, files = (kept(memory(), ours) for _ in range(3))
        held = [kept(memory(), theirs) for _ in texts]
        for descriptor, text in zip(held, texts, strict=True):
            fill(descriptor, text)
        command = [part if isinstance(part, str) else str(held[part]) for part in line]
        command += ["--json-status-fd", str(tells), "--", "/bin/bash", "-c", RUN, "bash", str(far_talk), str(order), str(files)]
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=says,
            stderr=complains,
            env=dict(variables),
            cwd="/",
            pass_fds=[far_talk, tells, order, files, *held],
            start_new_session=True,
        )
        box = Box(os.pidfd_open(process.pid), talk, status, stdout, stderr, stdin, order, files)
        ours.pop_all()
        return process, box


def memory() -> int:
    """A descriptor of memory, to be filled once."""
    return os.memfd_create("box", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def fill(descriptor: int, content: bytes) -> None:
    """Fill memory and seal it, so that nobody can change it."""
    written = 0
    while written < len(content):
        written += os.pwrite(descriptor, memoryview(content)[written:], written)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
