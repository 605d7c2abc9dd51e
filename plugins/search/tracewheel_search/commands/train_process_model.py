"""`tracewheel train-process-model`: values of turns by playing on from them, and a model that tells them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, Writes, profile_words
from tracewheel_search.commands.options import (
    add_budget,
    add_episodes,
    add_profile,
    as_played,
    count,
    episodes,
    profile_and_policy,
    training_tasks,
)

if TYPE_CHECKING:
    from tracewheel import Card


def options(parser: ArgumentParser) -> None:
    add_profile(parser)
    add_budget(parser)
    add_episodes(parser)
    parser.add_argument("--continuations", type=count, default=4, metavar="K", help="tries from each turn (default: 4)")
    parser.add_argument(
        "--where", choices=("every", "uncertain"), default="every", help="try every turn, or around the least sure ones"
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write")


def run(options: Namespace) -> dict[str, Any]:
    """Try the turns, fit the model and test it on other tasks.

    Raises:
        DataError: files do not belong together, or there are too few tasks.
        LeakError: an episode is of no training task.
    """
    config, policy = profile_and_policy(options)
    from tracewheel import RolloutSections, produce_whole, stage_shown, success_of, write_json
    from tracewheel_search.continuing import Player
    from tracewheel_search.process_model import HiddenStates, steps_of, train
    from tracewheel_search.step_values import StepSettings, step_values

    tasks = as_played(training_tasks(options), Path(options.trajectories))
    trajectories, scores = episodes(options)
    known = [(each, None if item.total is None else success_of(item)) for each, item in zip(trajectories, scores, strict=True)]
    settings = StepSettings(budget=options.budget, continuations=options.continuations, where=options.where, seed=config.seed)

    def make(out: Path) -> dict[str, Any]:
        player = Player(RolloutSections.of(config), policy, 128)
        values, tried = step_values(config, player, tasks, known, settings, out / "tries")
        write_json(out / "step_values.json", [asdict(each) for each in values])
        hidden = HiddenStates(config, policy)
        tested = {each.trajectory for each in values if each.tried}
        features = {each.id: hidden.of(each) for each in trajectories if each.id in tested}
        model, figures = train(steps_of(values, features), config.seed)
        model.save(out, {"test": figures, "tried": tried})
        return {**tried, "test": figures}

    with stage_shown("train-process-model", None):
        return {"out": options.out, **produce_whole(Path(options.out), make)}


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    """How well values are told on tasks that the model never saw."""
    from tracewheel import Card, Grid

    test = result["test"]
    low, high = test["gain_interval"]
    rows = [
        ("sampled tokens", f"{result['sampled_tokens']:,} of {options.budget:,}"),
        ("turns tried", f"{result['steps']}, {result['continuations']} continuations"),
        ("Brier score", f"{test['brier']:.3f} ({test['brier_by_turn_alone']:.3f} by the number of turns alone)"),
        ("gain", f"{test['gain']:+.3f} ({low:+.3f} to {high:+.3f})"),
        ("calibration error", f"{test['ece']:.3f}"),
    ]
    by_turn = [
        (turn, f"{each['steps']}", f"{each['success']:.2f}", f"{each['brier']:.3f}", f"{each['ece']:.3f}")
        for turn, each in test["by_turn"].items()
    ]
    grid = Grid(("after turns", "steps", "success", "Brier", "ECE"), by_turn)
    files = f"--state {options.state} --trajectories {options.trajectories} --scores {options.scores}"
    following = f"tracewheel credit-turns {profile_words(options)} {files} --model {options.out} --out DIR"
    return Card(f"Process model in {result['out']}", rows, [grid], next=[following])


COMMAND = Command(
    "train-process-model",
    "value the turns of episodes by playing on from them, and train a model of these values",
    options,
    run,
    card,
    Writes(("process_model.json", "step_values.json"), ("tries/*/*",)),
)
