"""The sandbox of a config, which is tested before it runs anything."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import ClassVar

from tracewheel import ConfigError
from tracewheel_worlds.sandbox.base import BoxFile, BoxRun, Limits, Sandbox, SandboxConfig
from tracewheel_worlds.sandbox.bubblewrap import Bubblewrap, known_hole
from tracewheel_worlds.sandbox.docker import Docker
from tracewheel_worlds.sandbox.self_test import self_test
from tracewheel_worlds.sandbox.unsafe_local import UnsafeLocal

logger = logging.getLogger(__name__)
UNSAFE_LOCAL = "TRACEWHEEL_UNSAFE_LOCAL"  # the variable that `--unsafe-local` sets

HOW = (
    "install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap), or name `docker` or "
    "`gvisor` as the sandbox's kind; --unsafe-local with the kind `unsafe_local` runs it without isolation"
)


def make_sandbox(config: SandboxConfig | None = None) -> Sandbox:
    """The sandbox that a config asks for. Its first run in this process is preceded by its self-test.

    Raises:
        ConfigError: there is no isolation on this machine, or `unsafe_local` was not allowed; the message says what to do.
    """
    config = config or SandboxConfig()
    if config.kind == "unsafe_local":
        if os.environ.get(UNSAFE_LOCAL) != "1":
            raise ConfigError(
                "sandbox.kind unsafe_local: code of an agent would run as your own user, with all that it may read, write and "
                "reach; say --unsafe-local if that is meant"
            )
        logger.warning("sandbox: unsafe_local runs code of agents as this user, without isolation")
        return UnsafeLocal(config.limits)
    sandbox = untested_sandbox(config)
    return Checked(sandbox, sandbox.made_of)


def untested_sandbox(config: SandboxConfig) -> Bubblewrap | Docker:
    """A sandbox with isolation, as it is.

    Raises:
        ConfigError: there is none on this machine.
    """
    if config.kind in ("docker", "gvisor"):
        program = shutil.which("docker")
        if program is None:
            raise ConfigError(f"sandbox.kind {config.kind}: there is no docker on the PATH: install Docker, or use bubblewrap")
        return Docker(program, config.image, config.limits, runtime="runsc" if config.kind == "gvisor" else None)
    program = shutil.which("bwrap")
    if program is None:
        raise ConfigError(f"code of an agent runs only in a sandbox, and bwrap is not on the PATH: {HOW}")
    return Bubblewrap(program, config.limits, config.folders)


class Checked:
    """A sandbox that runs nothing before its self-test has passed, once in a process for boxes that are made alike.

    Args:
        sandbox: What runs.
        made_of: What boxes are made of: program, image, folders. Limits are no part of it: each run has its own.
    """

    _passed: ClassVar[set[tuple[str, ...]]] = set()
    _lock = threading.Lock()

    def __init__(self, sandbox: Sandbox, made_of: tuple[str, ...] = ()) -> None:
        self.kind = sandbox.kind
        self._sandbox = sandbox
        self._alike = (self.kind, *made_of)

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
        if self._alike not in self._passed:
            self._test()
        return self._sandbox.run(command, files, stdin, limits, keep, env, counted)

    def _test(self) -> None:
        with self._lock:
            if self._alike in self._passed:
                return
            if isinstance(self._sandbox, Bubblewrap):
                _warn_of_old_release(self._sandbox.program)
            # A second time, since a machine that is busy enough may miss what it should see.
            broken = _broken(self._sandbox) and _broken(self._sandbox)
            if broken:
                raise ConfigError(
                    f"the sandbox {self.kind} does not keep its promises on this machine, so nothing is run in it "
                    f"(`tracewheel sandbox` shows all): {'; '.join(broken)}"
                )
            self._passed.add(self._alike)


@cache
def _warn_of_old_release(program: str) -> None:
    if hole := known_hole(program):
        logger.warning("sandbox: %s", hole)


def _broken(sandbox: Sandbox) -> list[str]:
    return [f"{promise.name}: {promise.seen}" for promise in self_test(sandbox) if not promise.holds]
