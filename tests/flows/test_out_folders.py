"""Every command's `--out`: missing, empty, someone's own, half written, a file, not writable. Nothing foreign is ever lost."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas
import pytest

from flows.cli import main
from flows.commands.command import find_commands
from tracewheel.core.errors import DataError
from tracewheel.core.out_folder import Writes, visible_files
from tracewheel.core.store import produce_whole

RECORD = {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello."}]}
CURATION = ["train_tasks=8", "validation_tasks=4", "held_out_tasks=12", "harder_tasks=4"]


COMMANDS = {command.name: command for command in find_commands()}
FOLDERS = [name for name, command in COMMANDS.items() if isinstance(command.writes, Writes)]


def test_every_command_with_an_out_says_what_it_writes():
    for command in COMMANDS.values():
        parser = argparse.ArgumentParser()
        command.options(parser)
        assert any("--out" in action.option_strings for action in parser._actions) == (command.writes is not None), command.name


def check(name, out):
    COMMANDS[name].check_out(argparse.Namespace(out=str(out)))


@pytest.mark.parametrize("command", FOLDERS)
class TestFolderCheck:
    def test_missing_empty_or_with_hidden_files_is_free(self, command, tmp_path):
        check(command, tmp_path / "new" / "deep")
        (tmp_path / "empty").mkdir()
        check(command, tmp_path / "empty")
        (tmp_path / "empty" / ".gitkeep").touch()
        check(command, tmp_path / "empty")
        # The check itself neither makes nor removes anything.
        assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["empty", ".gitkeep"]

    def test_what_someone_else_wrote_is_refused_and_named(self, command, tmp_path):
        (tmp_path / "photos" / "2024").mkdir(parents=True)
        (tmp_path / "photos" / "2024" / "cat.jpg").touch()
        with pytest.raises(DataError, match=rf"--out .*photos: holds 2024/cat.jpg, which `tracewheel {command}`"):
            check(command, tmp_path / "photos")

    def test_an_own_file_among_the_outputs_is_refused(self, command, tmp_path):
        for name in COMMANDS[command].writes.always:
            (tmp_path / name).touch()
        check(command, tmp_path)
        (tmp_path / "notes.md").touch()
        with pytest.raises(DataError, match=r"holds notes\.md"):
            check(command, tmp_path)

    def test_half_an_output_is_refused(self, command, tmp_path):
        first, *others = COMMANDS[command].writes.always
        (tmp_path / first).touch()
        if others:
            with pytest.raises(DataError, match=f"no complete output of `tracewheel {command}`"):
                check(command, tmp_path)

    def test_a_file_and_a_folder_without_rights_are_refused(self, command, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(DataError, match="is a file; give a folder"):
            check(command, tmp_path / "file")
        with pytest.raises(DataError, match="cannot be written to"):
            check(command, "/proc/out")
        if os.geteuid():  # root may write anywhere
            (tmp_path / "locked").mkdir(mode=0o500)
            with pytest.raises(DataError, match="cannot be written to"):
                check(command, tmp_path / "locked" / "out")
            with pytest.raises(DataError, match="its rights forbid it"):
                check(command, tmp_path / "locked")


@pytest.fixture(scope="module")
def inputs(profile, tmp_path_factory):
    """A log, and what ingest, curate and the data commands need."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "log.jsonl").write_text(json.dumps(RECORD) + "\n")
    assert main(["ingest", str(profile), "--out", str(folder / "ingested")]) == 0
    settings = [option for setting in CURATION for option in ("--set", f"curation.{setting}")]
    arguments = ["curate", str(profile), "--traces", str(folder / "ingested"), *settings]
    assert main([*arguments, "--out", str(folder / "curated")]) == 0
    return {
        "curated": folder / "curated",
        "ingest": ["ingest", str(folder / "log.jsonl")],
        "a profile": ["ingest", str(profile)],
        "curate": arguments,
        "data report": ["data", "report", str(folder / "curated")],
    }


