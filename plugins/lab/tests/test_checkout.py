"""The code of a run in a clean clone: commit, recorded changes, and what is said where these are not to be had."""

import hashlib
import json
import shutil
import subprocess
import sys

import pytest

from tracewheel.core.errors import DataError
from tracewheel.core.run_record import RunRecord
from tracewheel.report.finished_run import FinishedRun
from tracewheel_lab.reproduce.causes import changed_code
from tracewheel_lab.reproduce.checkout import check_out
from tracewheel_lab.reproduce.data_files import from_dvc


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True).stdout


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository with two commits, and a change in the working folder."""
    folder = tmp_path / "project"
    (folder / "tracewheel").mkdir(parents=True)
    git(folder, "init", "-q")
    for text in ("one\n", "two\n"):
        (folder / "tracewheel" / "__init__.py").write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", text)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run_of(tmp_path):
    """A run's record with this state of git."""

    def make(state, **lineage):
        record = tmp_path / "work" / "run"
        record.mkdir(parents=True, exist_ok=True)
        (record / "lineage.json").write_text(json.dumps({"started": "", "git": state, "inputs": {}, **lineage}))
        return FinishedRun(RunRecord(record.parent, "run"))

    return make


def test_the_commit_and_the_recorded_changes_are_checked_out(project, run_of, tmp_path):
    first = git(project, "rev-parse", "HEAD~1").decode().strip()
    git(project, "checkout", "-q", first)
    (project / "tracewheel" / "__init__.py").write_text("one, changed\n")
    (diff := tmp_path / "work" / "run" / "code.diff").parent.mkdir(parents=True)
    diff.write_bytes(git(project, "diff", "--binary", "HEAD"))
    git(project, "checkout", "-q", "-f", "-")
    kept = {"file": "code.diff", "sha256": hashlib.sha256(diff.read_bytes()).hexdigest()}
    state = {"commit": first, "changed": True, "diff": kept}
    (tmp_path / "out").mkdir()
    code = check_out(run_of(state), tmp_path / "out", project)
    assert (code.root / "tracewheel" / "__init__.py").read_text() == "one, changed\n"
    assert (project / "tracewheel" / "__init__.py").read_text() == "two\n", "the repository itself stays as it is"
    assert code.says == ()
    diff.write_bytes(b"other")
    with pytest.raises(DataError, match="lost or damaged"):
        check_out(run_of(state), tmp_path / "out" / "again", project)


def test_a_commit_that_is_nowhere_is_said_with_the_ways_on(project, run_of, tmp_path):
    with pytest.raises(DataError, match=r"does not have it.*--repository DIR.*--code here"):
        check_out(run_of({"commit": "0" * 40, "changed": False}), tmp_path, project)
    with pytest.raises(DataError, match="not made from a git repository"):
        check_out(run_of(None), tmp_path, project)


def test_a_recorded_commit_that_is_an_option_of_git_is_refused(project, run_of, tmp_path):
    written = tmp_path / "written"
    written.write_text("precious")
    for commit in (f"--output={written}", "HEAD", "", None, 7):
        with pytest.raises(DataError, match="is no commit"):
            check_out(run_of({"commit": commit, "changed": False}), tmp_path / "out", project)
        assert changed_code(commit, []) == []
    assert written.read_text() == "precious"


def test_unrecorded_changes_are_said(project, run_of, tmp_path):
    (tmp_path / "out").mkdir()
    state = {"commit": git(project, "rev-parse", "HEAD").decode().strip(), "changed": True}
    assert "were not recorded" in check_out(run_of(state), tmp_path / "out", project).says[0]


@pytest.mark.slow
def test_dvc_brings_what_git_does_not_hold(project, tmp_path):
    def dvc(*arguments):
        subprocess.run([sys.executable, "-m", "dvc", *arguments], cwd=project, check=True, capture_output=True)

    dvc("init", "-q")
    (project / "logs").mkdir()
    (project / "logs" / "app.jsonl").write_text("{}\n")
    dvc("add", "-q", "logs/app.jsonl")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "data")
    (project / "logs" / "app.jsonl").unlink()
    git(tmp_path, "clone", "-q", "--shared", str(project), "clone")
    assert from_dvc(tmp_path / "clone", "logs/app.jsonl")
    assert (tmp_path / "clone" / "logs" / "app.jsonl").read_text() == "{}\n"
    dvc("remote", "add", "-d", "store", "../store")
    (project / "logs" / "app.jsonl").write_text("{}\n")
    dvc("push", "-q")
    (tmp_path / "clone" / "logs" / "app.jsonl").unlink()
    shutil.rmtree(project / ".dvc" / "cache")
    assert from_dvc(tmp_path / "clone", "logs/app.jsonl")
