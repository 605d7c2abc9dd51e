"""`tracewheel replay`: groups of earlier rollouts join the files of an update."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, Writes, profile_words
from tracewheel_search.commands.options import (
    add_episodes,
    add_profile,
    count,
    episodes,
    episodes_of,
    positive,
    profile_and_policy,
)

if TYPE_CHECKING:
    from tracewheel import Card


def options(parser: ArgumentParser) -> None:
    add_profile(parser)
    add_episodes(parser)
    parser.add_argument(
        "--earlier", nargs=2, action="append", required=True, metavar=("TRAJECTORIES", "SCORES"),
        help="files of an earlier rollout and its scores; give it once for each",
    )  # fmt: skip
    parser.add_argument("--groups", type=count, default=16, metavar="N", help="most groups that are replayed (default: 16)")
    parser.add_argument(
        "--half-life", type=positive, default=2.0, metavar="N", help="updates after which a group counts half (default: 2)"
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write")


def run(options: Namespace) -> dict[str, Any]:
    """Write the update's `trajectories.parquet` and `scores.parquet`.

    Raises:
        ConfigError: the learner would not correct for the policies that sampled, or has no bound on age.
        DataError: files do not belong together.
    """
    config, policy = profile_and_policy(options)
    from tracewheel import produce_whole, stage_shown
    from tracewheel_search.replay import ReplaySettings, most_stale, replayed

    bound, settings = most_stale(config), ReplaySettings(groups=options.groups, half_life=options.half_life)
    fresh, version = episodes(options), policy.version
    earlier = [episodes_of(Path(one), Path(other)) for one, other in options.earlier]
    with stage_shown("replay", None):
        figures = produce_whole(
            Path(options.out), lambda out: replayed(fresh, earlier, version, bound, settings, config.seed, out)
        )
    return {"out": options.out, "fresh": len(fresh[0]), "version": version, "max_age": bound, **figures}


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    """How many groups are replayed, and why others are not."""
    from tracewheel import Card

    age = "" if result["mean_age"] is None else f", {result['mean_age']:.1f} updates old on average"
    rows = [
        ("fresh episodes", f"{result['fresh']}"),
        ("earlier groups", f"{result['groups']}"),
        ("replayed", f"{result['replayed']} groups{age}"),
        (f"older than {result['max_age']}", f"{result['too_old']}"),
        ("without a success", f"{result['without_success']}"),
        ("all alike", f"{result['alike']}"),
        ("of other policies", f"{result['unknown']}"),
    ]
    files = f"--trajectories {options.out}/trajectories.parquet --scores {options.out}/scores.parquet"
    command = f"tracewheel stage update {profile_words(options)} {files} --state {options.state} --reference DIR --out DIR"
    return Card(f"Replay in {options.out}", rows, next=[command])


COMMAND = Command(
    "replay",
    "add groups of earlier rollouts to an update, drawn by reward and age",
    options,
    run,
    card,
    Writes(("trajectories.parquet", "scores.parquet"), ()),
)
