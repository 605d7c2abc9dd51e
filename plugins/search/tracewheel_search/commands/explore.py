"""`tracewheel explore`: a training rollout in which some turns are begun by force with a call of a random tool."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, Writes, profile_words
from tracewheel_search.commands.options import add_curated, add_profile, add_schedule, profile_and_policy, training_tasks

if TYPE_CHECKING:
    from tracewheel import Card


def options(parser: ArgumentParser) -> None:
    add_profile(parser)
    add_curated(parser)
    add_schedule(parser, "epsilon", "share of the turns that are begun by force, at most 0.5")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write")


def run(options: Namespace) -> dict[str, Any]:
    """Write `trajectories.parquet` of the training tasks that the profile's sampler chooses at its start.

    Raises:
        ConfigError: the schedule leaves its bounds, or the episodes are programs of their own.
    """
    config, policy = profile_and_policy(options)
    from tracewheel import RolloutSections, SamplerSections, curated_folder, make_sampler, produce_whole, stage_shown
    from tracewheel_search.exploring import MOST, Schedule, explore

    schedule = Schedule(start=options.epsilon, end=options.epsilon_end, over=options.over).within(MOST, "epsilon")
    epsilon = schedule.at(options.iteration)
    sampler = make_sampler(SamplerSections.of(config), curated_folder(options))
    chosen = set(sampler.select(config.training.tasks_per_iteration, options.iteration))
    tasks = [task for task in training_tasks(options) if task.id in chosen]
    with stage_shown("explore", None):
        figures = produce_whole(
            Path(options.out),
            lambda out: explore(RolloutSections.of(config), policy, tasks, epsilon, out, iteration=options.iteration),
        )
    return {"out": options.out, "epsilon": epsilon, "tasks": len(tasks), **figures}


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    """How many turns were begun by force."""
    from tracewheel import Card

    rows = [
        ("episodes", f"{result['episodes']} of {result['tasks']} tasks"),
        ("epsilon", f"{result['epsilon']:.3f}"),
        ("turns begun by force", f"{result['forced_turns']} of {result['turns']}"),
        ("sampled tokens", f"{result['generated_tokens']:,}, and {result['forced_tokens']:,} forced"),
    ]
    files = f"--curated {options.curated} --trajectories {options.out}/trajectories.parquet"
    return Card(
        f"Exploration in {options.out}", rows, next=[f"tracewheel stage score {profile_words(options)} {files} --out DIR"]
    )


COMMAND = Command(
    "explore",
    "roll out on training tasks, some turns begun by force with a random tool",
    options,
    run,
    card,
    Writes(("trajectories.parquet", "metrics.json"), ()),
)
