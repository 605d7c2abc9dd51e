"""Where traces lie: the stretches of an ingest lead to the bytes that each trace was read from."""

import gzip
import json
from pathlib import Path

import pandas as pd

from tests.stretches import read_stretch
from tracewheel.config import IngestConfig
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.store import BESIDE, beside
from tracewheel.traces.incremental import ingest_new
from tracewheel.traces.ingest import ingest
from tracewheel.traces.ingested_folder import PLACES_FOLDER, TRACES_FOLDER
from tracewheel.traces.places import read_places
from tracewheel.traces.snapshot import Earlier, Links, take_snapshot

SHARED = Path(__file__).parents[4] / "shared" / "traces"


def conversation(number, **fields):
    messages = [{"role": "user", "content": f"Question {number}?"}, {"role": "assistant", "content": f"Answer {number}."}]
    return {"id": f"t{number}", "messages": messages, **fields}


def span(trace, number, text):
    return {
        "traceId": trace,
        "spanId": f"{trace}-{number}",
        "name": "chat",
        "startTimeUnixNano": number,
        "endTimeUnixNano": number + 1,
        "attributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([{"role": "user", "content": text}]),
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": f"reply {number}"}]),
        },
    }


def lines(*values):
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def ingested(logs, out, **settings):
    """Ingest a folder of logs; returns the traces by id, and the places of all."""
    ingest_new(IngestConfig(paths=(str(logs),), **settings), out)
    table = pd.read_parquet(out / TRACES_FOLDER).set_index("id")
    return table, read_places(out / PLACES_FOLDER, table["source_file"].to_dict())


def texts(raw):
    """The texts of messages in a record as logged."""
    return [message["content"] for message in json.loads(raw)["messages"]]


def stored_texts(table, trace):
    return [message["content"] for message in json.loads(table.loc[trace, "messages"])]


def test_lines_arrays_and_compressed_files(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + lines(conversation(1)) + b"\n\n" + lines(conversation(2)))
    (logs / "b.json").write_text(json.dumps([conversation(3), conversation(4), conversation(5)]))
    (logs / "c.json").write_text(json.dumps([conversation(6), conversation(7)], indent=2))
    (logs / "d.jsonl.gz").write_bytes(gzip.compress(lines(conversation(8), conversation(9))))
    table, places = ingested(logs, tmp_path / "out")
    assert set(table.index) == set(places.of_trace) == {f"t{number}" for number in range(1, 10)}
    for trace, ((file, line, offset, size),) in places.of_trace.items():
        (stretch,) = places.of_trace[trace]
        assert texts(read_stretch(logs / file, stretch)) == stored_texts(table, trace)
        assert (file, line) == (table.loc[trace, "source_file"], table.loc[trace, "source_line"])
        assert size and offset >= 0
    (second,) = places.of_trace["t2"]
    assert second.line == 4 and second.offset == (logs / "a.jsonl").read_bytes().index(b'{"id": "t2"')


def test_spans_of_one_trace_on_several_lines_and_in_several_files(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.jsonl").write_bytes(lines(span("x", 1, "one"), span("y", 1, "other"), span("x", 2, "two")))
    (logs / "b.jsonl").write_bytes(lines(span("x", 3, "three"), [span("y", 2, "more"), span("y", 3, "again")]))
    table, places = ingested(logs, tmp_path / "out")
    assert len(table) == 2
    for trace, stretches in places.of_trace.items():
        found = [value for place in stretches for value in _spans(read_stretch(logs / place.file, place))]
        own = {value["traceId"] for value in found}
        assert len(own) == 1
        assert [place[:2] for place in stretches] == (
            [("a.jsonl", 1), ("a.jsonl", 3), ("b.jsonl", 1)] if own == {"x"} else [("a.jsonl", 2), ("b.jsonl", 2)]
        )
        assert table.loc[trace, "source_line"] == stretches[0].line


def _spans(raw):
    value = json.loads(raw)
    return value if isinstance(value, list) else [value]


def test_a_copy_is_found_by_the_trace_that_was_kept(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.jsonl").write_bytes(lines(conversation(1, user="ada"), conversation(2)))
    (logs / "b.jsonl").write_bytes(lines(conversation(2), conversation(1, user="ada")))
    _, places = ingested(logs, tmp_path / "out")
    assert {trace: [place[:2] for place in found] for trace, found in places.copies.items()} == {
        "t1": [("b.jsonl", 2)],
        "t2": [("b.jsonl", 1)],
    }


def test_places_hold_neither_ids_nor_what_was_redacted(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.jsonl").write_bytes(lines(conversation(1) | {"id": "ada.lovelace@example.org"}, conversation(2)))
    table, places = ingested(logs, tmp_path / "out")
    hidden = next(trace for trace in table.index if trace != "t2")
    assert "ada" not in hidden
    (stretch,) = places.of_trace[hidden]
    assert b"ada.lovelace" in read_stretch(logs / "a.jsonl", stretch)
    stored = pd.read_parquet(tmp_path / "out" / PLACES_FOLDER).to_csv()
    assert "ada" not in stored and "t2" not in stored


def test_slices_of_a_log_that_grew_and_bytes_that_do_not_depend_on_places(tmp_path):
    """As the flow's stage ingests: each run continues the entry of the one before, whose places it takes over."""
    logs, store = tmp_path / "logs", tmp_path / "store"
    logs.mkdir()
    config = IngestConfig(paths=(str(logs),))
    snapshot = None
    for number in (1, 2, 3):
        with (logs / "a.jsonl").open("ab") as file:
            file.write(lines(conversation(number), conversation(10 + number)))
        before = snapshot
        snapshot = take_snapshot(config, before)
        earlier = store / f"ingest-{number - 1}"
        if before:
            snapshot = snapshot.after(Earlier(earlier.name, digest_of(earlier)), before.contents)
        states = [tmp_path / f"state-{which}" for which in (number, number - 1)]
        links = Links(states[0], tmp_path / "last.json", *((earlier, states[1]) if before else ()))
        out = store / f"ingest-{number}"
        out.mkdir(parents=True)
        object.__setattr__(snapshot, "links", links)
        ingest(config, out, snapshot, out / BESIDE)
        beside(store, out.name).parent.mkdir(exist_ok=True)
        (out / BESIDE).rename(beside(store, out.name))
    table = pd.read_parquet(out / TRACES_FOLDER).set_index("id")
    places = read_places(beside(store, out.name) / PLACES_FOLDER, table["source_file"].to_dict())
    raw = (logs / "a.jsonl").read_bytes().splitlines()
    assert len(places.of_trace) == 6
    for trace, (stretch,) in places.of_trace.items():
        assert texts(raw[stretch.line - 1]) == stored_texts(table, trace)
        assert read_stretch(logs / "a.jsonl", stretch) == raw[stretch.line - 1]
    ingest(config, tmp_path / "whole", snapshot.after(None))
    assert pd.read_parquet(tmp_path / "whole" / TRACES_FOLDER).equals(pd.read_parquet(out / TRACES_FOLDER))
