"""One row for each run."""

import json
import os
import shutil
import subprocess

import pytest

from tracewheel.dashboard.library import Library
from tracewheel.dashboard.run_rows import RunRows, is_alive, read_row


@pytest.fixture
def copy(shown, tmp_path):
    return shutil.copytree(shown, tmp_path / "demo")


def test_a_row_says_what_the_record_says(shown, run_ids):
    first, second = (read_row("demo", shown / run) for run in run_ids)
    summary = json.loads((shown / run_ids[0] / "summary.json").read_text())
    assert first.verdict == summary["gate"]["verdict"] == first.state
    assert (first.after, first.gain) == (summary["success"]["rl"], summary["gate"]["difference"])
    assert first.before == summary["success"][summary["gate"]["baseline"]]
    assert first.tokens == sum(summary["tokens"].values()) and first.iterations == 8
    assert first.parent == "" and second.parent == run_ids[0]
    assert first.worst in ("healthy", "warning", "severe") and not first.damaged


def test_rows_are_read_again_when_a_file_has_changed(copy, run_ids):
    rows = RunRows(Library([copy]))
    before = rows.of("demo", run_ids[0])
    assert rows.of("demo", run_ids[0]) is before
    gate = copy / run_ids[0] / "gate.json"
    gate.write_text(json.dumps(json.loads(gate.read_text()) | {"difference": 0.5}))
    assert rows.of("demo", run_ids[0]).gain == 0.5


@pytest.mark.parametrize("file", ["summary.json", "gate.json", "state.json", "doctor.json", "loop.json", "lineage.json"])
@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"findings": 1, "iterations": 2, "seconds": 3, "parent": []}', "\x00"]
)
def test_a_damaged_record_is_shown_as_far_as_it_can_be_read(copy, run_ids, file, content):
    (copy / run_ids[0] / file).write_text(content)
    row = read_row("demo", copy / run_ids[0])
    assert row.run_id == run_ids[0]
    if content in ("", "{", "\x00"):
        assert file in row.damaged


def test_a_run_whose_process_is_gone_has_crashed(copy, run_ids):
    ended = subprocess.Popen(["true"])
    ended.wait()
    state = copy / run_ids[0] / "state.json"
    values = json.loads(state.read_text()) | {"state": "running", "process": os.getpid(), "host": os.uname().nodename}
    rows = RunRows(Library([copy]))
    for process, shown_as in ((os.getpid(), "running"), (ended.pid, "crashed")):
        state.write_text(json.dumps(values | {"process": process}))
        assert rows.of("demo", run_ids[0]).state == shown_as
    assert is_alive(ended.pid, "another-machine"), "nothing is known of another machine's processes"
