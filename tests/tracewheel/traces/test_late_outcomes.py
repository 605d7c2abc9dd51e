"""Outcomes that come after their conversation: joined, overruled, kept for a trace to come, and never counted twice."""

import json
from pathlib import Path

import pandas
import pytest

from tracewheel.config import IngestConfig
from tracewheel.config.loading import load_ingest_config
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.traces.discovery import log_files
from tracewheel.traces.forgotten import Forgotten, hash_of_identity
from tracewheel.traces.incremental import ingest_new
from tracewheel.traces.ingest import ingest
from tracewheel.traces.statements import conversation_of


def line(number, **fields):
    messages = [{"role": "user", "content": f"What is {number}?"}, {"role": "assistant", "content": f"It is {number}."}]
    about = {"id": f"id-{number}", "session": f"s-{number}", "created": f"2026-11-{number + 1:02d}T08:00:00Z"}
    return json.dumps({**about, "messages": messages, **fields}) + "\n"


@pytest.fixture
def logs(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/day1.jsonl").write_text("".join(map(line, range(4))))
    return tmp_path / "logs"


def config(logs, **outcomes):
    return IngestConfig.model_validate({"paths": [str(logs)], "outcomes": outcomes})


def said(text, folder, name="said.csv"):
    (folder / name).write_text(text)
    return [str(folder / name)]


def outcomes(folder):
    frame = pandas.read_parquet(folder / "traces.parquet").sort_values("id")
    return [None if value != value else value for value in frame["outcome"]]


def late(folder, trace):
    frame = pandas.read_parquet(folder / "traces.parquet").set_index("id")
    return json.loads(frame.loc[trace, "info"])["late_outcomes"]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_line_with_the_same_ids_and_a_reward_is_the_outcome_of_the_stored_trace(logs, tmp_path, at_once):
    out = tmp_path / "out"
    if not at_once:
        ingest_new(config(logs), out)
    (logs / "day2.jsonl").write_text(line(0, reward=1) + line(1, reward=0) + line(1, reward=0))
    report = ingest_new(config(logs), out)
    assert outcomes(out) == [1.0, 0.0, None, None]
    assert (report["read"], report["kept"], report["duplicates"]) == (7, 4, 3)
    assert report["outcomes"] == {
        "said": 2, "new": 2, "waiting": 0, "traces": 2, "corrected": 0, "kinds": {"verified": 2},
        "known": {"logged": 0, "verified": 2, "without an outcome": 2},
    }  # fmt: skip
    assert late(out, "id-0") == {
        "logged": None, "kinds": {"verified": 1.0}, "by": "verified", "said": None, "file": "day2.jsonl", "line": 1,
    }  # fmt: skip
    again = ingest_new(config(logs), out)
    assert again["outcomes"] == report["outcomes"] | {"new": 0}
    (logs / "copy.jsonl").write_text("".join(map(line, range(4))) + line(0, reward=1))
    assert ingest_new(config(logs), out)["outcomes"]["new"] == 0 and outcomes(out) == [1.0, 0.0, None, None]


def test_the_stage_joins_as_a_folder_does_and_a_log_without_late_outcomes_has_the_same_bytes(logs, tmp_path):
    ingest(config(logs), tmp_path / "plain")
    assert not (tmp_path / "plain/outcomes.jsonl").exists() and "outcomes" not in read_report(tmp_path / "plain")
    files = said("id,value\nid-0,1\nid-1,0\n", tmp_path)
    ingest(config(logs, paths=files), tmp_path / "stage")
    ingest_new(config(logs, paths=files), tmp_path / "folder")
    assert outcomes(tmp_path / "stage") == outcomes(tmp_path / "folder") == [1.0, 0.0, None, None]
    assert read_report(tmp_path / "stage")["outcomes"] == read_report(tmp_path / "folder")["outcomes"]


def read_report(folder):
    return json.loads((folder / "report.json").read_text())


def test_the_latest_of_the_best_kind_counts_and_weak_kinds_never_do(logs, tmp_path):
    rows = [
        {"session_id": "s-0", "value": 1, "kind": "thumb", "at": "2026-11-03"},
        {"trace_id": "id-0", "value": 0, "kind": "label", "at": "2026-11-02"},
        {"id": "id-1", "value": 0, "kind": "verified", "at": "2026-11-09T10:00:00Z"},
        {"id": "id-1", "value": 1, "kind": "verified", "at": "2026-11-05T10:00:00.5Z"},
        {"conversation_id": "id-2", "rating": 1.0, "kind": "judge"},
        {"id": "id-2", "value": 1.0, "kind": "implicit"},
        {"id": "id-3", "value": 4, "kind": "label"},
    ]
    files = said("".join(json.dumps(row) + "\n" for row in rows), tmp_path, "said.jsonl")
    out = tmp_path / "out"
    report = ingest_new(config(logs, paths=files, success_from={"label": 4}), out)["outcomes"]
    assert outcomes(out) == [0.0, 0.0, None, 1.0]
    assert report["corrected"] == 1 and report["waiting"] == 0
    assert report["kinds"] == {"verified": 2, "label": 2, "thumb": 1, "judge": 1, "implicit": 1}
    assert report["agreement"] == {"thumb": {"both": 1, "agree": 0}}
    assert late(out, "id-0")["kinds"] == {"label": 0.0, "thumb": 1.0}
    assert late(out, "id-2") == {"logged": None, "kinds": {"judge": 1.0, "implicit": 1.0}}
    # Other settings need no file again: what counts is worked out from what is stored.
    report = ingest_new(config(logs, precedence=["thumb", "label", "verified"], max_age_days=5), out)["outcomes"]
    assert outcomes(out) == [1.0, 1.0, None, 4.0] and report["too_late"] == 1


def test_an_outcome_waits_for_its_trace_and_a_row_that_is_none_is_named(logs, tmp_path):
    files = said("trace_id;x,value\nid-9,1\n", tmp_path, "bad.csv")
    with pytest.raises(DataError, match=r"bad\.csv: none of its 1 rows is an outcome .*ingest\.outcomes\.fields"):
        ingest_new(config(logs, paths=files), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    files = said("trace_id,value,kind\nid-9,up,thumb\nid-1,soso,\nid-2,1,guess\n", tmp_path)
    report = ingest_new(config(logs, paths=files), tmp_path / "out")["outcomes"]
    assert report["waiting"] == 1
    assert report["unreadable"]["rows"] == 2 and report["unreadable"]["first"].startswith("outcomes/said.csv:3: the outcome")
    (logs / "day9.jsonl").write_text(line(9))
    report = ingest_new(config(logs), tmp_path / "out")["outcomes"]
    assert report["waiting"] == 0 and outcomes(tmp_path / "out")[-1] == 1.0


def test_a_file_that_is_written_anew_each_night_corrects_and_repeats(logs, tmp_path):
    out = tmp_path / "out"
    for text, new, first in (
        ("id,value\nid-0,1\nid-1,1\n", 2, [1.0, 1.0]),
        ("id,value\nid-1,1\nid-0,1\n", 0, [1.0, 1.0]),
        ("id,value\nid-1,1\nid-0,0\nid-2,1\n", 2, [0.0, 1.0]),
        ("id,value\nid-1,1\nid-0,1\nid-0,0\nid-2,1\n", 0, [0.0, 1.0]),
    ):
        report = ingest_new(config(logs, paths=said(text, tmp_path)), out)["outcomes"]
        assert report["new"] == new and outcomes(out)[:2] == first
    assert report["corrected"] == 1


def test_columns_may_have_other_names(logs, tmp_path):
    files = said('conv\tstars\twhen\nid-0\t5\t2026-11-04\nid-1\t2\t"2026-11-04"\n', tmp_path, "said.tsv")
    given = [
        "ingest.outcomes.fields={id: conv, value: stars, kind: =thumb, said: when}",
        "ingest.outcomes.success_from={thumb: 4}",
    ]
    ingest_new(load_ingest_config((str(logs),), None, given, outcomes=files), tmp_path / "out")
    assert outcomes(tmp_path / "out")[:2] == [1.0, 0.0] and late(tmp_path / "out", "id-0")["by"] == "thumb"
    with pytest.raises(ConfigError, match="precedence"):
        load_ingest_config((str(logs),), None, ["ingest.outcomes.precedence=[judge]"])


def test_a_session_with_several_conversations_has_it_on_the_latest_that_had_begun(logs, tmp_path):
    (logs / "more.jsonl").write_text(
        line(5, session="s-0") + line(6, session="s-0", info={"parent": "id-5"}) + line(7, session="s-0")
    )
    files = said("session,value,said\ns-0,1,2026-11-07T00:00:00Z\n", tmp_path)
    ingest_new(config(logs, paths=files), tmp_path / "out")
    assert late(tmp_path / "out", "id-5")["by"] == "label" and outcomes(tmp_path / "out").count(1.0) == 1


def test_attempts_with_one_id_keep_their_own_outcomes(logs, tmp_path):
    (logs / "more.jsonl").write_text(line(8, seed=1) + line(8, seed=2) + line(8, seed=2, reward=1))
    ingest_new(config(logs), tmp_path / "out")
    frame = pandas.read_parquet(tmp_path / "out/traces.parquet").query("id.str.startswith('id-8')")
    assert [json.loads(info)["seed"] for info in frame[frame["outcome"] == 1.0]["info"]] == [2] and len(frame) == 2


def test_a_response_of_an_earlier_request_names_the_conversation(logs, tmp_path):
    question, answer = {"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hello."}

    def request(messages, name):
        body = {"model": "m", "messages": messages}
        reply = {"id": name, "choices": [{"message": answer, "finish_reason": "stop"}], "model": "m"}
        return json.dumps({"request": body, "response": reply}) + "\n"

    more = [question, answer, {"role": "user", "content": "Again?"}]
    (logs / "requests.jsonl").write_text(request([question], "chatcmpl-a") + request(more, "chatcmpl-b"))
    ingest_new(config(logs, paths=said("response_id,value\nchatcmpl-a,0\n", tmp_path)), tmp_path / "out")
    assert late(tmp_path / "out", "chatcmpl-b")["by"] == "label"
    assert conversation_of("chatcmpl-served-0a1b2c3d-12-3") == conversation_of("served-0a1b2c3d-12") == "served-0a1b2c3d-12"
    assert conversation_of("msg_01AbC-1-2") == "msg_01AbC-1-2"


def test_names_are_hidden_as_in_traces_and_nothing_is_kept_of_who_is_forgotten(logs, tmp_path):
    (logs / "mail.jsonl").write_text(line(9, session="ann.lee@example.com", id="ann.lee@example.com"))
    files = said("session,id,value\nann.lee@example.com,,1\n,id-1,0\n", tmp_path)
    out = tmp_path / "out"
    report = ingest_new(config(logs, paths=files), out)["outcomes"]
    assert report["waiting"] == 0 and "ann.lee" not in (out / "outcomes.jsonl").read_text()
    gone = Forgotten(frozenset([hash_of_identity("trace", "id-1")]))
    report = ingest_new(config(logs, paths=files), out, full=True, forgotten=gone)
    assert report["outcomes"]["said"] == 1 and report["forgotten"] == 1


def test_what_is_logged_as_a_line_of_its_own_is_no_conversation(logs, tmp_path):
    stated = {"type": "tracewheel.outcome", "id": "served-0a1b2c3d-1", "value": 1.0, "kind": "thumb", "said": "2026-11-09"}
    (logs / "served.jsonl").write_text(
        line(9, id="served-0a1b2c3d-1") + json.dumps(stated) + "\n" + json.dumps({**stated, "value": "x"})
    )
    report = ingest_new(config(logs), tmp_path / "out")
    assert report["by_reason"] == {"reward is not a number": 1} and report["read"] == 6
    assert late(tmp_path / "out", "served-0a1b2c3d-1")["by"] == "thumb"
    assert Path(tmp_path / "out/outcomes.jsonl").read_text().count("\n") == 1


def test_all_files_of_a_profile_are_named_and_of_a_lost_path_none(logs, tmp_path):
    files = said("id,value\nid-1,1\n", tmp_path)
    found = log_files(config(logs, paths=files).model_copy(update={"paths": (str(logs), str(tmp_path / "lost"))}))
    assert found == {logs / "day1.jsonl": "day1.jsonl", tmp_path / "said.csv": "outcomes/said.csv"}
    assert log_files(config(tmp_path / "lost", paths=[str(tmp_path / "lost.csv")])) == {}
