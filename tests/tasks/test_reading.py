"""What a run reads of logs that change while it starts."""

import json
import threading

import pandas

from tasks.engine.drivers import DirectDriver
from tasks.engine.reading import begin_run
from tasks.stages.ingest import ingest_traces
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
