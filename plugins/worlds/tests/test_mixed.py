"""The whole loop on two environments at once, with a tiny base of both: small, and with next to no training."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from flows.retrain import retrain
from tracewheel_projects import BasePolicyConfig, train_base_policy

WHEEL = Path(__file__).parents[1]
SHORT = {
    "warm_start.epochs": 1, "training.iterations": 1, "training.tasks_per_iteration": 6, "training.validate_every": 1,
    "rollout.group_size": 2, "curation.train_tasks": 24, "curation.validation_tasks": 8, "curation.held_out_tasks": 24,
    "curation.harder_tasks": 8, "evaluation.samples": 1, "evaluation.pass_at": [1],
    "threads": 1, "gate.min_pairs": 2,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_harness")
def test_two_environments_go_through_the_whole_loop(tmp_path):
    phase = {"skills": {"assistant.repeat": 1, "retrieval.repeat": 1}, "conversations": 60, "steps": 30}
    config = BasePolicyConfig.model_validate(
        {
            "world": "mixed", "threads": 1, "hidden_size": 32, "layers": 1, "heads": 2, "kv_heads": 1, "feed_forward": 48,
            "batch_tokens": 1024, "replay_rows": 400, "complete_share": 0.5, "phases": [phase],
            "complete_families": ["assistant.share", "retrieval.fact"],
        }
    )  # fmt: skip
    train_base_policy(config, tmp_path / "base")
    values = yaml.safe_load((WHEEL / "configs" / "mixed.yaml").read_text())
    values["policy"]["base"] = str(tmp_path / "base")
    values["warm_start"]["replay"]["path"] = values["learner"]["replay_path"] = str(tmp_path / "base" / "replay.parquet")
    values["ingest"]["paths"] = []
    for world in ("assistant", "retrieval"):
        logs = tmp_path / f"{world}.jsonl"
        subprocess.run([sys.executable, "-m", "tracewheel_worlds.make_traces", world, "--out", str(logs)], check=True)
        values["ingest"]["paths"].append(str(logs))
    profile = tmp_path / "mixed.yaml"
    profile.write_text(yaml.safe_dump(values))
    settings = [f"{key}={value}" for key, value in SHORT.items()]
    summary = retrain(str(profile), settings, str(tmp_path / "runs"))
    assert {"base", "warm_start_verified", "rl"} <= summary["success"].keys()
    (curated,) = (tmp_path / "runs" / "store").glob("curate-*/tasks.parquet")
    tasks = pd.read_parquet(curated)
    for _, of_split in tasks.groupby("split"):
        assert set(of_split["environment"]) == {"assistant", "retrieval"}
    (scores,) = (tmp_path / "runs" / "store").glob("score-*/scores.parquet")
    assert set(pd.read_parquet(scores)["environment"]) <= {"assistant", "retrieval"}
