"""Sources of logs: what is new joins the folder of an address, once, however a fetch is killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.setup import resolve_config
from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.traces.discovery import find_files
from tracewheel.traces.sources import SOURCES, address_in, fetch_new, located


class Desk:
    """A day's records in each commit, up to the day that its address names."""

    def __init__(self, address):
        self.last = int(address)

    def fetch(self, cursor, folder):
        for day in range((cursor or {"day": 0})["day"] + 1, self.last + 1):
            (folder / f"day-{day}.jsonl").write_text(json.dumps({"day": day}) + "\n")
            yield {"day": day}


@pytest.fixture(autouse=True)
def desk(monkeypatch):
    monkeypatch.setitem(SOURCES._set, "desk", Desk)


def days(folder):
    return [file.stem for file in sorted(Path(folder).glob("*.jsonl"))]


def test_each_fetch_adds_what_is_new(tmp_path):
    (path,) = located(["desk:3"], tmp_path)
    assert (Path(path).parent, address_in(path)) == (tmp_path, "desk:3")
    (found,) = fetch_new([path])
    assert (found.address, found.files, found.lines) == ("desk:3", 3, 3)
    assert days(path) == ["day-1", "day-2", "day-3"]
    assert fetch_new([path])[0].files == 0
    assert (Path(path) / "day-1.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_dry_run_keeps_nothing(tmp_path):
    (path,) = located(["desk:3"], tmp_path)
    (found,) = fetch_new([path], dry_run=True)
    assert (found.files, found.lines, list(tmp_path.iterdir())) == (3, 3, [])


def test_files_and_addresses_stand_side_by_side_and_a_source_may_be_empty(tmp_path):
    log = tmp_path / "a.jsonl"
    log.write_text("{}\n")
    paths = located([str(log), "desk:0"], tmp_path / "sources")
    assert paths[0] == str(log)
    assert list(find_files(paths)) == ["a.jsonl"]
    fetch_new(paths)
    assert list(find_files(paths)) == ["a.jsonl"]


def test_a_profile_reads_a_source_in_its_work_folder(tmp_path):
    profile = tmp_path / "p.yaml"
    profile.write_text(f"name: p\nwork_dir: {tmp_path / 'runs'}\ningest: {{paths: ['desk:2', other.jsonl]}}\n")
    assert resolve_config(str(profile)).ingest.paths == (str(tmp_path / "runs/sources/desk%3A2"), "other.jsonl")
    assert resolve_config(str(profile), None, "elsewhere").ingest.paths[0] == "elsewhere/sources/desk%3A2"


def test_a_folder_that_is_called_like_a_source_is_a_folder(tmp_path):
    """Whoever made it would have our credentials sent to an address of theirs."""
    folder = tmp_path / "desk%3A2"
    folder.mkdir()
    (folder / "a.jsonl").write_text("{}\n")
    assert fetch_new([str(folder)]) == []
    assert address_in(str(folder)) is None


@pytest.mark.parametrize(
    ("address", "says"), [("desk://me:secret@host", "no name or password"), (f"desk:{'x' * 300}", "at most 240 bytes")]
)
def test_an_address_without_a_password_and_of_a_bearable_length(tmp_path, address, says):
    with pytest.raises(ConfigError, match=says):
        located([address], tmp_path)


def test_two_processes_do_not_fetch_from_one_source_at_once(tmp_path):
    (path,) = located(["desk:3"], tmp_path)
    Path(path).mkdir()
    holder = os.open(path, os.O_RDONLY)
    import fcntl

    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(InfrastructureError, match="another process is fetching"):
        fetch_new([path])
    os.close(holder)


KILLED = """
import os, sys
from pathlib import Path
from tests.tracewheel.traces.test_sources import Desk
from tracewheel.traces.sources import SOURCES, fetch_new, located
SOURCES["desk"] = Desk
paths = located(["desk:3"], Path(sys.argv[1]))
left, replace = int(sys.argv[2]), os.replace
def dying(*names):
    global left
    left -= 1
    if left < 0:
        os._exit(9)
    replace(*names)
os.replace = dying
fetch_new(paths)
"""


@pytest.mark.parametrize("steps", range(7))
def test_a_kill_at_any_step_neither_loses_nor_doubles(tmp_path, steps):
    """A commit replaces two files: the state, and then what was fetched."""
    (path,) = located(["desk:3"], tmp_path)
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(steps)], check=False)
    assert ended.returncode == (9 if steps < 6 else 0)
    assert days(path) == [f"day-{day}" for day in range(1, steps // 2 + 1)]
    assert fetch_new([path])[0].files == 3 - (steps + 1) // 2
    assert days(path) == ["day-1", "day-2", "day-3"]
    assert [name.name for name in Path(path).glob(".staged-*")] == []
