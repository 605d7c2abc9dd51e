"""Lineage of a finished run: back to the log lines, forward from a user, and from every name."""

import json
import random
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.stretches import read_stretch
from tracewheel.core.fingerprint import digest_file, digest_of
from tracewheel.core.store import FACTS, Store
from tracewheel.curation.curated_folder import EPISODES_FILE
from tracewheel.lineage.backward import trace_back
from tracewheel.lineage.forward import affected
from tracewheel.lineage.log_lines import ingest_of, lines_of
from tracewheel.lineage.work_folder import WorkFolder, stage_of

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "data" / "traces"


@pytest.fixture(scope="session")
def folder(finished):
    return WorkFolder(finished[0])


@pytest.fixture(scope="session")
def lineage_record(finished):
    folder, _, summary = finished
    return json.loads((folder / summary["run_id"] / "lineage.json").read_text())


def test_the_record_names_results_with_digests_that_are_right(finished, lineage_record, folder):
    path, _, summary = finished
    named = [*lineage_record["datasets"].values(), *lineage_record["policies"].values()]
    named += [entry for splits in lineage_record["evaluations"].values() for entry in splits.values()]
    named += [entry for made in lineage_record["iterations"]["rl"].values() for entry in made.get("rollouts", [])]
    store = Store(path / "store")
    for one in named:
        if "entry" in one:
            assert store.find(*one["entry"].rsplit("-", 1)).digest == one["digest"]
    record = path / summary["run_id"]
    for one in (lineage_record["gate"], lineage_record["environment"], lineage_record["datasets"]["splits"]):
        assert digest_file(record / one["file"]) == one["sha256"]
    assert lineage_record["policies"]["rl"]["adapter"]["digest"] == digest_of(Path(summary["adapter"]))
    assert lineage_record["chosen"]["iteration"] == summary["best_iteration"]
    assert lineage_record["parent"] is None and lineage_record["gate"]["verdict"] == summary["gate"]["verdict"]


def test_evaluations_can_be_told_apart(finished, folder):
    evaluations = [name for name in folder.entries if stage_of(name) == "evaluate"]
    labels = {(folder.label(name), json.dumps(folder.made(name)["arguments"], sort_keys=True)) for name in evaluations}
    assert len(labels) == len(evaluations) > 8
    assert any(label == "evaluate rl-1 validation" for label, _ in labels)
    for name in evaluations:
        policy = folder.made(name)["arguments"]["policy"]
        assert policy["policy"] == "base" or policy["entry"] in folder.entries


def test_a_hundred_episodes_lead_back_to_the_line_they_were_read_from(folder):
    last = max((name for name in folder.adapters() if stage_of(name) == "update"), key=folder.finished)
    table = trace_back(folder, last).learned
    curated = table["curated"].iloc[0]
    episodes = pd.read_parquet(folder.path_of(curated) / EPISODES_FILE).set_index("trace_id")
    assert set(table["road"]) == {"demonstration", "rollouts"}
    traces = sorted(set(table["trace_id"]))
    chosen = random.Random(0).sample(traces, min(100, len(traces)))
    lines = lines_of(folder, ingest_of(folder, curated), chosen)
    for trace in chosen:
        (place,) = lines.stretches[trace]
        raw = (LOGS / place.file).read_bytes().splitlines()[place.line - 1]
        assert read_stretch(LOGS / place.file, place) == raw
        assert json.loads(raw)["messages"] == json.loads(episodes.loc[trace, "messages"])


def test_forward_and_backward_agree(folder):
    last = max((name for name in folder.adapters() if stage_of(name) == "update"), key=folder.finished)
    back = trace_back(folder, last)
    learned = back.learned["trace_id"].iloc[0]
    found = affected(folder, "trace", [learned])
    assert last in found.holds and {hold.entry for hold in found.adapters} >= {last}
    assert {stage_of(name) for name in found.holds} >= {"ingest", "curate", "warm_start", "rollout", "score", "update"}
    tables = [pd.read_parquet(path) for path in folder.store.glob("ingest-*/traces.parquet")]
    every = pd.concat(tables)
    strange = sorted(set(every["id"]) - set(back.learned["trace_id"]))
    apart = affected(folder, "trace", strange[:1])
    assert last not in apart.holds or not apart.holds[last].traces
    user = every.set_index("id").loc[learned, "user"]
    of_user = affected(folder, "user", [user])
    assert of_user.traces == set(every.loc[every["user"] == user, "id"])
    assert set(found.holds) <= set(of_user.holds)
    assert of_user.runs.keys() == folder.runs.keys()
    json.dumps(of_user.to_record())


