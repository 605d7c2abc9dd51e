"""`tracewheel ingest --explain`: one record as it was read, beside the original, and what became of its fields."""

import json

import pytest

from flows.cli import main
from tests.tracewheel.traces.readers.logged import RECORDS, SPANS
from tracewheel.config import IngestConfig
from tracewheel.traces.explain import explain_record
from tracewheel.traces.quarantine import ADVICE

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"order": "A-17"}'}}
RECORD = {
    "id": "chat-9",
    "created": 1700000000,
    "user": "ada@lovelace.org",
    "mood": "sunny",
    "nested": [{"rank": 4711}],
    "messages": [
        {"role": "user", "content": "Where is my order? Write to ada@lovelace.org"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "in the \u001b[31mpost"},
        {"role": "assistant", "content": "In the post."},
    ],
}


@pytest.fixture
def log(tmp_path):
    (tmp_path / "log.jsonl").write_text(f'\n{json.dumps(RECORD)}\n{{"a": 1}}\nno json\n')
    return tmp_path / "log.jsonl"


@pytest.fixture
def explain(capsys, log):
    def call(*arguments, file=log):
        code = main(["ingest", "--explain", str(file), *map(str, arguments)])
        captured = capsys.readouterr()
        assert sorted(path.name for path in log.parent.iterdir()) == ["log.jsonl"], "nothing is written"
        return code, captured.out, captured.err

    return call


def test_a_record_is_shown_as_it_was_read_beside_the_original(explain, log):
    code, out, _ = explain()
    assert code == 0 and "line 2: read as openai" in out
    for expected in (
        "chat-9   ← id",
        "2023-11-14T22:13:20",
        "← created",
        "would be redacted  email 2",
        "→ look(",
        "2 assistant:",
        "3 tool to c1:",
    ):
        assert expected in out
    as_read, original = zip(
        *(line.split("┃" if "┃" in line else "│")[1:3] for line in out.splitlines() if line.startswith(("│", "┃"))), strict=True
    )
    assert "as it was read" in as_read[0] and "the original" in original[0]
    assert "ada@lovelace.org" in "".join(original) and "ada@lovelace.org" not in "".join(as_read)
    assert "\x1b" not in out and "\\x1b[31mpost" in out
    assert f"tracewheel ingest {log} --out data/ingested" in out


def test_the_next_command_reads_as_this_one_did(explain, log):
    code, out, _ = explain("--format", "openai", "--set", "ingest.fields.session=mood")
    assert code == 0
    assert f"tracewheel ingest {log} --set ingest.fields.session=mood --format openai --out data/ingested" in " ".join(
        out.split()
    )


def test_what_is_in_the_record_and_not_in_the_trace_is_listed_and_nothing_else(log):
    found = explain_record(IngestConfig(), log)
    kept = found.trace.info
    lost = {path for path in found.unread if path.split(".")[0].split("[")[0] not in kept}
    assert lost <= {"messages[].tool_calls[].type", "mood", "nested[].rank"}


def test_a_quarantined_record_says_why_and_what_to_do(explain):
    code, out, _ = explain("--record", 2)
    assert code == 0 and "in quarantine" in out and "unknown format" in out and "--reader module:Class" in out
    code, out, _ = explain("--record", 3)
    assert code == 0 and "not JSON" in out and "no json" in out


def test_a_place_as_the_summary_of_an_ingest_gives_it(explain, log):
    code, out, _ = explain("--json", file=f"{log}:4")
    found = json.loads(out)
    assert (code, found["number"], found["line"], found["reason"]) == (0, 3, 4, "not JSON")
    assert found["advice"] == ADVICE["not JSON"] and found["original"] == ["no json"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "x"), "writes nothing: leave out --out"),
        (("--record", "0"), "records count from 1"),
        (("--record", "9"), "no record 9"),
        (("other.jsonl",), "give no other PATH than a profile"),
    ],
)
def test_options_that_do_not_fit(explain, arguments, message):
    code, out, err = explain(*arguments)
    assert (code, out) == (2, "") and message in err


def test_out_is_needed_otherwise(log, capsys):
    assert main(["ingest", str(log)]) == 2
    assert "--out DIR is missing" in capsys.readouterr().err
    assert main(["ingest", "--explain", "nowhere.jsonl"]) == 2
    assert "nowhere.jsonl: no such log file" in capsys.readouterr().err


def test_every_sample_of_our_formats_is_explained(tmp_path, capsys):
    for sample in (*RECORDS.values(), *SPANS.values()):
        (tmp_path / "one.json").write_text(json.dumps(sample))
        assert main(["ingest", "--explain", str(tmp_path / "one.json")]) == 0
    assert "read as" in capsys.readouterr().out
