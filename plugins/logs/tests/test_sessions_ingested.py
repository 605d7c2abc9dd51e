"""Sessions of coding agents in incremental ingests."""

import json
from pathlib import Path

import pandas
import pytest

from tests.tracewheel.traces.test_ingest_new import lines, run, stored
from tracewheel.config import IngestConfig
from tracewheel.traces.incremental import ingest_new


@pytest.fixture
def folder(tmp_path):
    """A folder with five logged conversations."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.jsonl").write_bytes(lines(*range(5)))
    return tmp_path


CLAUDE = json.loads((Path(__file__).parent / "samples/claude_code.json").read_text())


def claude_line(kind, uuid, parent, words):
    first = next(line for line in CLAUDE if line["type"] == kind)
    message = {**first["message"], "content": [{"type": "text", "text": words}]} | ({"id": uuid} if kind == "assistant" else {})
    return {**first, "uuid": uuid, "parentUuid": parent, "message": message}


def test_a_session_that_grows_is_read_again_and_replaces_what_is_stored_of_it(folder):
    session, other = folder / "logs/session.jsonl", folder / "logs/other.jsonl"
    branch = [claude_line("user", "u8", "u1", "And Oslo?"), claude_line("assistant", "a8", "u8", "Rain.")]
    session.write_text("".join(json.dumps(line) + "\n" for line in [*CLAUDE, *branch]) + '{"type": "us')
    other.write_text("".join(json.dumps({**line, "sessionId": "else"}) + "\n" for line in CLAUDE))
    run(folder)
    before = stored(folder)
    assert sorted(before)[:4] == ["conv", "conv/u8", "else", "id-0"]
    report = json.loads((folder / "out/report.json").read_text())
    assert report["by_reason"] == {"truncated": 1}
    assert run(folder)["added"]["read"] == 0  # nothing new
    with session.open("a") as file:
        file.write('er"}\n')
        for line in (claude_line("user", "u9", "a3", "Thanks!"), claude_line("assistant", "a9", "u9", "You're welcome.")):
            file.write(json.dumps(line) + "\n")
    added = run(folder)["added"]
    assert (added["read"], added["kept"], added["duplicates"], added["quarantined"]) == (1, 1, 0, 0)
    assert sorted(stored(folder)) == sorted(before)
    frame = pandas.read_parquet(folder / "out/traces.parquet").set_index("id")
    assert [message["content"] for message in json.loads(frame.loc["conv", "messages"])][-2:] == ["Thanks!", "You're welcome."]
    whole = ingest_new(IngestConfig(paths=(str(folder / "logs"),)), folder / "whole")
    names = ("kept", "messages", "tool_calls", "tool_results", "by_format")
    total = json.loads((folder / "out/report.json").read_text())
    assert {name: total[name] for name in names} == {name: whole[name] for name in names}
    ids = pandas.read_parquet(folder / "whole/traces.parquet")
    assert dict(zip(ids["id"], ids["messages"], strict=True)) == frame["messages"].to_dict()


def test_a_session_is_known_as_one(folder):
    (folder / "logs/session.jsonl").write_text("".join(json.dumps(line) + "\n" for line in CLAUDE * 40))
    run(folder)
    assert json.loads((folder / "out/state/state.json").read_text())["sessions"] == ["session.jsonl"]
    assert sorted(stored(folder)) == ["conv", *(f"id-{number}" for number in range(5))]
