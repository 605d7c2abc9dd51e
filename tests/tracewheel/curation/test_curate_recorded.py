"""Logs without their environments become a recording, tasks, demonstrations and pairs."""

import json
from pathlib import Path

import pandas
import pytest

from tracewheel.config import CurationConfig, IngestConfig, RetrainConfig
from tracewheel.core.errors import DataError
from tracewheel.core.types import content_hash
from tracewheel.curation.curate import curate
from tracewheel.curation.difficulty import KeptPassCounts
from tracewheel.environments.recorded.build import build_recording
from tracewheel.traces.incremental import ingest_new
from tracewheel.traces.ingest import ingest

LOGS = Path(__file__).parents[3] / "data/traces/workspace.jsonl"
# The tier of a recorded task is how many calls its shortest success makes.
COUNTS = {"train_tasks": 30, "validation_tasks": 20, "held_out_tasks": 40, "harder_tasks": 5, "harder_tier": 10}


def without_environment(line):
    """The record as another team would have it: it knows its tasks by name, and no simulator."""
    record = json.loads(line)
    environment = record.pop("environment")
    return {**record, "task_id": content_hash([environment, record["messages"][1]])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    lines = []
    for line in LOGS.read_bytes().splitlines():
        try:
            lines.append(json.dumps(without_environment(line)))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # the broken lines that ship with the log
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n")
    ingest(IngestConfig(paths=(str(folder / "log.jsonl"),)), folder / "ingested")
    (folder / "recording").mkdir()
    build_recording(pandas.read_parquet(folder / "ingested/traces.parquet"), folder / "recording")
    return folder


@pytest.fixture
def curated(folder, tmp_path):
    def curated(**sets):
        config = RetrainConfig(
            name="test",
            environment={"kind": f"recorded:{folder / 'recording'}"},
            curation=CurationConfig(**COUNTS, sets=sets),
        )
        return curate(config, folder / "ingested", tmp_path / "out"), tmp_path / "out"

    return curated


def test_logged_rewards_make_demonstrations_and_pairs_where_they_are_trusted(folder, curated):
    report, out = curated(sources=("logged",))
    traces = pandas.read_parquet(folder / "ingested/traces.parquet").set_index("id")["outcome"]
    tasks = pandas.read_parquet(out / "tasks.parquet").set_index("id")["split"]

    def rewards(names):
        return [traces[name.removesuffix("-turn0")] for name in names]

    demonstrations = pandas.read_parquet(out / "sets/demonstrations.parquet")
    pairs = pandas.read_parquet(out / "sets/preference_pairs.parquet")
    assert len(demonstrations) > 20 and set(rewards(demonstrations["trace_id"])) == {1.0}
    logged = list(zip(rewards(pairs["chosen_trace"]), rewards(pairs["rejected_trace"]), strict=True))
    assert logged.count((1.0, 0.0)) > 20 and not {(0.0, 1.0), (0.0, 0.0), (1.0, 1.0)} & set(logged)
    assert {tasks[name] for name in [*demonstrations["task_id"], *pairs["task_id"]]} == {"train"}
    assert report["labels"]["outcomes"]["verified"] == 0, "replaying a log proves nothing"
    assert report["drift"]["logged_rewards"] > 0 and report["drift"]["reward"] == 0


def test_logged_rewards_are_not_trusted_by_default(curated):
    _, out = curated()
    assert pandas.read_parquet(out / "sets/demonstrations.parquet").empty


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [
        (None, "none of {traces} traces has an outcome, and its tasks come from successes"),
        (0.5, "{traces} of {traces} traces have an outcome, and none is a success (1 or more)"),
    ],
)
def test_logs_without_a_success_name_the_cause_and_the_ways_on(folder, tmp_path, outcome, cause):
    traces = pandas.read_parquet(folder / "ingested/traces.parquet").head(40).assign(outcome=outcome).astype({"outcome": float})
    (tmp_path / "traces.parquet").mkdir()
    traces.to_parquet(tmp_path / "traces.parquet/part-0.parquet", index=False)
    config = RetrainConfig(
        name="test", environment={"kind": f"recorded:{folder / 'recording'}"}, curation=CurationConfig(**COUNTS)
    )
    with pytest.raises(DataError) as raised:
        curate(config, tmp_path, tmp_path / "out")
    said = str(raised.value)
    assert cause.format(traces=40) in said and "the 0 traces" not in said
    said_nothing = json.dumps([{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hi."}])
    traces.assign(outcome=1.0, messages=said_nothing).to_parquet(tmp_path / "traces.parquet/part-0.parquet", index=False)
    with pytest.raises(DataError, match="40 of 40 traces are successes; 40 left out: no successful trace calls a tool"):
        curate(config, tmp_path, tmp_path / "out")
    for way in ("ingest.fields.outcome", "a judge", "`tracewheel runs labels`", "docs/your-environment.md"):
        assert way in said


def test_an_outcome_that_is_overruled_reopens_the_evidence_of_its_task(folder, tmp_path):
    """Half of the log's rewards come later, in a file; after a first curation one of them is taken back."""
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()[:300]]
    rewards = {f"chat-{number}": record.pop("reward", None) for number, record in enumerate(records)}
    log, said = tmp_path / "log.jsonl", tmp_path / "said.csv"
    log.write_text("".join(json.dumps({**record, "id": name}) + "\n" for name, record in zip(rewards, records, strict=True)))
    config = IngestConfig.model_validate({"paths": [str(log)], "outcomes": {"paths": [str(said)]}})

    def night(name, rewards, earlier=None):
        rows = [f"{trace},{reward},judge" if trace in judged else f"{trace},{reward}," for trace, reward in rewards.items()]
        said.write_text("id,value,kind\n" + "\n".join(rows))
        ingest_new(config, tmp_path / "ingested")
        if not (tmp_path / "recording").exists():
            (tmp_path / "recording").mkdir()
            build_recording(pandas.read_parquet(tmp_path / "ingested/traces.parquet"), tmp_path / "recording")
        curation = {**COUNTS, "counts": "auto", "sets": {"sources": ("logged",)}}
        profile = {"name": "test", "environment": {"kind": f"recorded:{tmp_path / 'recording'}"}, "curation": curation}
        kept = KeptPassCounts.read(tmp_path / earlier) if earlier else None
        report = curate(RetrainConfig.model_validate(profile), tmp_path / "ingested", tmp_path / name, kept)
        return report, pandas.read_parquet(tmp_path / name / "sets/demonstrations.parquet")

    known = {name: reward for name, reward in rewards.items() if reward is not None}
    judged = {name for name, reward in known.items() if reward >= 1.0 and int(name[5:]) % 5 == 0}
    first, taught = night("one", known)
    assert "reopened" not in first and len(taught) > 10
    origins = set(taught["trace_id"].str.replace("-turn.*", "", regex=True))
    assert not origins & judged, "a judge's opinion makes no demonstration"
    before = KeptPassCounts.read(tmp_path / "one")
    # One task keeps a success, another loses its only one, and with it its place.
    rows = taught.assign(wins=taught["task_id"].map(lambda task: before.counts[task][0])).sort_values(["wins", "trace_id"])
    wrong = {rows.iloc[at]["trace_id"].partition("-turn")[0]: rows.iloc[at]["task_id"] for at in (0, -1)}
    second, now_taught = night("two", known | dict.fromkeys(wrong, 0.0), "one")
    assert set(wrong.values()) <= set(second["reopened"])
    assert not {name.partition("-turn")[0] for name in now_taught["trace_id"]} & set(wrong)
    after, (lost, kept) = KeptPassCounts.read(tmp_path / "two"), wrong.values()
    attempts = pandas.read_parquet(tmp_path / "two/outcomes.parquet").query("task_id == @kept")["success"].dropna()
    assert after.counts[kept] == ((attempts >= 1).sum(), (attempts < 1).sum()), "taken anew, without decay"
    assert lost not in after.counts
    third, taught_again = night("three", known, "two")
    again = KeptPassCounts.read(tmp_path / "three").counts
    assert third["reopened"] == [kept] and all(again[task] == before.counts[task] for task in (kept, lost))
    assert sorted(taught_again["trace_id"]) == sorted(taught["trace_id"])
    fourth, _ = night("four", known, "three")
    assert "reopened" not in fourth


def test_a_prompt_that_an_exporter_cut_is_the_start_of_no_task(folder):
    from tracewheel.environments.recorded.traces import CUT_PROMPT, recorded_episodes

    traces = pandas.read_parquet(folder / "ingested/traces.parquet").head(30)
    wins = traces.index[traces["outcome"] >= 1.0]
    cut = json.loads(traces.at[wins[0], "messages"])
    cut[1]["content"] += " ...[truncated]"
    traces.at[wins[0], "messages"] = json.dumps(cut)
    for by in ("turn", "episode"):
        found, counts = recorded_episodes(traces, "recorded:x", by=by)
        assert counts["left_out"][CUT_PROMPT] == 1
        assert not any("[truncated]" in text for text in found["environment"])


def test_the_context_of_a_task_has_no_mark_of_a_turn_that_was_cut():
    from tracewheel.environments.recorded.traces import recorded_episodes

    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "I wi", "unfinished": "cut: length"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    row = {"id": "t", "messages": json.dumps(messages), "outcome": 1.0, "task": "x", "session": None, "info": "{}"}
    found, _ = recorded_episodes(pandas.DataFrame([{**row, "environment": None}]), "recorded:x")
    [logged] = map(json.loads, found["environment"])
    assert logged["context"] == [messages[0], {"role": "assistant", "content": "I wi"}]
    assert "unfinished" in found["messages"].iloc[0]
