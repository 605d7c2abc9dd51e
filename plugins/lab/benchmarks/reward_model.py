"""A reward model of the tiny base, on tasks that it never saw: does it tell success from failure?

Plays generated workspace tasks with the shipped base, scores the episodes with the workspace's verifier, trains an ensemble on
60% of the tasks, calibrates it on 20% and prints its figures on the last 20%.

    python reward_model.py --tasks 400 --samples 8
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from tracewheel.config import RetrainConfig, RolloutSections, ScoreSections
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.rollout import RolloutPlan, rollout
from tracewheel.scoring.score import score
from tracewheel_lab.reward_model.examples import read_examples
from tracewheel_lab.reward_model.training import RewardModelSettings, train_reward_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default="data/base")
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--work", type=Path, default=None, help="where episodes and models are kept")
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp())
    profile = {
        "name": "reward-model",
        "threads": 1,
        "policy": {"base": options.base},
        "environment": {"kind": "workspace"},
        "rollout": {"engine": {"kind": "transformers", "slots": 256}, "max_tokens": 400, "max_turn_tokens": 48},
    }
    config = RetrainConfig.model_validate(profile)
    tasks = WorkspaceEnvironment().make_tasks(options.tasks, 0)
    episodes = work / "trajectories.parquet"
    if not episodes.exists():
        rollout(RolloutSections.of(config), PolicyRef(options.base), RolloutPlan(tasks, options.samples, seed=0), work)
        score(ScoreSections.of(config), tasks, episodes, work)
    examples = read_examples([episodes], [work / "scores.parquet"])
    settings = RewardModelSettings(members=options.members, epochs=options.epochs, learning_rate=options.learning_rate)
    about = train_reward_model(options.base, examples, settings, work / "reward_model")
    print(json.dumps({"examples": len(examples), "pairs": about["pairs"], "test": about["test"]}, indent=1))


if __name__ == "__main__":
    main()
