"""Archives of anyone's making: what they hold is read as data or refused, and nothing is written to disk."""

import io
import os
import tarfile
import zlib

import pytest

from tracewheel_worlds.sandbox import BoxFile, Limits
from tracewheel_worlds.sandbox.archives import packed_files, unpacked_files

LIMITS = Limits(disk_mb=1, files=20)


def archive(*members, tail=b""):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, kind, content, more in members:
            member = tarfile.TarInfo(name)
            member.type, member.size = kind, len(content)
            for key, value in more.items():
                setattr(member, key, value)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue() + tail


def test_files_links_and_empty_folders_come_back_as_they_went():
    files = {
        "a": BoxFile(b"x" * 5000, 0o600),
        "d/l": BoxFile(mode=0o777, link="/etc/passwd"),
        "e": BoxFile(mode=0o755, folder=True),
    }
    assert unpacked_files(packed_files(files, LIMITS), LIMITS) == files


@pytest.mark.parametrize(
    "packed",
    [
        archive(("../a", tarfile.REGTYPE, b"x", {})),
        archive(("/etc/a", tarfile.REGTYPE, b"x", {})),
        archive(("d/../../a", tarfile.REGTYPE, b"x", {})),
        archive(*((str(n), tarfile.REGTYPE, b"", {}) for n in range(50))),
        archive(("a", tarfile.REGTYPE, bytes(1 << 20), {}), ("b", tarfile.REGTYPE, b"x" * 600, {})),
        archive(("a", tarfile.REGTYPE, b"x", {}))[:700],
        archive(("a", tarfile.REGTYPE, bytes(4096), {}))[:2048],
        archive(("a", tarfile.REGTYPE, b"", {"size": 0, "pax_headers": {"size": str(10 << 40)}})),
        archive(("a", tarfile.GNUTYPE_SPARSE, b"", {})),
        zlib.compress(archive(("a", tarfile.REGTYPE, bytes(1 << 24), {}))),
        b"no archive at all" * 100,
        os.urandom(4096),
    ],
    ids=["parent", "absolute", "parent within", "many", "too large", "no end", "claims more", "claims terabytes",
         "sparse", "compressed", "text", "noise"],
)  # fmt: skip
def test_a_hostile_archive_is_refused(packed):
    files = unpacked_files(packed, LIMITS)
    assert files is None or sum(len(file.content) for file in files.values()) == 0


def test_devices_pipes_and_hard_links_are_left_out():
    packed = archive(
        ("disk", tarfile.BLKTYPE, b"", {"devmajor": 254}),
        ("pipe", tarfile.FIFOTYPE, b"", {}),
        ("shadow", tarfile.LNKTYPE, b"", {"linkname": "/etc/shadow"}),
        ("link", tarfile.SYMTYPE, b"", {"linkname": "/etc/shadow"}),
        ("a", tarfile.REGTYPE, b"x", {"mode": 0o4755}),
    )
    assert unpacked_files(packed, LIMITS) == {"a": BoxFile(b"x", 0o755), "link": BoxFile(mode=0o777, link="/etc/shadow")}


@pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", "", ".", "a//b", "./a", "a\0b", "d/"])
def test_a_path_that_is_not_plainly_inside_is_refused(path):
    with pytest.raises(ValueError, match="leads out"):
        packed_files({path: b""}, LIMITS)


def test_more_than_a_box_holds_is_refused():
    for files in ({"a": bytes(2 << 20)}, {str(n): b"" for n in range(30)}, {f"{n}/a": b"" for n in range(15)}):
        with pytest.raises(ValueError, match="more than a box may hold"):
            packed_files(files, LIMITS)
