"""The curate stage on the shipped logs: splits that the loop needs, verified, leak-free, reproducible."""

import hashlib
import json
import zlib
from collections import Counter
from pathlib import Path

import pandas
import pytest

from tracewheel.config import CurationConfig, IngestConfig, RetrainConfig
from tracewheel.core.errors import DataError, LeakError
from tracewheel.core.types import Trace
from tracewheel.curation.curate import HowTo, curate
from tracewheel.curation.curated_folder import load_components, load_tasks
from tracewheel.curation.difficulty import KeptPassCounts
from tracewheel.curation.leaks import check_curated, check_leaks
from tracewheel.curation.side_replay import IDENTITIES
from tracewheel.environments.workspace.environment import TOOLS
from tracewheel.traces.ingest import ingest

LOGS = str(Path(__file__).parents[3] / "data/traces/workspace.jsonl")
CONFIG = RetrainConfig(name="test", environment={"kind": "workspace"})


@pytest.fixture(scope="module")
def ingested(tmp_path_factory):
    out = tmp_path_factory.mktemp("ingested")
    ingest(IngestConfig(paths=(LOGS,)), out)
    return out


@pytest.fixture(scope="module")
def third(ingested, tmp_path_factory):
    """All attempts at a third of the tasks, for tests that need no counts of the whole log."""
    traces, out = pandas.read_parquet(ingested / "traces.parquet"), tmp_path_factory.mktemp("third")
    asked = traces["messages"].map(lambda messages: json.loads(messages)[1]["content"])
    traces[asked.map(lambda words: zlib.crc32(words.encode()) % 3 == 0)].to_parquet(out / "traces.parquet", index=False)
    return out


@pytest.fixture(scope="module")
def curated(ingested, tmp_path_factory):
    out = tmp_path_factory.mktemp("curated")
    return curate(CONFIG, ingested, out), out


def test_counts_of_the_splits(curated):
    report, out = curated
    tasks = pandas.read_parquet(out / "tasks.parquet")
    assert tasks["split"].value_counts().to_dict() == {"train": 72, "validation": 120, "held_out": 200, "harder": 100}
    assert {split: part["tasks"] for split, part in report["splits"].items()} == tasks["split"].value_counts().to_dict()
    assert tasks["id"].is_unique
    assert tasks["fingerprint"].is_unique
    hardest = tasks.groupby("split")["tier"].max().to_dict()
    assert hardest == {"train": 4, "validation": 4, "held_out": 4, "harder": 5}
    assert (tasks.loc[tasks["split"] == "train", "attempts"] >= CONFIG.curation.min_attempts).all()


def test_tasks_carry_their_component_which_is_on_one_side(curated):
    tasks, known = pandas.read_parquet(curated[1] / "tasks.parquet"), load_components(curated[1])
    reserve = pandas.read_parquet(curated[1] / "reserve.parquet")
    assert set(known) == {*tasks["id"], *reserve["id"]} and len(reserve)
    assert not set(reserve["component"]) & set(tasks["component"]), "the reserve shares nothing with a set"
    hindsight = pandas.read_parquet(curated[1] / "sets" / "hindsight.parquet")
    assert not set(reserve["id"]) & set(hindsight["task_id"])
    episodes = pandas.read_parquet(curated[1] / "episodes.parquet", columns=["task_id", "user"])
    users = episodes["task_id"].map(known).groupby(episodes["user"]).nunique()
    assert (users == 1).all(), "whoever shares a user shares a component"
    sides = tasks["split"].replace({"harder": "held_out"}).groupby(tasks["component"]).nunique()
    assert (sides == 1).all()


def test_every_family_and_tier_has_its_share(curated):
    tasks = pandas.read_parquet(curated[1] / "tasks.parquet")
    for split, per_family in (("train", 18), ("validation", 30), ("held_out", 50), ("harder", 25)):
        counts = tasks[tasks["split"] == split]["family"].value_counts()
        assert len(counts) == 4
        assert ((counts - per_family).abs() <= 3).all()


def test_nothing_leaks(curated):
    tasks, episodes = (pandas.read_parquet(curated[1] / name) for name in ("tasks.parquet", "episodes.parquet"))
    check_leaks(tasks, episodes)
    trained = set(episodes.loc[episodes["split"] == "train", "user"])
    assert trained
    assert not trained & set(episodes.loc[episodes["split"] != "train", "user"])


