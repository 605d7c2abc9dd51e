"""A whole run with the self-evolving curriculum, several objectives and turn rewards."""

import json

import pandas as pd
import pytest
import yaml

from tracewheel.curation.leaks import check_leaks

pytestmark = pytest.mark.slow

SETTINGS = {
    "rubric": {
        "turn_rewards": True,
        "objectives": [
            {"kind": "part", "name": "success", "part": "success"},
            {"kind": "part", "name": "safety", "part": "workspace.untouched", "weight": 0.3},
            {"kind": "cost", "name": "thrift", "measure": "turns", "budget": 20, "weight": 0.1},
        ],
    },
    "sampler": {"kind": "self_evolving"},
    "training": {"iterations": 3, "tasks_per_iteration": 6, "validate_every": 2},
}
LEARNER = {
    "credit": {"kind": "turn", "discount": 0.9},
}


@pytest.fixture(scope="module")
def evolved(profile, command, tmp_path_factory):
    """The folder of the run, its profile, and what `--json` printed."""
    values = yaml.safe_load(profile.read_text())
    folder = tmp_path_factory.mktemp("evolved")
    values |= SETTINGS | {"learner": values["learner"] | LEARNER}
    path = folder / "evolving.yaml"
    path.write_text(yaml.safe_dump(values))
    done = command("retrain", path, "--run-dir", folder / "run", "--json")
    assert done.returncode in (0, 3), done.stderr
    return folder / "run", path, json.loads(done.stdout)


def test_variants_are_rolled_out_and_scored_but_are_in_no_split(evolved):
    folder, _, _ = evolved
    tasks = pd.read_parquet(next(folder.glob("store/curate-*/tasks.parquet")))
    files = list(folder.glob("store/rollout-*/variants.parquet"))
    assert files, "some task failed, so there are variants from the second iteration on"
    made = pd.concat([pd.read_parquet(file) for file in files]).drop_duplicates("id")
    assert not set(made["fingerprint"]) & set(tasks["fingerprint"])
    check_leaks(pd.concat([tasks, made.assign(split="train")]), pd.DataFrame({"task_id": [], "split": []}))
    scores = pd.concat([pd.read_parquet(file) for file in folder.glob("store/score-*/scores.parquet")])
    of_variants = scores[scores["task_id"].isin(made["id"])]
    assert len(of_variants) and set(of_variants["status"]) == {"scored"}
    scored = scores[scores["status"] == "scored"]
    assert [sum(rewards) for rewards in scored["turn_rewards"]] == pytest.approx(scored["total"].tolist())
    state = json.loads((folder / "sampler.json").read_text())
    assert {item["task"]["id"] for item in state["curriculum"]["variants"]} - set(tasks["id"])


def test_the_plan_of_the_same_run_finds_everything_stored(evolved, command):
    """The curriculum is computed again from the stored scores: with other tasks, stages would be missing."""
    folder, profile, _ = evolved
    done = command("retrain", profile, "--run-dir", folder, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["complete"]


def test_the_pareto_front_is_in_the_summary_and_the_report(evolved):
    folder, _, summary = evolved
    front = summary["pareto"]
    assert [point["name"] for point in front] == ["warm_start_verified", "rl-2", "rl-3"]
    assert any(point["on_front"] for point in front)
    assert all(set(point["objectives"]) == {"success", "safety", "thrift"} for point in front)
    assert "Pareto front" in (folder / summary["run_id"] / "report.html").read_text()
