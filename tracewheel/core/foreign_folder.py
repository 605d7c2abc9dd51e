"""Folders and files that someone else made: regular files inside the folder alone, of bounded size and number.

A path is opened part by part, without following a link and without waiting for a pipe, and what was opened is checked. So a
folder that changes meanwhile gains nothing. Only the path that the user names may itself be a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from tracewheel.core.errors import DataError

MOST_BYTES = 16 << 20  # of a file, or of all files that are read together
MOST_TEXT = 1 << 20
MOST_NAMED = 1 << 30  # of a file that the user names
MOST_ENTRIES = 10_000
LONGEST_PATH = 1024
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class TooLarge(DataError):
    """A file is larger than allowed."""


class ForeignFile(NamedTuple):
    """What a file holds, and whether its owner may run it."""

    content: bytes
    executable: bool


@dataclass(frozen=True)
class ForeignFolder:
    """A folder that someone else made.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = Path(place, "a").write_text("hello")
    ...     ForeignFolder(Path(place)).text("a")
    'hello'

    Attributes:
        root: The folder that the user named.
        inside: The path of this one in it; "" for itself.
    """

    root: Path
    inside: str = ""

    @property
    def path(self) -> Path:
        """Where it lies, for messages."""
        return self.root / self.inside

    def sub(self, name: str) -> ForeignFolder:
        """A folder in it."""
        return ForeignFolder(self.root, str(PurePosixPath(self.inside, name)))

    def holds(self, name: str) -> bool:
        """Whether there is anything of this name, be it a link.

        Raises:
            DataError: it would lie behind a link, or in what is no folder.
        """
        *above, last = _parts(name)
        try:
            with self._folder(*above) as folder:
                os.stat(last, dir_fd=folder, follow_symlinks=False)
        except DataError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return False
            raise
        return True

    def read(self, name: str, most: int = MOST_BYTES) -> ForeignFile:
        """A file's content.

        Raises:
            DataError: it is missing, is no regular file or lies behind a link, or is larger than `most` bytes.
        """
        with self.opened(name, most) as file:
            size = os.fstat(file.fileno())
            content = file.read(size.st_size + 1)
            if len(content) > size.st_size:
                raise DataError(f"{name} grows while it is read")
            return ForeignFile(content, bool(size.st_mode & stat.S_IXUSR))

    def text(self, name: str, most: int = MOST_TEXT) -> str:
        r"""A file's text, whose lines end with "\n".

        Raises:
            DataError: as `read`, or it is no UTF-8.
        """
        try:
            return self.read(name, most).content.decode().replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{name} is no UTF-8: {error.reason} at byte {error.start}") from None

    def listing(self, most: int = MOST_ENTRIES) -> dict[str, bool]:
        """The paths of all that lies in it, sorted, and which are folders; links are listed, and none is followed.

        Raises:
            DataError: there are more than `most`, or they lie too deep.
        """
        found: dict[str, bool] = {}
        waiting = [""]
        while waiting:
            above = waiting.pop()
            with self._folder(*_parts(above)) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    name = f"{above}/{entry.name}" if above else entry.name
                    if len(found) == most or len(name) > LONGEST_PATH:
                        raise DataError(f"it holds more than {most} files, or paths of more than {LONGEST_PATH} characters")
                    found[name] = entry.is_dir(follow_symlinks=False)
                    waiting += [name] if found[name] else []
        return dict(sorted(found.items()))

    def files(self, most: int = MOST_BYTES) -> dict[str, ForeignFile]:
        """All files in it by path.

        Raises:
            DataError: they are larger than `most` bytes together, or one is no regular file.
        """
        found, left = {}, most
        for name in (name for name, is_folder in self.listing().items() if not is_folder):
            try:
                found[name] = self.read(name, left)
            except TooLarge:
                raise TooLarge(f"its files take more than {most >> 20} MB") from None
            left -= len(found[name].content)
        return found

    @contextlib.contextmanager
    def opened(self, name: str, most: int) -> Iterator[BinaryIO]:
        """A regular file of at most `most` bytes, to read.

        Raises:
            DataError: as `read`.
        """
        *above, last = _parts(name)
        with self._folder(*above) as folder:
            try:
                descriptor = os.open(last, FILE, dir_fd=folder)
            except OSError as error:
                raise DataError(f"{name}{_why(error)}") from error
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise DataError(f"{name} is no regular file")
            if about.st_size > most:
                raise TooLarge(f"{name} has {about.st_size} bytes, more than the {most} that are read")
            with open(descriptor, "rb", closefd=False) as file:
                yield file
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _folder(self, *parts: str) -> Iterator[int]:
        """The descriptor of a folder in it."""
        way = ""
        try:
            descriptor = os.open(self.root, FOLDER)
            try:
                for part in (*_parts(self.inside), *parts):
                    way = f"{way}/{part}"
                    lower = os.open(part, FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
                    os.close(descriptor)
                    descriptor = lower
                yield descriptor
            finally:
                os.close(descriptor)
        except OSError as error:
            raise DataError(f"{way.strip('/') or self.root}{_why(error)}") from error


def read_file(path: Path, most: int = MOST_NAMED) -> bytes:
    """The content of a file that the user named, be it a link or a pipe.

    Raises:
        DataError: it cannot be read, or is larger than `most` bytes.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size or most
            content = b"" if size > most else file.read(size + 1)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    if size > most or len(content) > size:
        raise DataError(f"{path}: it is larger than {most >> 20} MB, or grows while it is read")
    return content


def read_text(path: Path) -> str:
    """The text of a file that the user named, with the ends of lines as they are.

    Raises:
        DataError: as `read_file`, or it is no UTF-8.
    """
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no UTF-8: {error.reason} at byte {error.start}") from None


def _parts(name: str) -> tuple[str, ...]:
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise DataError(f"{name!r} leads out of its folder")
    return parts


def _why(error: OSError) -> str:
    links = {errno.ELOOP: "a link, which is not followed", errno.ENOTDIR: "no folder, or a link, which is not followed"}
    return f" is {links[error.errno]}" if error.errno in links else f": {error.strerror or error}"