def test_a_task_of_the_reserve_and_what_played_it_are_found(finished, folder, tmp_path):
    """Its episodes are in no set of the curation."""
    shutil.copytree(finished[0], tmp_path / "run")
    (curated,) = (tmp_path / "run" / "store").glob("curate-*")
    tasks, episodes = pd.read_parquet(curated / "tasks.parquet"), pd.read_parquet(curated / EPISODES_FILE)
    held = tasks.loc[tasks["split"] == "held_out", "id"].iloc[0]
    tasks[tasks["id"] == held].assign(split="reserve").to_parquet(curated / "reserve.parquet")
    tasks[tasks["id"] != held].to_parquet(curated / "tasks.parquet")
    trace = episodes.loc[episodes["task_id"] == held, "trace_id"].iloc[0]
    episodes[episodes["task_id"] != held].to_parquet(curated / EPISODES_FILE)
    found = affected(WorkFolder(tmp_path / "run"), "trace", [trace])
    assert found.holds[curated.name].splits == {"reserve": 1}
    assert any(stage_of(name) == "evaluate" and hold.tasks == {held} for name, hold in found.holds.items())


def test_weights_that_outlive_what_they_were_made_from_keep_what_their_run_noted(finished, lineage_record, tmp_path):
    """As those of a candidate that waits, once its run's other results are freed."""
    shutil.copytree(finished[0], tmp_path / "run")
    weights = lineage_record["policies"]["rl"]["entry"]
    before = set(trace_back(WorkFolder(tmp_path / "run"), weights).learned["trace_id"])
    for entry in Store(tmp_path / "run" / "store").root.glob("*-*"):
        if entry.name != weights:
            shutil.rmtree(entry)
            (entry.parent / FACTS / f"{entry.name}.json").unlink(missing_ok=True)
    after = trace_back(WorkFolder(tmp_path / "run"), weights).learned
    assert set(after["trace_id"]) == before and after["road"].str.startswith("passed on: ").all()


def test_a_store_of_an_earlier_version_still_reads(finished, tmp_path):
    path, _, _ = finished
    old = tmp_path / "runs"
    shutil.copytree(path, old, ignore=shutil.ignore_patterns(".prefect", ".beside", "mlflow*", "artifacts"))
    for file in (old / "store" / FACTS).iterdir():
        facts = json.loads(file.read_text())
        facts.pop("made")
        file.write_text(json.dumps(facts))
    folder = WorkFolder(old)
    last = max((name for name in folder.adapters() if stage_of(name) == "update"), key=folder.finished)
    found, now = trace_back(folder, last), trace_back(WorkFolder(path), last)
    assert set(now.learned["trace_id"]) <= set(found.learned["trace_id"])
    trace = now.learned["trace_id"].iloc[0]
    assert last in affected(folder, "trace", [trace]).holds


def test_the_command_finds_an_adapter_by_every_name(finished, profile, run, tmp_path, lineage_record):
    path, _, summary = finished
    chosen = lineage_record["policies"]["rl"]
    exported = tmp_path / "exported"
    shutil.copytree(summary["adapter"], exported)
    (exported / "README.md").write_text("a card")
    names = [summary["run_id"], path / summary["run_id"], summary["adapter"], exported, chosen["adapter"]["digest"][:12]]
    name = json.loads((path / "store" / FACTS / f"{chosen['entry']}.json").read_text())["made"]["label"]
    for target in [*names, chosen["entry"], f"tracewheel-workspace/{summary['model_version']}"]:
        code, out, err = run("lineage", profile, target, "--run-dir", path, "--json", "--limit", 2)
        assert code == 0, err
        found = json.loads(out)
        same = {"digest", "weights"} & {key for key, value in found["adapter"].items() if value == chosen["adapter"].get(key)}
        assert same, (target, name)
        kinds = {node["kind"] for node in found["graph"]["nodes"]}
        assert kinds >= {"adapter", "dataset", "log file", "log line", "trace", "task"}


def test_the_command_shows_a_user(finished, profile, run):
    path, _, _ = finished
    code, out, err = run("lineage", profile, "user-003", "--run-dir", path, "--limit", 3)
    assert code == 0 and "workspace.jsonl:" in out and "(--limit 0 shows all)" in out, err
    assert len(out.splitlines()) < 60
    code, out, _ = run("lineage", profile, "user-003", "--run-dir", path, "--json")
    assert code == 0 and {"trace", "log line", "run"} <= {node["kind"] for node in json.loads(out)["graph"]["nodes"]}
    code, _, err = run("lineage", profile, "nobody", "--run-dir", path)
    assert code == 2 and "nobody" in err
    assert run("lineage", profile, "user-003", "--run-dir", path, "--limit", -1)[0] == 2


def test_the_run_notes_what_its_adapter_learned_from(finished, folder, lineage_record):
    path, _, summary = finished
    kept = pd.read_parquet(path / summary["run_id"] / "learned.parquet")
    table = trace_back(folder, lineage_record["policies"]["rl"]["entry"]).learned
    assert set(kept["trace_id"]) == set(table["trace_id"]) and lineage_record["learned"]["traces"] == kept["trace_id"].nunique()
    assert {"user", "session", "source_file", "source_line"} <= set(kept) and kept["source_line"].notna().all()
