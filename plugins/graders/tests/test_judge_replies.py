"""Users' last replies, judged over HTTP, become weak outcomes: joined, compared with true ones, and never an outcome."""

import json
from argparse import Namespace

import pandas
import pytest

from tracewheel import ConfigError
from tracewheel.config import IngestConfig
from tracewheel.traces.incremental import ingest_new
from tracewheel_graders.commands.judge_replies import COMMAND


def said(number, *replies, **fields):
    messages = [{"role": "user", "content": f"File {number}."}, {"role": "assistant", "content": "Filed."}]
    messages += [{"role": "user", "content": reply} for reply in replies]
    return json.dumps({"id": f"id-{number}", "messages": messages, **fields}) + "\n"


def test_replies_become_implicit_outcomes_that_are_compared_and_never_count(chat_server, tmp_path):
    asked = []

    def answer(body, number):
        seen = body["messages"][-1]["content"]
        asked.append(seen)
        verdict = "thanks" if "Thank" in seen else "corrects" if "wrong" in seen else "nonsense" if "?" in seen else "other"
        return {"content": json.dumps({"verdict": verdict})}

    log = [said(0, "Thanks a lot!", reward=1), said(1, "That is wrong.", reward=1), said(2, "Well"), said(3), said(4, "Eh?")]
    (tmp_path / "log.jsonl").write_text("".join(log))
    out, file = tmp_path / "ingested", tmp_path / "said.jsonl"
    ingest_new(IngestConfig(paths=(str(tmp_path / "log.jsonl"),)), out)
    judge = tmp_path / "judge.yaml"
    judge.write_text(f"models: [{{endpoint: {chat_server(answer).url}, model: m, retries: 0}}]\njournal: {tmp_path}/j.jsonl\n")
    options = Namespace(traces=str(out), judge=str(judge), out=str(file))
    result = COMMAND.run(options)
    assert result["verdicts"] == {"corrects": 1, "failed": 1, "other": 1, "thanks": 1} and len(asked) == 5
    assert COMMAND.run(options) == result and len(asked) == 5, "the journal has the replies"
    given = {"paths": [str(tmp_path / "log.jsonl")], "outcomes": {"paths": [str(file)]}}
    report = ingest_new(IngestConfig.model_validate(given), out)["outcomes"]
    assert report["kinds"] == {"implicit": 2} and report["agreement"] == {"implicit": {"both": 2, "agree": 1}}
    assert pandas.read_parquet(out / "traces.parquet").set_index("id")["outcome"].dropna().to_dict() == {
        "id-0": 1.0,
        "id-1": 1.0,
    }
    judge.write_text("models: []")
    with pytest.raises(ConfigError, match="models"):
        COMMAND.run(options)
