"""`tracewheel ingest --explain` on records of this wheel's formats."""

import json
from pathlib import Path

import pytest

from flows.cli import main
from tracewheel.config import IngestConfig
from tracewheel.traces.explain import explain_record

SHARED = Path(__file__).parents[4] / "shared" / "traces"


def test_what_is_read_of_a_record_is_not_listed_as_unread(tmp_path):
    log = tmp_path / "log.jsonl"
    plain = {
        "conversations": [{"from": "human", "value": "Is it lost?"}, {"from": "gpt", "value": "It is not."}],
        "weight": 98765,
    }
    log.write_text(json.dumps(plain) + "\n")
    found = explain_record(IngestConfig(), log)
    assert found.trace.format == "sharegpt" and "conversations[].value" not in found.unread


@pytest.mark.skipif(not SHARED.exists(), reason="the shared logs are not here")
def test_a_real_record_has_the_messages_that_the_file_has(capsys):
    file = SHARED / "tau_bench/gpt-4o-airline.tasks0-24.json"
    assert main(["ingest", "--explain", str(file), "--record", "3", "--json"]) == 0
    found, logged = json.loads(capsys.readouterr().out), json.loads(file.read_text())[2]
    assert [message["role"] for message in found["trace"]["messages"]] == [message["role"] for message in logged["traj"]]
    assert found["trace"]["outcome"] == logged["reward"]
    assert found["read"]["outcome"][0] == "reward" and "trial" not in found["read"]["outcome"]
