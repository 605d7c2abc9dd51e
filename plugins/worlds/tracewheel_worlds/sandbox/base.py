"""The protocol of sandboxes: files and a command in, output and files out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol

from pydantic import AfterValidator, ValidationError

from tracewheel import Count, DataError, Positive, Strict

# What a run did that an honest one does not: took too long, wrote too much, used too much memory, too many processes or
# too much disk, tried to get out, called a port where nothing of its own listens, or left files that cannot be read back.
Finding = Literal["timeout", "output", "memory", "processes", "disk", "escape", "network", "destroyed"]
WORKING_FOLDER = "/box"


class Limits(Strict):
    """What one run may use.

    `seconds` is wall clock and CPU time of each process; `memory_mb` and `processes` (threads count) are those of all
    processes together; `disk_mb` and `files` are all that it may write; `output_bytes` is what is kept of each of stdout and
    stderr: a run that writes more is killed.
    """

    seconds: Positive = 10.0
    memory_mb: Count = 512
    processes: Count = 64
    disk_mb: Count = 64
    files: Count = 4096
    output_bytes: Count = 65536


SYSTEM = ("bin", "box", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "tmp", "usr")


def _top_folder(name: str) -> str:
    if name in SYSTEM or not re.fullmatch(r"\w[\w.-]*", name, re.ASCII):
        raise ValueError(f"{name!r} is no name of a folder at the root that is not the system's own")
    return name


class SandboxConfig(Strict):
    """How code of agents is run: `auto` takes bubblewrap and refuses without it. `unsafe_local` runs it as our own user.

    Arguments of environments and verifiers that run code hold one of these. `image` is that of `docker` and `gvisor`.
    `folders` are names such as `app`, each for a folder `/app` that is the box's folder `/box/app`; only bubblewrap has them.
    """

    kind: Literal["auto", "bubblewrap", "docker", "gvisor", "unsafe_local"] = "auto"
    limits: Limits = Limits()
    image: str = "python:3.11-slim"
    folders: tuple[Annotated[str, AfterValidator(_top_folder)], ...] = ()

    def with_folders(self, names: Sequence[str]) -> SandboxConfig:
        """The same with folders that a task names; `model_copy` would not check them.

        Raises:
            DataError: one is no name of a folder at the root, or the system's own.
        """
        try:
            return SandboxConfig(**{**dict(self), "folders": tuple(names)})
        except ValidationError as error:
            raise DataError(f"the task's folders: {error.errors()[0]['msg']}") from error


@dataclass(frozen=True)
class BoxFile:
    """A file of a box: its content and permissions, or the target of a symbolic link, or an empty folder."""

    content: bytes = b""
    mode: int = 0o644
    link: str = ""
    folder: bool = False


@dataclass(frozen=True)
class BoxRun:
    """What came of a command.

    Attributes:
        exit_code: The command's exit status; negative for a signal, None where it was killed for a limit.
        stdout: What it wrote, cut to the limit.
        stderr: The same for errors.
        findings: What it did that an honest run does not; empty for most.
        seconds: How long the command took, wall clock.
        files: The files in the box at the end by their relative path, where they were asked for; none of a run that was killed.
        writes: How often each file of the counted folder was opened to be written, or came into it by another way;
            "" stands for more than the kernel could tell.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    files: Mapping[str, BoxFile] = field(default_factory=dict)
    writes: Mapping[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Its stdout and then its stderr as text, whatever bytes it wrote."""
        return (self.stdout + self.stderr).decode(errors="replace")


class Sandbox(Protocol):
    """Runs commands, each in a box of its own that begins with the given files and is gone afterwards.

    In a box the working folder is `/box`, the only place that may be written beside `/tmp` and `/dev/shm`. There is no network,
    no file of the user's, no variable of our environment, and no process but its own. Safe to use from several threads.
    """

    kind: str

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
        """Run a command in a fresh box.

        Args:
            command: Program and arguments, found on the box's PATH (`/usr/local/bin:/usr/bin:/bin`); `python3` is there.
            files: What lies in `/box` at the start, by relative path.
            stdin: What the command may read.
            limits: Other limits than the sandbox's own.
            keep: Whether to return the files of `/box` at the end. They are what the agent's program left: data, never trusted.
            env: Variables for the command, beside PATH, HOME and LANG.
            counted: A folder, by its relative path; how often its files were written is counted, by bubblewrap alone.

        Raises:
            InfrastructureError: the box could not be made, or could not be watched.
            ValueError: a path leads out of the box, lies in a file or a link, or there is more than the limits allow.
        """
        ...
