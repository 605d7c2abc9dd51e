"""`tracewheel export-traces`: what a run has, read again by `tracewheel ingest`; what is refused."""

import json

import pytest

from flows.cli import main
from tracewheel.core.files import read_records, read_table, write_records
from tracewheel.core.types import Trace, Trajectory
from tracewheel.dashboard.library import unpack_demo


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return unpack_demo(tmp_path_factory.mktemp("export"))


@pytest.fixture(scope="module")
def few(work, tmp_path_factory):
    """The first episodes of a shipped rollout with a malformed call among them, as `tracewheel stage rollout` writes them."""
    folder = tmp_path_factory.mktemp("few")
    for path in sorted(work.glob("store/rollout-*/trajectories.parquet")):
        found = read_records(path, Trajectory)
        if any(turn["malformed"] for one in found for turn in one.turns):
            write_records(folder / "trajectories.parquet", found)
            return folder
    raise AssertionError("no shipped rollout has a malformed call")


def said(messages):
    """A conversation as a log gives it: the reply to a malformed call, which names no call, is the user's."""
    return [
        message if message["role"] != "tool" or message["tool_call_id"] else {"role": "user", "content": message["content"]}
        for message in messages
    ]


def test_what_was_exported_is_ingested_as_the_same_conversations(few, work, tmp_path, capsys):
    played = {one.task_id for one in read_records(few / "trajectories.parquet", Trajectory)}
    curated = next(path for path in work.glob("store/curate-*") if played <= set(read_table(path / "tasks.parquet")["id"]))
    arguments = [str(few), "--curated", str(curated), "--format", "atif", "--out", str(tmp_path / "atif"), "--json"]
    assert main(["export-traces", *arguments]) == 0
    trajectories = {one.id: one for one in read_records(few / "trajectories.parquet", Trajectory)}
    record = json.loads(capsys.readouterr().out)
    assert (record["episodes"], record["files"], record["left_out"]) == (len(trajectories), len(trajectories), {})

    assert main(["ingest", str(tmp_path / "atif/episodes"), "--out", str(tmp_path / "ingested"), "--json"]) == 0
    traces = [trace for part in (tmp_path / "ingested/traces.parquet").glob("*.parquet") for trace in read_records(part, Trace)]
    assert {trace.id for trace in traces} == set(trajectories)
    for trace in traces:
        own = trajectories[trace.id]
        assert trace.messages == said(own.messages)
        assert (trace.format, trace.task, trace.tools_inferred) == ("atif", own.task_id, False)
        assert trace.tools
        last = own.turns[-1]["end"]
        assert trace.tokens["token_ids"] == own.token_ids[:last]
        assert trace.tokens["logprobs"] == pytest.approx(own.logprobs[:last])

    assert main(["export-traces", str(tmp_path / "ingested"), "--format", "atif", "--out", str(tmp_path / "again")]) == 0
    assert main(["ingest", str(tmp_path / "again/episodes"), "--out", str(tmp_path / "twice")]) == 0
    (part,) = (tmp_path / "twice/traces.parquet").glob("*.parquet")
    assert {one.id: one.messages for one in read_records(part, Trace)} == {one.id: one.messages for one in traces}


def test_the_episodes_of_a_run_carry_their_scores(work, tmp_path, capsys):
    run = next(path.parent for path in sorted(work.glob("*/loop.json")))
    out = tmp_path / "openenv"
    assert main(["export-traces", str(run), "--only", "rollouts", "--format", "openenv", "--out", str(out), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    files = list(out.glob("episodes/rollout-*/*.json"))
    assert len(files) == record["files"] == record["episodes"]
    metadata = json.loads(files[0].read_text())["turns"][0]["metadata"]
    assert metadata["reward_status"] == "scored"
    assert 0 <= metadata["reward"] <= 1
    assert metadata["n_tools"] > 0


def test_what_cannot_be_exported_is_refused(tmp_path, few, capsys):
    def refused(*arguments):
        assert main(["export-traces", *map(str, arguments), "--out", str(tmp_path / "out")]) == 2
        assert not (tmp_path / "out").exists()
        return capsys.readouterr().err

    (tmp_path / "log.jsonl").write_text(
        json.dumps({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}) + "\n"
    )
    assert main(["ingest", str(tmp_path / "log.jsonl"), "--out", str(tmp_path / "ingested")]) == 0
    assert "Use --format atif" in refused(tmp_path / "ingested", "--format", "openenv")
    assert "holds no scores.parquet" in refused(few, "--scores", tmp_path, "--format", "atif")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/trajectories.parquet").write_bytes(b"PAR1 and no more")
    assert "its rows are not Trajectory records" in refused(tmp_path / "damaged", "--format", "atif")
    (tmp_path / "empty").mkdir()
    write_records(tmp_path / "empty/trajectories.parquet", [], Trajectory)
    assert refused(tmp_path / "empty", "--format", "atif")