def test_the_deployed_agent_has_its_intended_success_rates(curated):
    report, out = curated
    assert 0.30 <= report["deployed"]["train"]["success"] <= 0.45
    assert 0.30 <= report["deployed"]["held_out"]["success"] <= 0.45
    for rate in report["deployed"]["train"]["families"].values():
        assert 0.15 <= rate < 0.5
    episodes = pandas.read_parquet(out / "episodes.parquet")
    rates = episodes.groupby("split")["success"].mean()
    assert {split: part["success"] for split, part in report["deployed"].items()} == pytest.approx(rates.to_dict())
    assert ((episodes["failure"] == "") == (episodes["success"].fillna(1.0) == 1.0)).all()


def test_each_family_has_its_own_fault(curated):
    faults = curated[0]["faults"]
    assert max(faults["prefix"], key=faults["prefix"].get) == "forgot_manifest"
    assert max(faults["pattern"], key=faults["pattern"].get) == "stopped_early"
    assert max(faults["list"], key=faults["list"].get) == "moved_too_many"
    assert {"invented_tool", "repeated_calls"} <= set(faults["content"])


def test_wrong_rewards_are_counted_as_drift(curated):
    drift = curated[0]["drift"]
    assert 0 < drift["reward"] < 0.05 * drift["logged_rewards"]
    # One logged call has broken arguments, and yet the log's tool did as asked: no replay can.
    assert drift["observations"] == 1


def test_attempts_and_successes_count_the_episodes(curated):
    tasks, episodes = (pandas.read_parquet(curated[1] / name) for name in ("tasks.parquet", "episodes.parquet"))
    of_task = episodes.groupby("task_id")["success"].agg(["count", "sum"])
    assert of_task.loc[tasks["id"], "count"].tolist() == tasks["attempts"].tolist()
    assert of_task.loc[tasks["id"], "sum"].tolist() == tasks["successes"].tolist()


def test_tasks_load_as_records_and_episodes_keep_the_tools_as_logged(curated):
    tasks = load_tasks(curated[1], "held_out")
    assert len(tasks) == 200
    assert all(task.environment == "workspace" and task.tier in (2, 3, 4) for task in tasks)
    episodes = pandas.read_parquet(curated[1] / "episodes.parquet")
    assert json.dumps(json.loads(episodes["tools"][0])) == json.dumps(TOOLS)


def test_equal_traces_give_equal_bytes_for_any_seed(ingested, curated, tmp_path):
    curate(CONFIG.model_copy(update={"seed": 7}), ingested, tmp_path)
    for name in ("tasks.parquet", "episodes.parquet", "report.json"):
        digests = {hashlib.sha256((folder / name).read_bytes()).hexdigest() for folder in (curated[1], tmp_path)}
        assert len(digests) == 1, name


@pytest.mark.slow
def test_any_number_of_processes_gives_equal_bytes(ingested, curated, tmp_path):
    curate(CONFIG, ingested, tmp_path / "out", how=HowTo(processes=2))
    files = [path for path in sorted(curated[1].rglob("*")) if path.is_file()]
    assert len(files) > 8
    for path in files:
        assert path.read_bytes() == (tmp_path / "out" / path.relative_to(curated[1])).read_bytes(), path.name


def test_too_few_tasks_name_the_key(ingested, tmp_path):
    config = CONFIG.model_copy(update={"curation": CurationConfig(held_out_tasks=5000, counts="exact")})
    with pytest.raises(DataError, match=r"5000 are asked for; lower curation\.held_out_tasks.*counts to 'auto'"):
        curate(config, ingested, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_traces_are_an_error_that_names_the_command(tmp_path):
    with pytest.raises(DataError, match="tracewheel ingest"):
        curate(CONFIG, tmp_path, tmp_path / "out")


def test_traces_without_a_usable_episode_are_an_error(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}))
    ingest(IngestConfig(paths=(str(log),)), tmp_path / "in")
    with pytest.raises(DataError, match="none of the 1 traces"):
        curate(CONFIG, tmp_path / "in", tmp_path / "out")


