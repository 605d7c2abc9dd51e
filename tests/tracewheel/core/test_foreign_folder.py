"""Folders that someone else made: what leads out of them, and what has no end."""

import os
import socket

import pytest

from tracewheel.core.errors import DataError
from tracewheel.core.foreign_folder import ForeignFolder, read_file


@pytest.fixture
def folder(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    (outside / "key").write_text("PRIVATE")
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_text("one\r\ntwo")
    (folder / "sub" / "run").write_text("x")
    (folder / "sub" / "run").chmod(0o755)
    return folder


def test_files_are_read_with_their_mode_and_text_with_plain_ends_of_lines(folder):
    foreign = ForeignFolder(folder)
    assert foreign.text("a") == "one\ntwo"
    assert foreign.listing() == {"a": False, "sub": True, "sub/run": False}
    assert foreign.sub("sub").files() == {"run": (b"x", True)}
    assert (foreign.holds("sub/run"), foreign.holds("b"), foreign.holds("c/b")) == (True, False, False)
    (folder.parent / "named").symlink_to(folder)
    assert ForeignFolder(folder.parent / "named").text("a") == "one\ntwo", "the user's own link"


def test_what_is_no_regular_file_of_the_folder_is_refused_at_once(folder):
    (folder / "link").symlink_to("../outside/key")
    (folder / "inner").symlink_to("a")
    (folder / "far").symlink_to("../outside")
    (folder / "loop").symlink_to("loop")
    (folder / "zero").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    door = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(folder)  # the name of a socket is short
    door.bind("door")
    os.chdir(here)
    with (folder / "giant").open("wb") as file:
        file.truncate(8 << 30)
    foreign = ForeignFolder(folder)
    names = (
        "link",
        "inner",
        "far",
        "far/key",
        "loop",
        "zero",
        "pipe",
        "door",
        "giant",
        "sub",
        "none",
        "../outside/key",
        "/etc/passwd",
    )
    for name in names:
        with pytest.raises(DataError, match=name.partition("/")[0]):
            foreign.read(name)
    with pytest.raises(DataError, match="far is no folder, or a link"):
        foreign.holds("far/key")
    for name in ("far", "zero", "../outside"):
        with pytest.raises(DataError):
            foreign.sub(name).files()
    with pytest.raises(DataError):
        foreign.files()
    door.close()


def test_numbers_and_sizes_are_bounded_together(folder):
    foreign = ForeignFolder(folder)
    with pytest.raises(DataError, match="more than 2 files"):
        foreign.listing(2)
    with pytest.raises(DataError, match="take more than"):
        foreign.files(8)
    with pytest.raises(DataError, match="no UTF-8"):
        (folder / "a").write_bytes(b"\xff")
        foreign.text("a")


def test_a_file_that_the_user_names_may_be_a_link_and_has_an_end(folder):
    (folder / "link").symlink_to("a")
    assert read_file(folder / "link") == b"one\r\ntwo"
    with pytest.raises(DataError, match="larger than"):
        read_file(folder / "a", 3)
    (folder / "zero").symlink_to("/dev/zero")
    with pytest.raises(DataError, match="larger than 1 MB"):
        read_file(folder / "zero", 1 << 20)
