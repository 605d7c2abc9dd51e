"""Files of a box as a tar archive, and back: archives that come back are of anyone's making."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath

from tracewheel_worlds.sandbox.base import BoxFile, Limits

BLOCK = 4096


def packed_files(files: Mapping[str, BoxFile | bytes], limits: Limits) -> bytes:
    """Files as a tar archive.

    Raises:
        ValueError: a path leads out of the folder, lies in a file or a link, or there is more than the limits allow.
    """
    entries = {path: file if isinstance(file, BoxFile) else BoxFile(file) for path, file in files.items()}
    for path in entries:
        _check_path(path, entries)
    size = sum(-(-len(entry.content) // BLOCK) * BLOCK for entry in entries.values())
    folders = {parent for path in entries for parent in PurePosixPath(path).parents}
    if len(entries) + len(folders) > limits.files + 1 or size > limits.disk_mb << 20:
        raise ValueError(
            f"{len(entries)} files of {size} bytes are more than a box may hold ({limits.files} files, {limits.disk_mb} MB)"
        )
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, entry in entries.items():
            member = tarfile.TarInfo(path)
            member.mode = entry.mode & 0o777
            if entry.link:
                member.type, member.linkname = tarfile.SYMTYPE, entry.link
            elif entry.folder:
                member.type = tarfile.DIRTYPE
            else:
                member.size = len(entry.content)
            archive.addfile(member, io.BytesIO(entry.content))
    return packed.getvalue()


def _check_path(path: str, entries: Mapping[str, BoxFile]) -> None:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\0" in path or str(pure) != path:
        raise ValueError(f"{path!r} leads out of the box or is no plain relative path")
    for parent in list(pure.parents)[:-1]:
        above = entries.get(str(parent))
        if above is not None and not above.folder:
            raise ValueError(f"{path!r} lies in {str(parent)!r}, which is a file or a link")


def unpacked_files(packed: bytes, limits: Limits) -> dict[str, BoxFile] | None:
    """The files, links and empty folders of a tar archive of anyone's making; nothing is written anywhere.

    Devices, pipes and hard links are left out; compressed archives are not read. A claimed size beyond the archive's end makes
    it broken, and a sparse file counts with all its zeros.

    Returns:
        By path, in order; None where the archive is broken, holds a path that leads out, or more than the limits allow.
    """
    files: dict[str, BoxFile] = {}
    folders: set[str] = set()
    room = limits.disk_mb << 20
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
            for seen, member in enumerate(archive):
                pure = PurePosixPath(member.name)
                room -= max(member.size, 0)
                if seen > limits.files or room < 0 or member.size < 0 or pure.is_absolute() or ".." in pure.parts:
                    return None
                path = str(pure)
                path.encode()
                if member.issym():
                    files[path] = BoxFile(mode=0o777, link=member.linkname)
                elif member.isdir() and pure.parts:
                    folders.add(path)
                elif member.isfile() and (stream := archive.extractfile(member)) is not None:
                    content = stream.read()
                    if len(content) != member.size:
                        return None
                    files[path] = BoxFile(content, member.mode & 0o777)
    except (tarfile.TarError, ValueError, KeyError, OSError, EOFError, OverflowError, RecursionError):
        return None
    filled = {str(parent) for path in [*files, *folders] for parent in PurePosixPath(path).parents}
    files |= {path: BoxFile(mode=0o755, folder=True) for path in folders - filled - set(files)}
    return dict(sorted(files.items()))
