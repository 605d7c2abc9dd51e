"""`tracewheel relabel`: failed episodes become episodes of the tasks that they did solve, for an update on both."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, Writes
from tracewheel_search.commands.options import (
    add_episodes,
    add_profile,
    as_played,
    episodes,
    profile_and_policy,
    update_on,
)

if TYPE_CHECKING:
    from tracewheel import Card


def options(parser: ArgumentParser) -> None:
    add_profile(parser)
    add_episodes(parser)
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write")


def run(options: Namespace) -> dict[str, Any]:
    """Write the update's `trajectories.parquet` and `scores.parquet`.

    Raises:
        DataError: files do not belong together.
        LeakError: an episode is of no training task.
        ConfigError: the episodes are programs of their own, or the environment is no `GoalFinder`.
    """
    config, policy = profile_and_policy(options)
    from tracewheel import RolloutSections, ScoreSections, curated_folder, load_tasks, produce_whole, stage_shown
    from tracewheel_search.continuing import Player
    from tracewheel_search.hindsight import check_finder, never_trained_on, relabelled

    curated = curated_folder(options)
    trajectories, scores = episodes(options)
    tasks = as_played(load_tasks(curated, "train"), Path(options.trajectories))
    check_finder(sorted({tasks[each.task_id].environment for each in trajectories}))
    player, rubric, taken = Player(RolloutSections.of(config), policy, 16), ScoreSections.of(config), never_trained_on(curated)
    with stage_shown("relabel", None):
        figures = produce_whole(
            Path(options.out), lambda out: relabelled(player, rubric, trajectories, scores, tasks, taken, out)
        )
    return {"out": options.out, "episodes": len(trajectories), **figures}


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    """How many failures solved another task."""
    from tracewheel import Card

    rows = [
        ("episodes", f"{result['episodes']}, of them {result['failed']} failed"),
        ("reached another task", f"{result['reached']}"),
        ("joined the update", f"{result['relabelled']}"),
    ]
    weighed = ' --set "learner.off_policy={proximal: recompute, correction: truncate}" --set learner.kind=rejection_sampling'
    command = update_on(options, f"{options.out}/trajectories.parquet", f"{options.out}/scores.parquet", weighed)
    return Card(f"Hindsight in {options.out}", rows, next=[command])


COMMAND = Command(
    "relabel",
    "turn failed episodes into episodes of the tasks that they did solve",
    options,
    run,
    card,
    Writes(("trajectories.parquet", "scores.parquet"), ("variants.parquet",)),
)