def test_tasks_solved_by_doing_nothing_are_dropped_with_the_reason(ingested, curated, tmp_path):
    traces = pandas.read_parquet(ingested / "traces.parquet")
    hollow = {
        "kind": "workspace",
        "initial_state": {"folders": ["", "/inbox", "/done"], "files": {"/done/manifest.json": "[]"}},
        "goal": {
            "selector": {"kind": "prefix", "value": "tax"},
            "source": "/inbox",
            "destination": "/done",
            "manifest": "/done/manifest.json",
        },
    }
    messages = [{"role": "user", "content": "Tidy."}, {"role": "assistant", "content": "Done."}]
    extra = {**traces.iloc[0], "id": "hollow", "environment": json.dumps(hollow), "messages": json.dumps(messages)}
    pandas.concat([traces, pandas.DataFrame([extra])]).to_parquet(tmp_path / "traces.parquet", index=False)
    report = curate(CONFIG, tmp_path, tmp_path / "out")
    assert list(report["funnel"]["dropped_tasks"].values()) == ["solved by doing nothing"]
    assert report["funnel"]["tasks"] == curated[0]["funnel"]["tasks"] + 1
    assert report["splits"] == curated[0]["splits"]


def test_a_task_tried_by_a_training_user_is_not_held_out(ingested, curated, tmp_path):
    """The user's whole component leaves the evaluation splits; nothing leaks and counts still hold."""
    traces = pandas.read_parquet(ingested / "traces.parquet")
    episodes = pandas.read_parquet(curated[1] / "episodes.parquet")
    user = episodes.loc[episodes["split"] == "train", "user"].iloc[0]
    held_out = episodes.loc[episodes["split"] == "held_out"].iloc[0]
    traces.loc[traces["id"] == held_out["trace_id"], "user"] = user
    tmp_path.joinpath("in").mkdir()
    traces.to_parquet(tmp_path / "in/traces.parquet", index=False)
    report = curate(CONFIG, tmp_path / "in", tmp_path / "out")
    assert report["splits"]["held_out"]["tasks"] == 200
    assert held_out["task_id"] not in {task.id for task in load_tasks(tmp_path / "out", "held_out")}


def test_a_leak_in_the_splits_fails_the_stage(third, tmp_path, monkeypatch):
    monkeypatch.delitem(IDENTITIES, "user")
    traces = [Trace.from_record(row) for row in pandas.read_parquet(third / "traces.parquet").to_dict("records")]
    same_user = pandas.DataFrame([{**trace.to_record(), "user": "one", "session": None} for trace in traces])
    same_user.to_parquet(tmp_path / "traces.parquet", index=False)
    with pytest.raises(LeakError, match="user one"):
        curate(CONFIG, tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".partial-*"))

    allowed = CONFIG.model_copy(update={"curation": CurationConfig(allow_leak=True)})
    report = curate(allowed, tmp_path, tmp_path / "out")
    assert report["leaks"]["found"] and "user one" in report["leaks"]["says"]
    with pytest.raises(LeakError, match="user one"):
        check_curated(tmp_path / "out", CONFIG.curation)
    assert check_curated(tmp_path / "out", allowed.curation)


def test_a_filter_reports_the_tasks_each_clause_removes(third, tmp_path):
    config = {
        "counts": "exact",
        "train_tasks": 10,
        "validation_tasks": 2,
        "held_out_tasks": 2,
        "harder_tasks": 1,
        "filter": "attempts >= 4 and tier != 5",
    }
    with pytest.raises(DataError, match="harder"):
        curate(CONFIG.model_copy(update={"curation": CurationConfig(**config)}), third, tmp_path / "none")
    config |= {"filter": "0 < pass_rate < 0.9 or attempts < 4"}
    report = curate(CONFIG.model_copy(update={"curation": CurationConfig(**config)}), third, tmp_path / "out")
    tasks = pandas.read_parquet(tmp_path / "out/tasks.parquet")
    assert ((tasks["attempts"] < 4) | tasks["pass_rate"].between(0, 0.9, inclusive="neither")).all()
    left_out = Counter(report["funnel"]["dropped_tasks"].values())["left out by the filter"]
    assert left_out == report["filter"][0]["removes"] > 0


