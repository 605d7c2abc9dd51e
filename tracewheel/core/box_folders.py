"""What of this machine's system a box sees, read-only: its programs and libraries, and nothing of ours."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import tracewheel

USR = "/usr"
# Links into /usr on most systems; folders of their own on others.
TOP_FOLDERS = ("/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32")
SETTINGS = ("/etc/alternatives", "/etc/ld.so.cache")
# Places for programs of this machine's owner.
OWN = ("/usr/src", "/usr/local/src", "/usr/local/etc")
# What the kernel tells every user about the machine, and a box may not read. Bubblewrap itself makes /proc/sys, sysrq-trigger,
# irq and bus read-only.
MASKED = ("/proc/cmdline", "/proc/keys", "/proc/key-users", "/proc/modules", "/proc/sched_debug")
PACKAGES = ("tracewheel", "tasks", "flows")


def system_view(hidden: Iterable[str] = ()) -> list[str]:
    """Options of bubblewrap for the system as a box sees it: its folders, those that are hidden empty, /proc and /dev."""
    options = [*_bound_folders()]
    for folder in hidden:
        options += ["--tmpfs", folder, "--remount-ro", folder]
    options += ["--proc", "/proc", "--dev", "/dev"]
    for path in MASKED:
        options += ["--ro-bind", "/dev/null", path] if os.path.exists(path) else []
    return options


@cache
def _bound_folders() -> tuple[str, ...]:
    options = ["--ro-bind", USR, USR]
    for folder in TOP_FOLDERS:
        if os.path.islink(folder):
            options += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            options += ["--ro-bind", folder, folder]
    for path in SETTINGS:
        if os.path.exists(path):
            options += ["--ro-bind", os.path.realpath(path), path]
    prefix = python_prefix()
    if prefix:
        options += ["--ro-bind", prefix, prefix]
    return tuple(options)


@cache
def python_prefix() -> str:
    """Where our own interpreter lies, for a system that has none under /usr; empty for all others."""
    if any(os.path.exists(f"{folder}/python3") for folder in ("/usr/local/bin", "/usr/bin", "/bin")):
        return ""
    return os.path.realpath(sys.base_prefix)


@cache
def hidden_folders(wheel: str = "", also: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Folders under what a box sees that it sees empty.

    Environments make tasks and their solutions from seeds, so our own code would tell an agent the answers: where it is
    installed beside a box's Python, or lies under what is bound, it is hidden, and so is the folder we were started in.

    Args:
        wheel: The package of a wheel that asks, as its `__path__` has it.
        also: Folders that the box sees beside the system's.
    """
    packages = [Path(tracewheel.__file__).resolve().parent, *([Path(wheel).resolve()] if wheel else [])]
    folders = {Path(folder) for folder in OWN} | {Path.cwd()}
    for package in packages:
        root = package.parent
        installed = root.name in ("site-packages", "dist-packages")
        folders |= {root / name for name in (*PACKAGES, package.name)} if installed else {root}
    bound = {USR, python_prefix() or USR}
    for folder in also:
        for name in ("tracewheel*", *PACKAGES[1:]):
            folders |= {path for at in ("", "lib*/") for path in Path(folder).glob(f"{at}*/site-packages/{name}")}
    bound |= set(also)
    return tuple(
        str(folder)
        for folder in sorted(folders)
        if folder.is_dir()
        and any(folder.iterdir())
        and any(str(folder).startswith(f"{top}/") for top in bound)
        and not _is_system(folder)
    )


def _is_system(folder: Path) -> bool:
    """Whether programs of the box lie in a folder."""
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
    parts = [Path(python).resolve(), Path("/usr/bin"), Path("/usr/lib"), Path("/usr/local/bin"), Path("/usr/local/lib")]
    return any(part == folder or folder in part.parents for part in parts)
