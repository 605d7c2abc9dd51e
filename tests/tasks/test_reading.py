"""What a run reads of logs that change while it starts."""

import json
import threading

import pandas
import pytest

from flows.intake import take_in
from tasks.engine.drivers import DirectDriver
from tasks.engine.reading import begin_run
from tasks.stages.curate import curate_tasks
from tasks.stages.ingest import ingest_traces
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.fingerprint import digest_of


def line(number):
    messages = [{"role": "user", "content": f"What is {number}?"}, {"role": "assistant", "content": f"It is {number}."}]
    return json.dumps({"id": f"id-{number}", "messages": messages}) + "\n"


def test_a_run_reads_what_its_id_and_lineage_name_although_its_log_grows(make_run, tmp_path):
    config = make_run().config
    file = tmp_path / "traces.jsonl"
    file.write_text("".join(map(line, range(50))))
    ended = threading.Event()

    def grow():
        number = 50
        while not ended.wait(0.002):
            with file.open("a") as stream:
                stream.write(line(number))
            number += 1

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        run = begin_run(config, driver=DirectDriver())
        with run.hold():
            entry = ingest_traces(run, snapshot=run.snapshot)
    finally:
        ended.set()
        writer.join()
    inputs = run.record.lineage["inputs"]
    kept = len(pandas.read_parquet(entry.path / "traces.parquet"))
    written = file.read_text().splitlines(keepends=True)
    assert kept < len(written)
    file.write_text("".join(written[:kept]))
    assert digest_of(file) == inputs["traces/traces.jsonl"]
    again = begin_run(config, driver=DirectDriver())
    assert again.record.run_id == run.record.run_id
    with again.hold():
        assert ingest_traces(again, snapshot=again.snapshot).reused


def test_outcomes_alone_make_a_new_run_that_goes_on_from_the_last_ingest(make_run, tmp_path):
    """Their file is written anew each night; what it says joins the stored traces, and curation's key changes with them."""
    config, said = make_run().config, tmp_path / "said.csv"
    (tmp_path / "traces.jsonl").write_text("".join(map(line, range(9))))
    given = config.ingest.model_dump() | {"outcomes": {"paths": [str(said)]}}
    config = config.model_copy(update={"ingest": type(config.ingest).model_validate(given)})

    def night(text):
        said.write_text("id,value\n" + text)
        run = begin_run(config, driver=DirectDriver())
        with run.hold():
            run.record.start(lambda: {"champion": None, "splits": None})
            traces = take_in(run)
            run.record.write("summary.json", {})
        return run, traces

    first, traces = night("id-0,1\n")
    second, later = night("id-1,0\nid-0,0\n")
    assert second.snapshot.earlier.entry == traces.path.name and second.record.run_id != first.record.run_id
    assert later.result["outcomes"] | {"new": 0} == {
        "said": 3, "new": 0, "waiting": 0, "traces": 2, "corrected": 1, "kinds": {"label": 3},
        "known": {"label": 2, "logged": 0, "without an outcome": 7},
    }  # fmt: skip
    frame = pandas.read_parquet(later.path / "traces.parquet").set_index("id")["outcome"]
    assert (frame["id-0"], frame["id-1"], frame.notna().sum()) == (0.0, 0.0, 2)
    assert pandas.read_parquet(traces.path / "traces.parquet")["outcome"].sum() == 1.0, "the earlier entry keeps its bytes"
    assert curate_tasks.key(first, {"traces": traces}) != curate_tasks.key(second, {"traces": later})
    assert read_json(second.record.path / "intake.json")["outcomes"]["corrected"] == 1
    again, same = night("id-1,0\nid-0,0\n")
    assert again.record.run_id == second.record.run_id and same.reused
    said.unlink()
    with pytest.raises(DataError, match=r"said\.csv: no such trace file \(ingest\.outcomes\.paths\)"):
        begin_run(config, driver=DirectDriver())
