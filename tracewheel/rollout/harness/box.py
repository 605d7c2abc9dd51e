"""Boxes for programs: the machine's system and the program read-only, the episode's folder, no network but the gateway."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from tracewheel.config import HarnessConfig
from tracewheel.core.box_calls import seccomp_program
from tracewheel.core.box_folders import hidden_folders, system_view
from tracewheel.rollout.harness import boxed
from tracewheel.rollout.harness.launcher import FILTER

logger = logging.getLogger(__name__)
TASKS = 1024  # processes and threads of a box; a program on Node has about thirty
MEGABYTES = 4096  # of memory, where `memory_mb` says nothing
SCRATCH = str(1 << 29)  # bytes of each folder in memory
USER = "1000"
DOOR, SUPERVISOR = "/run/gateway", "/run/boxed.py"
FILES = {
    "passwd": f"agent:x:{USER}:{USER}::/tmp:/bin/sh\n",
    "group": f"agent:x:{USER}:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
# Clients read certificates, whomever they talk to; keys lie beside them.
CERTIFICATES = (
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates",
)
PARTS = ("bin", "lib", "lib64", "libexec")  # of a folder in whose `bin` a program lies
SHEBANG = re.compile(rb"#!\s*(\S+)(?:[ \t]+(\S+))?")
LONGEST_CHAIN = 8
HOW = "install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap), or set rollout.harness.sandbox to none"


class Box:
    """Puts the programs of a pool into boxes.

    Args:
        config: How programs are started.
        command: The program and its arguments, found.
        cwd: Its folder; None for an episode's own, or ours.
        env: Its variables: where it finds other programs, and packages of Python.
        folder: A folder of the pool's own, which no program sees.
    """

    def __init__(
        self, config: HarnessConfig, command: Sequence[str], cwd: str | None, env: Mapping[str, str], folder: Path
    ) -> None:
        path = env.get("PATH", os.defpath)
        packages = [name for name in env.get("PYTHONPATH", "").split(os.pathsep) if name.endswith("/site-packages")]
        self._memory = config.memory_mb or MEGABYTES
        self._door = folder / "gateway"
        self.filter = ""
        if program := seccomp_program():
            self.filter = str(folder / "filter")
            Path(self.filter).write_bytes(program)
        for name, text in FILES.items():
            (folder / name).write_text(text, encoding="utf-8")
        roots = _outermost([*_roots(command[0], path), *_roots(_interpreter(), path), *packages])
        self._line, self._cwd = _system(self.filter), cwd or str(Path.cwd())
        if not cwd and not any(self._cwd == root or self._cwd.startswith(f"{root}/") for root in ("/usr", "/etc", *roots)):
            self._line += ["--size", SCRATCH, "--tmpfs", self._cwd]
        for root in roots:
            self._line += _read_only(root)
        for hidden in hidden_folders(also=roots):
            self._line += ["--tmpfs", hidden, "--remount-ro", hidden]
        for name in FILES:
            self._line += ["--ro-bind", str(folder / name), f"/etc/{name}"]
        if cwd:
            self._line += _read_only(cwd)
        start = Path(self._cwd)
        for named in config.code or [word for word in command[1:] if (start / word).is_file()]:
            self._line += _read_only(os.path.normpath(start / named))

    def listen(self) -> socket.socket:
        """The socket by which boxes reach the gateway."""
        door = socket.socket(socket.AF_UNIX)
        descriptor = os.open(self._door.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            door.bind(f"/proc/self/fd/{descriptor}/{self._door.name}")  # a path of a socket is short
        finally:
            os.close(descriptor)
        door.listen(1024)
        return door

    def command(self, command: Sequence[str], folder: Path, cwd: str | None, port: int) -> list[str]:
        """What starts a command in a box that sees the folder of its episode and the gateway on `port`."""
        line = [*self._line, "--bind", str(folder), str(folder), "--ro-bind", str(self._door), DOOR]
        line += ["--remount-ro", "/proc", "--remount-ro", "/", "--chdir", cwd or self._cwd]
        return [*line, "--", *_supervised(port, self._memory), *command]


def box_of(config: HarnessConfig, command: Sequence[str], cwd: str | None, env: Mapping[str, str], folder: Path) -> Box | None:
    """Boxes for programs, see `Box`; None where the profile or the machine has none."""
    if config.sandbox == "none":
        return None
    why = "a program with preload is a fork of ours" if config.preload else _lacks()
    if why:
        _say_once(f"rollout.harness.sandbox: programs run as this user, without a box: {why}")
        return None
    return Box(config, command, cwd, env, folder)


@cache
def _say_once(text: str) -> None:
    logger.warning(text)


@cache
def _lacks() -> str:
    """Why this machine has no boxes; "" where it has."""
    if sys.platform != "linux" or shutil.which("bwrap") is None:
        return f"bwrap is not on the PATH: {HOW}"
    line = [
        *_system(""),
        *(word for root in _outermost(_roots(_interpreter(), "")) for word in _read_only(root)),
        "--",
        *_supervised(0, MEGABYTES),
        "/bin/true",
    ]
    tried = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    return f"bubblewrap makes none here ({tried.stderr.strip()[-200:]}): {HOW}" if tried.returncode else ""


def _system(with_filter: str) -> list[str]:
    """The options that all boxes have in common."""
    line = [str(shutil.which("bwrap")), "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
    line += ["--die-with-parent", "--new-session", "--uid", USER, "--gid", USER, "--hostname", "box", *system_view()]
    for folder in ("/tmp", "/dev/shm"):
        line += ["--size", SCRATCH, "--tmpfs", folder]
    for folder in CERTIFICATES:
        line += ["--ro-bind-try", folder, folder]
    line += ["--ro-bind", str(Path(boxed.__file__).resolve()), SUPERVISOR]
    return [*line, "--seccomp", str(FILTER)] if with_filter else line


def _interpreter() -> str:
    """Our own interpreter, without a virtual environment around it."""
    return os.path.realpath(sys.executable)


def _supervised(port: int, megabytes: int) -> list[str]:
    return [_interpreter(), "-I", "-S", SUPERVISOR, str(port), DOOR, str(megabytes), str(TASKS)]


def _read_only(path: str) -> list[str]:
    return ["--ro-bind-try", path, path]


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths that lie in no other one."""
    found = sorted(set(paths))
    return tuple(path for path in found if not any(path.startswith(f"{other}/") for other in found))


