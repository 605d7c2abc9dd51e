"""Damaged files of a work folder: each error names the file and a way on."""

from dataclasses import replace

import pytest

from flows.opening import look_around
from tasks.records.doctor import Watch
from tasks.records.evidence import begins_with
from tasks.records.gate_ledger import read_ledger
from tasks.records.split_chain import splits_begin_with
from tracewheel.core.errors import DataError
from tracewheel.core.store import Entry


def traces(tmp_path):
    return Entry("ingest", "k", tmp_path, "d" * 64, 0.0, {})


READERS = {
    "evidence.json": lambda run, entry: begins_with(run, entry),
    "gates.json": lambda run, entry: read_ledger(run.config.work_dir),
    "splits.json": lambda run, entry: splits_begin_with(run, entry, None),
    "sampler.json": lambda run, entry: look_around(run, entry, None, ""),
    "RUN/start.json": lambda run, entry: run.record.started(),
    "RUN/lineage.json": lambda run, entry: run.record.lineage,
    "RUN/summary.json": lambda run, entry: run.record.summary,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("damage", [b"{", b"\xff\xfe\x00", b""], ids=["cut", "binary", "empty"])
def test_a_damaged_record_names_its_file_and_a_way_on(make_run, tmp_path, name, damage):
    run = make_run(tracking={"uri": f"sqlite:///{tmp_path}/none.db"})
    path = run.record.path.parent / name.replace("RUN", run.record.run_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(damage)
    with pytest.raises(DataError, match=rf"{path.name}: not JSON: .*; (delete it|put back a copy)"):
        READERS[name](run, traces(tmp_path))


@pytest.mark.parametrize("shape", ["3", "{}", '{"a": 1}'])
def test_a_posterior_of_another_shape_is_no_unexpected_error(make_run, tmp_path, shape):
    run = make_run(tracking={"uri": f"sqlite:///{tmp_path}/none.db"})
    run.record.path.parent.mkdir(parents=True)
    (run.record.path.parent / "sampler.json").write_text(shape)
    with pytest.raises(DataError, match="sampler.json: not a posterior .*delete it, and the tasks' posterior starts over"):
        look_around(run, traces(tmp_path), None, "")


@pytest.mark.parametrize("name", ["loop.json", "doctor.json"])
def test_what_a_loop_writes_as_it_goes_is_written_again(make_run, tmp_path, name):
    run = make_run()
    run.record.path.mkdir(parents=True)
    (run.record.path / name).write_text("{")
    watch = Watch(run, replace(traces(tmp_path), path=tmp_path / "curated"), run.base())
    assert watch._loop["iterations"] == {} and watch._known == {}
