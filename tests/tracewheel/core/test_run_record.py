"""The record of a run: a fixed starting point and complete files."""

import hashlib
import json
import subprocess
import sys

import pytest

from tracewheel.core import code_state as code
from tracewheel.core import run_record
from tracewheel.core.errors import DataError
from tracewheel.core.run_record import RunRecord, find_runs, run_named
from tracewheel.core.store import PARTIAL


def test_the_starting_point_is_looked_up_once(tmp_path):
    record = RunRecord(tmp_path, "r1")
    assert record.started() is None
    assert record.start(lambda: {"champion": None}) == {"champion": None}
    assert record.start(lambda: {"champion": "another by now"}) == {"champion": None}
    assert record.started() == {"champion": None}


def test_opening_keeps_existing_files_and_deletes_partial_ones(tmp_path):
    record = RunRecord(tmp_path / "runs", "r1")
    record.open({"name": "x"}, {"base": "b"})
    lineage = (record.path / "lineage.json").read_text()
    (record.path / f"{PARTIAL}report.html").write_text("half")
    (record.path / f"{PARTIAL}adapter-1").mkdir()
    record.open({"name": "x"}, {"base": "other"})
    assert (record.path / "lineage.json").read_text() == lineage
    diffs = {"code.diff", "project.diff"}  # where the code that is tested is changed
    assert {path.name for path in record.path.iterdir()} - diffs == {"config.yaml", "environment.txt", "lineage.json"}
    assert json.loads(lineage)["packages"].keys() >= {"torch", "prefect", "hyperscan", "phonenumbers", "rensa"}
    assert record.summary is None


def test_a_run_with_a_summary_is_complete_and_is_found(tmp_path):
    for name in ("r1", "r2"):
        RunRecord(tmp_path, name).open({"name": "x"}, {})
    RunRecord(tmp_path, "r1").write("summary.json", {"run_id": "r1"})
    assert {record.run_id: record.summary for record in find_runs(tmp_path)} == {"r1": {"run_id": "r1"}, "r2": None}


def test_a_run_is_found_by_its_folder_its_work_folder_and_its_id(tmp_path):
    record = RunRecord(tmp_path / "work", "aaaa")
    record.open({"name": "x"}, {})
    (tmp_path / "work" / "store").mkdir()
    for name in (record.path, record.path.parent):
        assert run_named(str(name)).path == record.path
    assert run_named("aa", record.path.parent).path == record.path
    with pytest.raises(DataError, match="no run of that id in .*it has aaaa"):
        run_named("cc", record.path.parent)
    with pytest.raises(DataError, match="neither a run's folder"):
        run_named(str(tmp_path / "work" / "store"))


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with one commit as the place of the code: its folder, and a function that calls git in it."""
    folder = tmp_path / "code"
    (folder / "tracewheel").mkdir(parents=True)
    (folder / "tracewheel" / "module.py").write_text("one = 1\n")

    def git(*arguments):
        identity = ["-c", "user.name=n", "-c", "user.email=e@x.org"]
        return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout

    git("init", "--quiet", "--initial-branch=work")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    git("remote", "add", "origin", "https://someone:hunter2@host.example/code.git?token=hunter3")
    for module in (code, run_record):
        monkeypatch.setattr(module, "PACKAGE", folder / "tracewheel")
    return folder, git


def opened(folder, config=None):
    record = RunRecord(folder, "r1")
    record.open(config or {"name": "x", "threads": 2}, {"base": "b"}, {"files": []}, {"seeds": {"run": 3}})
    return record, record.lineage


def test_the_lineage_holds_code_packages_and_machine(tmp_path, checkout):
    _, git = checkout
    record, lineage = opened(tmp_path / "runs")
    head = git("rev-parse", "HEAD").strip()
    assert lineage["git"] == {
        "commit": head,
        "branch": "work",
        "changed": False,
        "untracked": [],
        "remote": "https://host.example/code.git",
    }
    assert lineage["seeds"] == {"run": 3} and lineage["schema"] == run_record.SCHEMA and lineage["resumed"] == []
    assert lineage["machine"]["threads"] == 2 and lineage["machine"]["torch"]["version"]
    lock = (record.path / lineage["environment"]["file"]).read_bytes()
    assert hashlib.sha256(lock).hexdigest() == lineage["environment"]["sha256"]
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "freeze", "--all"], capture_output=True, text=True, check=False
    ).stdout
    pinned = {line for line in listed.splitlines() if "==" in line and not line.startswith("#")}
    assert not pinned or pinned <= set(lock.decode().splitlines())
    for name, digest in lineage["files"].items():
        assert hashlib.sha256((record.path / name).read_bytes()).hexdigest() == digest
    assert set(lineage["files"]) == {"config.yaml", "snapshot.json"}


def test_what_differs_from_the_commit_can_be_applied_again(tmp_path, checkout):
    folder, git = checkout
    (folder / "tracewheel" / "module.py").write_text("one = 2\n")
    (folder / "tracewheel" / "new.py").write_text("two = 2\n")
    record, lineage = opened(tmp_path / "runs")
    assert lineage["git"]["changed"] and lineage["git"]["untracked"] == ["tracewheel/new.py"]
    git("checkout", "--quiet", ".")
    git("apply", str(record.path / lineage["git"]["diff"]["file"]))
    assert (folder / "tracewheel" / "module.py").read_text() == "one = 2\n"


def test_a_start_with_other_code_is_noted_once(tmp_path, checkout):
    folder, _ = checkout
    opened(tmp_path / "runs")
    assert opened(tmp_path / "runs")[1]["resumed"] == []
    (folder / "tracewheel" / "module.py").write_text("one = 3\n")
    first = opened(tmp_path / "runs")[1]["git"]
    record, lineage = opened(tmp_path / "runs")
    (later,) = lineage["resumed"]
    assert lineage["git"] == first and not first["changed"] and later["git"]["changed"]
    assert b"+one = 3" in (record.path / later["git"]["diff"]["file"]).read_bytes()


def test_outside_a_repository_there_is_no_commit(tmp_path, monkeypatch):
    (tmp_path / "site-packages" / "tracewheel").mkdir(parents=True)
    for module in (code, run_record):
        monkeypatch.setattr(module, "PACKAGE", tmp_path / "site-packages" / "tracewheel")
    monkeypatch.chdir(tmp_path)
    assert opened(tmp_path / "runs")[1]["git"] is None


def test_too_large_a_diff_names_the_files(checkout, monkeypatch):
    folder, _ = checkout
    (folder / "tracewheel" / "module.py").write_text("one = 'some more text'\n")
    monkeypatch.setattr(code, "LONGEST_DIFF", 10)
    assert b"module.py" in code.dirty_diff() and b"some more" not in code.dirty_diff()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a:b@host.org:8443/x.git", "https://host.org:8443/x.git"),
        ("ssh://git@host.org/x.git", "ssh://host.org/x.git"),
        ("git@host.org:x/y.git", "git@host.org:x/y.git"),
        ("https://host.org/x?access_token=1#2", "https://host.org/x"),
        (None, None),
    ],
)
def test_addresses_lose_their_credentials(url, shown):
    assert code.without_credentials(url) == shown
