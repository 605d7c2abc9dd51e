"""What a finished box left in its folder, read over the folder's descriptor: no link is followed, nothing written to disk."""

from __future__ import annotations

import os
import stat

from tracewheel_worlds.sandbox.base import BoxFile, Finding, Limits

DEEPEST = 64


class Unreadable(Exception):
    """What a box left is no set of files that fits the limits; `finding` says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding


def files_left(folder: int, limits: Limits) -> dict[str, BoxFile]:
    """The files, links and empty folders of a box by relative path; pipes, sockets and devices are left out.

    Args:
        folder: Descriptor of the box's folder (`O_PATH` is enough). No process of the box may be alive.
        limits: `files` and `disk_mb` bound what is read; a sparse file counts with its zeros, a hard link with its content.

    Raises:
        Unreadable: more than the limits allow, a path too deep, or a name that is not UTF-8.
    """
    left: dict[str, BoxFile] = {}
    top = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        _read_folder(top, "", left, [limits.files, limits.disk_mb << 20], 0)
    finally:
        os.close(top)
    return dict(sorted(left.items()))


def _read_folder(folder: int, prefix: str, left: dict[str, BoxFile], room: list[int], depth: int) -> None:
    if depth > DEEPEST:
        raise Unreadable("destroyed")
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            path = prefix + name
            room[0] -= 1
            if room[0] < 0:
                raise Unreadable("disk")
            try:
                path.encode()
            except UnicodeEncodeError:
                raise Unreadable("destroyed") from None
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                left[path] = BoxFile(mode=0o777, link=os.readlink(name, dir_fd=folder).encode(errors="replace").decode())
            elif stat.S_ISREG(found.st_mode):
                left[path] = _read_file(folder, name, found, room)
            elif stat.S_ISDIR(found.st_mode):
                before = len(left)
                inner = _open(folder, name, found, os.O_DIRECTORY)
                try:
                    _read_folder(inner, f"{path}/", left, room, depth + 1)
                finally:
                    os.close(inner)
                if len(left) == before:
                    left[path] = BoxFile(mode=stat.S_IMODE(found.st_mode) & 0o777, folder=True)


def _read_file(folder: int, name: str, found: os.stat_result, room: list[int]) -> BoxFile:
    room[1] -= found.st_size
    if room[1] < 0:
        raise Unreadable("disk")
    with os.fdopen(_open(folder, name, found, 0), "rb") as file:
        return BoxFile(file.read(found.st_size), stat.S_IMODE(found.st_mode) & 0o777)


def _open(folder: int, name: str, found: os.stat_result, flags: int) -> int:
    flags |= os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:  # its owner, whom we run as, forbade it to itself
        os.chmod(name, stat.S_IMODE(found.st_mode) | 0o700, dir_fd=folder)
        return os.open(name, flags, dir_fd=folder)