def _roots(program: str, path: str, depth: int = 0) -> Iterator[str]:
    """What a program is made of: itself, where it is installed, and the interpreter that it names."""
    if depth > LONGEST_CHAIN or program.startswith(("/usr/", "/bin/")):
        return
    file = Path(program)
    yield program
    yield from _installation(file)
    if file.is_symlink():
        yield from _roots(os.path.normpath(file.parent / os.readlink(file)), path, depth + 1)
        return
    try:
        with file.open("rb") as opened:
            found = SHEBANG.match(opened.read(512))
    except OSError:
        return
    if found:
        named, word = found[1].decode(errors="replace"), (found[2] or b"").decode(errors="replace")
        named = shutil.which(word, path=path) or "" if named.endswith("/env") and word else named
        yield from _roots(named, path, depth + 1)


def _installation(file: Path) -> Iterator[str]:
    """The folders that a program was installed into."""
    if "node_modules" in file.parts:
        yield str(Path(*file.parts[: file.parts.index("node_modules") + 1]))
    elif file.parent.name == "bin" and file.parents[1] != Path.home():
        prefix = file.parents[1]
        settings = prefix / "pyvenv.cfg"
        if not settings.is_file():
            yield from (str(prefix / part) for part in PARTS if (prefix / part).is_dir())
            return
        yield str(prefix)
        if home := re.search(r"^home\s*=\s*(.+?)\s*$", settings.read_text(encoding="utf-8"), re.MULTILINE):
            yield from _installation(Path(home[1]) / "python")
