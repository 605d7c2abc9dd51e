"""`tracewheel train-reward-model`: a reward model from a run's verified trajectories."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, Writes

if TYPE_CHECKING:
    from tracewheel import Card


def options(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder, a work folder (its latest complete run), or an id")
    parser.add_argument("--run-dir", default="runs", metavar="DIR", help="work folder in which ids are looked up")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--members", type=int, default=3, help="models of the ensemble (default: 3)")
    parser.add_argument("--epochs", type=int, default=2, help="passes over the pairs (default: 2)")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="default: 1e-4")
    parser.add_argument("--weights", choices=("full", "lora"), default="full", help="what is trained (default: full)")


def run(options: Namespace) -> dict[str, Any]:
    """Train, calibrate and test the ensemble, on the run's training tasks alone.

    Raises:
        DataError: there is no such run, or it has too few successes and failures at the same tasks.
    """
    from tracewheel import FinishedRun, outside_training, prepare_environment, produce_whole, run_named
    from tracewheel_lab.reward_model.examples import read_examples
    from tracewheel_lab.reward_model.training import RewardModelSettings, train_reward_model

    prepare_environment(None, debug=options.debug)
    finished = FinishedRun(run_named(options.run, options.run_dir))
    folders = [entry.path for entry in finished.entries]
    played = sorted({path for folder in folders for path in folder.rglob("trajectories.parquet")})
    examples = read_examples(
        # A model that has seen held-out episodes would reward in the next training what the gate asks for.
        [path for path in played if not outside_training(finished.curated, path)],
        sorted({path for folder in folders for path in folder.rglob("scores.parquet")}),
    )
    settings = RewardModelSettings(
        members=options.members, epochs=options.epochs, learning_rate=options.learning_rate, weights=options.weights
    )
    base = finished.settings["policy"]["base"]
    result = produce_whole(Path(options.out), lambda out: train_reward_model(base, examples, settings, out))
    return {
        "out": options.out,
        "run_id": finished.record.run_id,
        "examples": len(examples),
        "pairs": result["pairs"],
        "test": result["test"],
    }


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    """How well the model tells success from failure on tasks that it never saw."""
    from tracewheel import Card

    test = result["test"]
    auc = "-" if test["auc"] is None else f"{test['auc']:.2f}"
    between = "" if test["auc_interval"] is None else f" ({test['auc_interval'][0]:.2f} to {test['auc_interval'][1]:.2f})"
    rows = [
        ("verified episodes", f"{result['examples']:,}"),
        ("pairs", f"{result['pairs']:,}"),
        ("AUC on other tasks", auc + between),
        ("calibration error", f"{test['ece']:.3f}"),
        ("tested on", f"{test['episodes']} episodes of {test['tasks']} tasks"),
    ]
    return Card(f"Reward model in {result['out']}", rows, next=["tracewheel describe reward_model"])


COMMAND = Command(
    "train-reward-model",
    "train a reward model on a run's verified trajectories, and test it on other tasks",
    options,
    run,
    card,
    Writes(("reward_model.json",), ("member-*/*",)),
)
