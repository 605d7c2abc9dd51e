"""`tracewheel credit-tools`: scores of an update with a bonus for tools that the others of a group did not use."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, Writes, profile_words
from tracewheel_search.commands.options import (
    add_episodes,
    add_profile,
    add_schedule,
    as_played,
    check_training,
    episodes,
    profile_and_policy,
    training_tasks,
)

if TYPE_CHECKING:
    from tracewheel import Card


def options(parser: ArgumentParser) -> None:
    add_profile(parser)
    add_episodes(parser)
    parser.add_argument("--curated", required=True, metavar="DIR", help="output of curate")
    add_schedule(parser, "bonus", "the most that an episode earns, at most 0.25")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write")


def run(options: Namespace) -> dict[str, Any]:
    """Write `scores.parquet` with the bonus.

    Raises:
        ConfigError: the schedule leaves its bounds.
        DataError: files do not belong together.
        LeakError: an episode is of no training task.
    """
    profile_and_policy(options)
    from tracewheel import Score, produce_whole, stage_shown, write_records
    from tracewheel_search.exploring import Schedule
    from tracewheel_search.tool_bonus import MOST, PART, with_bonus

    weight = Schedule(start=options.bonus, end=options.bonus_end, over=options.over).within(MOST, "bonus").at(options.iteration)
    tasks = as_played(training_tasks(options), Path(options.trajectories))
    trajectories, scores = episodes(options)
    check_training(trajectories, tasks, options.trajectories)
    with stage_shown("credit-tools", None):
        found = with_bonus(trajectories, scores, weight)
        produce_whole(Path(options.out), lambda out: write_records(out / "scores.parquet", found, Score))
    given = [item.breakdown[PART] for item in found if PART in item.breakdown]
    mean = sum(given) / len(given) if given else 0.0
    return {"out": options.out, "weight": weight, "scores": len(found), "given": sum(map(bool, given)), "mean": mean}


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    """How many episodes have a bonus."""
    from tracewheel import Card

    rows = [
        ("at most", f"{result['weight']:.3f}"),
        ("episodes with a bonus", f"{result['given']} of {result['scores']}"),
        ("mean", f"{result['mean']:.3f}"),
    ]
    files = f"--trajectories {options.trajectories} --scores {options.out}/scores.parquet"
    command = f"tracewheel stage update {profile_words(options)} {files} --state {options.state} --reference DIR --out DIR"
    return Card(f"Scores in {options.out}", rows, next=[command])


COMMAND = Command(
    "credit-tools",
    "add a bonus for tools that the others of a group did not use",
    options,
    run,
    card,
    Writes(("scores.parquet",), ()),
)