@pytest.mark.parametrize(
    "which",
    [
        "ingest",
        "a profile",
        "curate",
        "data report",
    ],
)
def test_real_commands_into_every_kind_of_folder(which, inputs, tmp_path, capsys):
    """Into an empty folder with a hidden file, again, then with a foreign file in it, which stays as it is."""
    writes = COMMANDS["ingest" if which == "a profile" else which].writes
    out = tmp_path / "link"
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / ".gitkeep").write_text("mine")
    out.symlink_to(tmp_path / "real")
    for leftover in (".partial-real-999999", ".partial-trial"):
        (tmp_path / leftover).mkdir()
    for _ in range(1 if "curate" in which else 2):
        assert main([*inputs[which], "--out", str(out)]) == 0
        written = visible_files(out)
        assert [name for name in written if not writes.knows(name)] == []
        assert all((out / name).exists() for name in writes.always)
        assert (out.is_symlink(), (out / ".gitkeep").read_text()) == (True, "mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".partial-trial", "link", "real"]
    (out / "mine.txt").write_text("mine")
    capsys.readouterr()
    assert main([*inputs[which], "--out", str(out)]) == 2
    assert "holds mine.txt" in capsys.readouterr().err
    assert visible_files(out) == sorted([*written, "mine.txt"])


def test_the_folder_that_one_starts_in(tmp_path, monkeypatch):
    (tmp_path / "log.jsonl").write_text(json.dumps(RECORD) + "\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["ingest", "../log.jsonl", "--out", "."]) == 0
    assert len(pandas.read_parquet(tmp_path / "here/traces.parquet")) == 1


def test_options_that_name_a_file_spare_folders_and_files_of_others(base, profile, tmp_path, capsys):
    (tmp_path / "notes.md").write_text("mine")
    assert main(["stage", "check-template", base, "--show", str(tmp_path / "notes.md")]) == 2
    assert "exists and is no page of check-template" in capsys.readouterr().err
    for _ in range(2):
        assert main(["stage", "check-template", base, "--show", str(tmp_path / "page.md")]) == 0
    for arguments in (
        ["stage", "check-template", base, "--show"],
        ["curate", str(profile), "--traces", "x", "--out", "y", "--splits"],
    ):
        assert main([*arguments, str(tmp_path)]) == 2
        assert "is a folder; give the name of a file" in capsys.readouterr().err
    for name, says in (("notes.md", "exists and is no page"), ("", "is a folder; give the name of the page")):
        with pytest.raises(DataError, match=says):
            check("runs report", tmp_path / name)
    assert (tmp_path / "notes.md").read_text() == "mine" and {path.name for path in tmp_path.iterdir()} == {
        "notes.md",
        "page.md",
    }


def test_an_ingest_never_writes_over_its_own_logs(tmp_path, capsys):
    (tmp_path / "log.jsonl").write_text(json.dumps(RECORD) + "\n")
    assert main(["ingest", str(tmp_path), "--out", str(tmp_path), "--full"]) == 2
    assert "holds log.jsonl" in capsys.readouterr().err
    assert (tmp_path / "log.jsonl").exists()


KILLED_IN_BETWEEN = """
import os, signal, sys
from pathlib import Path
from tracewheel.core import store

def killed(old, new, replace=os.replace):
    replace(old, new)
    if Path(new).name.startswith(".previous-"):
        os.kill(os.getpid(), signal.SIGKILL)

store.os.replace = killed
store.produce_whole(Path(sys.argv[1]), lambda folder: (folder / "new").touch())
"""


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path):
    out = tmp_path / "out"
    produce_whole(out, lambda folder: (folder / "old").touch())
    (out / ".hidden").touch()
    done = subprocess.run([sys.executable, "-c", KILLED_IN_BETWEEN, str(out)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not out.exists()

    def fail(folder):
        raise DataError("no")

    with pytest.raises(DataError):
        produce_whole(out, fail)
    assert sorted(path.name for path in out.iterdir()) == [".hidden", "old"]
    produce_whole(out, lambda folder: (folder / "new").touch())
    assert sorted(path.name for path in out.iterdir()) == [".hidden", "new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_kill_in_the_middle_of_a_curation_leaves_the_earlier_output(inputs, tmp_path):
    command = inputs["curate"]
    out = shutil.copytree(inputs["curated"], tmp_path / "out")
    before = visible_files(out)
    process = subprocess.Popen(
        [sys.executable, "-m", "flows.cli", *command, "--out", str(out)],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.DEVNULL,
    )
    while not list(tmp_path.glob(".partial-out-*")) and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert visible_files(out) == before
    produce_whole(out, lambda folder: None)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