def test_tasks_in_a_benchmark_are_dropped(third, curated, tmp_path):
    """The benchmark holds the words of one user, whose tasks go; all others stay."""
    episodes = pandas.read_parquet(curated[1] / "episodes.parquet")
    episodes = episodes[episodes["trace_id"].isin(pandas.read_parquet(third / "traces.parquet")["id"])].reset_index()
    asked = json.loads(episodes["messages"][0])[1]["content"]
    (tmp_path / "bench.jsonl").write_text(json.dumps({"question": asked}) + "\n")
    settings = {"benchmarks": (str(tmp_path / "bench.jsonl"),)}
    config = CurationConfig(train_tasks=10, validation_tasks=2, held_out_tasks=2, harder_tasks=1, decontamination=settings)
    report = curate(CONFIG.model_copy(update={"curation": config}), third, tmp_path / "out")
    dropped = [task for task, why in report["funnel"]["dropped_tasks"].items() if why == "in a benchmark"]
    assert episodes["task_id"][0] in dropped and 0 < len(dropped) < 70
    found = pandas.read_parquet(tmp_path / "out/contamination.parquet")
    assert set(found["line"]) == {1} and found["file"].str.endswith("bench.jsonl").all()
    assert report["contamination"]["traces"] == found["trace_id"].nunique() and report["contamination"]["items"] == 1


def test_pass_rates_resume_from_an_earlier_curation(ingested, curated, tmp_path):
    """Half of the traces first, then all: each counts once, and what is known of the first half is halved."""
    traces = pandas.read_parquet(ingested / "traces.parquet")
    (tmp_path / "half").mkdir()
    traces[::2].to_parquet(tmp_path / "half/traces.parquet", index=False)
    few = CurationConfig(train_tasks=4, validation_tasks=2, held_out_tasks=2, harder_tasks=1, min_attempts=2)
    curate(CONFIG.model_copy(update={"curation": few}), tmp_path / "half", tmp_path / "first")
    curate(CONFIG, ingested, tmp_path / "second", KeptPassCounts.read(tmp_path / "first"))
    alone = pandas.read_parquet(curated[1] / "tasks.parquet").set_index("id")
    tasks = pandas.read_parquet(tmp_path / "second/tasks.parquet").set_index("id")
    assert tasks[["split", "attempts", "successes"]].equals(alone[["split", "attempts", "successes"]])
    episodes = pandas.read_parquet(tmp_path / "second/episodes.parquet")
    weights = episodes["trace_id"].isin(set(traces["id"][::2])).map({True: 0.5, False: 1.0})
    weights *= episodes["success"].notna()  # an unscored episode is no attempt
    solved = (weights * episodes["success"]).groupby(episodes["task_id"]).sum()
    expected = (1 + solved) / (2 + weights.groupby(episodes["task_id"]).sum())
    assert tasks["posterior"].to_dict() == pytest.approx(expected.to_dict())
    both = [pandas.read_parquet(folder / "counted.parquet") for folder in (curated[1], tmp_path / "second")]
    assert both[0].equals(both[1]) and both[0]["trace_id"].is_unique


def test_the_harder_tier_is_one_above_the_hardest_trained(ingested, tmp_path):
    config = CONFIG.model_copy(update={"curation": CurationConfig(filter="tier != 4", held_out_tasks=50, train_tasks=20)})
    report = curate(config, ingested, tmp_path / "gap")
    assert set(report["splits"]["train"]["tiers"]) <= {"1", "2", "3"} and set(report["splits"]["harder"]["tiers"]) == {"5"}
    config = CONFIG.model_copy(update={"curation": CurationConfig(filter="tier != 4 or attempts < 4", train_tasks=20)})
    with pytest.raises(DataError, match=r"would be 4: set curation\.harder_tier to 4"):
        curate(config, ingested, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_all_files_of_a_data_set_can_be_read(curated):
    out = curated[1]
    assert not list(out.rglob("*.html")), "a stage's output is data: a page would put its code into the key"
    quality = json.loads((out / "quality.json").read_text())
    assert "No task, copy of a task, user or session is on two of the sides" in quality["leaks"]["says"]
    assert [step["count"] for step in quality["funnel"]][:2] == [786, 762]
    for name in (
        "tasks",
        "episodes",
        "duplicates",
        "sets/demonstrations",
        "sets/agent_flan",
        "sets/preference_pairs",
        "sets/hindsight",
    ):
        assert len(pandas.read_parquet(out / f"{name}.parquet")) > 0, name
    assert not list(out.glob(".*")) and not list(out.parent.glob(".partial-*"))
