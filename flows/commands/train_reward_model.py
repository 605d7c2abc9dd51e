"""`tracewheel train-reward-model`: a grader that is a model, measured before it is used."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.commands.command import Command, Writes
from flows.console.arguments import out_option, run_options
from flows.console.look import Card, number


def add_options(parser: argparse.ArgumentParser) -> None:
    run_options(parser)
    out_option(parser, "folder to write")
    parser.add_argument("--members", type=int, default=3, help="models of the ensemble (default: 3)")
    parser.add_argument("--epochs", type=int, default=2, help="passes over the pairs (default: 2)")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="default: 1e-4")
    parser.add_argument("--weights", choices=("full", "lora"), default="full", help="what is trained (default: full)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel train-reward-model`.

    Raises:
        DataError: there is no such run, or it has too few successes and failures at the same tasks.
    """
    from flows.setup import prepare_environment
    from tracewheel.comparison.finished_run import FinishedRun
    from tracewheel.config import load_stored_config
    from tracewheel.core.named_run import run_named
    from tracewheel.core.store import produce_whole
    from tracewheel.learner.reward_model.examples import read_examples
    from tracewheel.learner.reward_model.training import RewardModelSettings, train_reward_model

    prepare_environment(None, debug=options.debug)
    record = run_named(options.run, options.run_dir)
    folders = [entry.path for entry in FinishedRun(record).entries]
    examples = read_examples(
        sorted({path for folder in folders for path in folder.rglob("trajectories.parquet")}),
        sorted({path for folder in folders for path in folder.rglob("scores.parquet")}),
    )
    settings = RewardModelSettings(
        members=options.members, epochs=options.epochs, learning_rate=options.learning_rate, weights=options.weights
    )
    base = load_stored_config(record.path).policy.base
    result = produce_whole(Path(options.out), lambda out: train_reward_model(base, examples, settings, out))
    return {
        "out": options.out,
        "run_id": record.run_id,
        "examples": len(examples),
        "pairs": result["pairs"],
        "test": result["test"],
    }


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    """How well a reward model tells success from failure on tasks that it never saw."""
    test = result["test"]
    auc = "-" if test["auc"] is None else f"{test['auc']:.2f}"
    between = "" if test["auc_interval"] is None else f" ({test['auc_interval'][0]:.2f} to {test['auc_interval'][1]:.2f})"
    rows = [
        ("verified episodes", number(result["examples"])),
        ("pairs", number(result["pairs"])),
        ("AUC on other tasks", auc + between),
        ("calibration error", f"{test['ece']:.3f}"),
        ("tested on", f"{test['episodes']} episodes of {test['tasks']} tasks"),
    ]
    return Card(f"Reward model in {result['out']}", rows, next=["tracewheel describe reward_model"])


COMMAND = Command(
    "train-reward-model",
    "train a reward model on a run's verified trajectories, and show how far it can be believed on other tasks",
    add_options,
    run,
    card,
    Writes(("reward_model.json",), ("member-*/*",)),
)
