"""Stages of two runs: equal, the same values, within tolerance, or where they part."""

import json
from typing import get_args

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from tasks.engine.stage_code import TASKS
from tracewheel.config.profile import StageName
from tracewheel.core.run_record import RunRecord
from tracewheel.core.store import Store
from tracewheel.report.finished_run import FinishedRun
from tracewheel_lab.commands.reproduce import STAGES
from tracewheel_lab.reproduce.causes import changed_definitions, environment_differences
from tracewheel_lab.reproduce.contents import compare_folders
from tracewheel_lab.reproduce.stages import TOLERANCES, compare_stages


@pytest.fixture
def two_runs(tmp_path):
    """Makes two runs of (stage, key, produce) each."""

    def make(*sides):
        runs = []
        for number, entries in enumerate(sides):
            record = tmp_path / str(number) / "run"
            record.mkdir(parents=True)
            store = Store(record.parent / "store")
            names = [store.make(stage, key, produce).path.name for stage, key, produce in entries]
            (record / "entries.txt").write_text("\n".join(names))
            runs.append(FinishedRun(RunRecord(record.parent, "run")))
        return runs

    return make


def weights(shift):
    def produce(out):
        (out / "adapter").mkdir()
        tensors = {"a": torch.zeros(2, 2), "b": torch.tensor([1.0, 2.0, 3.0]) + torch.tensor([0.0, shift, 0.0])}
        save_file(tensors, out / "adapter" / "adapter_model.safetensors")

    return produce


def verdict(word):
    return lambda out: (out / "gate.json").write_text(json.dumps({"verdict": word, "baseline": "base", "difference": 0.1}))


def test_equal_stages_need_no_look_into_their_files(two_runs):
    one, two = two_runs([("update", "1", weights(0.0))], [("update", "1", weights(0.0))])
    (found,) = compare_stages(one, two)
    assert (found.state, found.same_key, list(found.files)) == ("equal", True, [])


@pytest.mark.parametrize(("shift", "state"), [(2**-12, "within tolerance"), (0.25, "parts")])
def test_weights_have_a_tolerance_and_the_first_tensor_is_named(two_runs, shift, state):
    one, two = two_runs([("update", "1", weights(0.0))], [("update", "2", weights(shift))])
    (found,) = compare_stages(one, two)
    assert (found.state, found.same_key) == (state, False)
    (file,) = found.files
    assert file.place == "tensor b [3], element 1"
    assert (file.largest, file.count, file.of) == (pytest.approx(shift), 1, 7)


def test_a_verdict_has_no_tolerance(two_runs):
    one, two = two_runs([("gate", "1", verdict("promoted"))], [("gate", "1", verdict("refused"))])
    (found,) = compare_stages(one, two)
    assert (found.state, found.files[0].place, found.files[0].after) == ("parts", "verdict", "refused")


def test_stages_are_paired_by_their_place_among_their_like(two_runs):
    first = [("update", "1", weights(0.0)), ("gate", "2", verdict("refused")), ("update", "3", weights(1.0))]
    one, two = two_runs(first, [first[0], first[2]])
    found = compare_stages(one, two)
    assert [(item.label, item.state) for item in found] == [
        ("update 1", "equal"),
        ("gate 1", "not made"),
        ("update 2", "equal"),
    ]
    assert [item.state for item in compare_stages(two, one)] == ["equal", "equal", "parts"]
    assert len(compare_stages(one, two, last=1)) == 1


def test_the_first_record_and_field_of_a_table(tmp_path):
    rows = [{"id": f"t{n}", "state": json.dumps({"files": {"/a": n, "/b": 0}}), "score": n / 2} for n in range(4)]
    other = [*rows[:2], {**rows[2], "state": json.dumps({"files": {"/a": 9, "/b": 0}})}, rows[3]]
    for name, changed in (("one", rows), ("two", other)):
        (tmp_path / name).mkdir()
        pd.DataFrame(changed).to_parquet(tmp_path / name / "t.parquet")
        (tmp_path / name / "a.json").write_text(json.dumps({"n": name}))
    table, summary = compare_folders(tmp_path / "one", tmp_path / "two")
    assert (table.file, table.place) == ("t.parquet", "row 2 (id t2), state files./a")
    assert (table.before, table.after, table.largest, table.count, table.of) == ("2", "9", 7.0, 1, 4)
    assert (summary.file, summary.place) == ("a.json", "n")


def test_a_table_in_other_parts_has_the_same_values(tmp_path):
    table = pd.DataFrame({"id": ["a", "b"]})
    for name, parts in (("one", [table]), ("two", [table[:1], table[1:]])):
        folder = tmp_path / name / "traces.parquet"
        folder.mkdir(parents=True)
        for number, part in enumerate(parts):
            part.to_parquet(folder / f"part-{number}.parquet", index=False)
    (found,) = compare_folders(tmp_path / "one", tmp_path / "two")
    assert (found.file, found.same_values) == ("traces.parquet", True)


def test_missing_files_and_plain_bytes(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(f"same {name}")
    (tmp_path / "one" / "b.json").write_text("1")
    text, lost = compare_folders(tmp_path / "one", tmp_path / "two")
    assert text.place == "byte 5"
    assert (lost.file, lost.before, lost.after) == ("b.json", "is there", "(absent)")


def test_functions_that_changed_are_named_and_docstrings_are_not():
    before = (
        'def same():\n    "one"\n    return 1\n\nclass C:\n    x = 1\n    def m(self): return 1\n    def n(self): return 1\n'
    )
    after = before.replace('"one"', '"two"  # and a comment').replace("def m(self): return 1", "def m(self): return 2")
    assert changed_definitions(before, after) == ["C.m"]
    assert changed_definitions(before, before + "\nLIMIT = 3\n") == ["the module"]
    assert changed_definitions("", "def new(): ...") == ["new"]


def test_packages_and_machines_that_differ_are_named():
    before = {"packages": {"torch": "2.1"}, "machine": {"kind": {"processor": "A"}, "threads": 2}}
    after = {"packages": {"torch": "2.2"}, "machine": {"kind": {"processor": "B"}, "threads": 2}}
    assert environment_differences(before, after) == ["packages: torch 2.1 → 2.2", "machine: kind.processor A → B"]
    assert environment_differences({"packages": {"a": "1"}}, after | {"packages": {"a": "1"}}) == [
        "machine: the run, of an earlier version, did not record it"
    ]


def test_every_stage_has_a_module_and_a_tolerance():
    assert set(STAGES) == set(get_args(StageName)) == set(TOLERANCES)
    assert set(TASKS) == set(STAGES)
