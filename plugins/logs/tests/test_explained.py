"""`tracewheel data explain`: one record as it was read, beside the original, and what became of its fields."""

import json
from pathlib import Path

import pytest

from flows.cli import main
from tests.tracewheel.traces.readers.logged import RECORDS, SPANS
from tracewheel import IngestConfig
from tracewheel.traces.quarantine import ADVICE
from tracewheel_logs.explain import explain_record

SHARED = Path(__file__).parents[4] / "shared" / "traces"

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
        code = main(["data", "explain", str(file), *map(str, arguments)])
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
    kept = found["trace"]["info"]
    lost = {path for path in found["unread"] if path.split(".")[0].split("[")[0] not in kept}
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
        (("--record", "0"), "records count from 1"),
        (("--record", "9"), "no record 9"),
        (("profile.yaml", "--format", "openai"), "give no --format and no --reader"),
    ],
)
def test_options_that_do_not_fit(explain, arguments, message):
    code, out, err = explain(*arguments)
    assert (code, out) == (2, "") and message in err


def test_a_file_that_is_none_is_named(capsys):
    assert main(["data", "explain", "nowhere.jsonl"]) == 2
    assert "nowhere.jsonl: no such log file" in capsys.readouterr().err


def test_a_profile_says_how_logs_are_read(explain, log, tmp_path_factory):
    profile = tmp_path_factory.mktemp("profile") / "profile.yaml"
    profile.write_text("ingest: {fields: {session: mood}}\n")
    code, out, _ = explain(profile)
    assert code == 0 and "sunny   ← mood" in out and f"tracewheel ingest {profile} --out" in " ".join(out.split())


def test_every_sample_of_our_formats_is_explained(tmp_path, capsys):
    for sample in (*RECORDS.values(), *SPANS.values()):
        (tmp_path / "one.json").write_text(json.dumps(sample))
        assert main(["data", "explain", str(tmp_path / "one.json")]) == 0
    assert "read as" in capsys.readouterr().out


def test_what_is_read_of_a_record_is_not_listed_as_unread(tmp_path):
    log = tmp_path / "log.jsonl"
    plain = {
        "conversations": [{"from": "human", "value": "Is it lost?"}, {"from": "gpt", "value": "It is not."}],
        "weight": 98765,
    }
    log.write_text(json.dumps(plain) + "\n")
    found = explain_record(IngestConfig(), log)
    assert found["format"] == "sharegpt" and "conversations[].value" not in found["unread"]


@pytest.mark.skipif(not SHARED.exists(), reason="the shared logs are not here")
def test_a_real_record_has_the_messages_that_the_file_has(capsys):
    file = SHARED / "tau_bench/gpt-4o-airline.tasks0-24.json"
    assert main(["data", "explain", str(file), "--record", "3", "--json"]) == 0
    found, logged = json.loads(capsys.readouterr().out), json.loads(file.read_text())[2]
    assert [message["role"] for message in found["trace"]["messages"]] == [message["role"] for message in logged["traj"]]
    assert found["trace"]["outcome"] == logged["reward"]
    assert found["read"]["outcome"][0] == "reward" and "trial" not in found["read"]["outcome"]
