"""Where traces of other programs' logs lie."""

import json
import random
from pathlib import Path

import orjson
import pytest

from tests.stretches import read_stretch
from tests.tracewheel.traces.test_places import ingested, lines

SHARED = Path(__file__).parents[4] / "shared" / "traces"


def test_a_session_that_grew_has_the_places_of_its_last_version(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    session = [
        {"type": "user", "uuid": "1", "parentUuid": None, "sessionId": "s", "message": {"role": "user", "content": "Hi"}},
        {
            "type": "assistant",
            "uuid": "2",
            "parentUuid": "1",
            "sessionId": "s",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]},
        },
    ]
    more = [
        {"type": "user", "uuid": "3", "parentUuid": "2", "sessionId": "s", "message": {"role": "user", "content": "More"}},
        {
            "type": "assistant",
            "uuid": "4",
            "parentUuid": "3",
            "sessionId": "s",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "Yes"}]},
        },
    ]
    for part in (session, more):
        with (logs / "s.jsonl").open("ab") as file:
            file.write(lines(*part))
        table, places = ingested(logs, tmp_path / "out")
        ((trace, (stretch,)),) = places.of_trace.items()
        assert read_stretch(logs / "s.jsonl", stretch) == (logs / "s.jsonl").read_bytes().rstrip(b"\n")
        assert table.loc[trace, "format"] == "claude_code"


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the folder of public traces beside the project")
def test_logs_of_other_peoples_agents_lead_back_to_their_bytes(tmp_path):
    table, places = ingested(SHARED, tmp_path / "out", largest_record_mib=64)
    assert len(table) > 100 and set(places.of_trace) == set(table.index)
    chosen = random.Random(0).sample(sorted(table.index), 60)
    for trace in chosen:
        raw = b"\n".join(read_stretch(SHARED / place.file, place) for place in places.of_trace[trace])
        said = [m["content"] for m in json.loads(table.loc[trace, "messages"]) if m["role"] == "user" and m.get("content")]
        if table.loc[trace, "format"] == "tau_bench":
            (record,) = [orjson.loads(raw)]
            logged = [m["content"] for m in record["traj"] if m["role"] == "user"]
            assert len(logged) == len(said)
            assert all(mine == theirs or "redacted" in mine or "[" in mine for mine, theirs in zip(said, logged, strict=True))
        elif said and isinstance(said[0], str) and "<" not in said[0]:
            start = orjson.dumps(said[0][:20].strip())[1:-1]
            assert start in raw or start.replace(b'"', b'\\"') in raw, (trace, table.loc[trace, "source_file"])
