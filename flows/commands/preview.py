"""`tracewheel preview`: what a challenger would score on logged traffic, before it serves any."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.commands.command import Command
from flows.console.arguments import folder_of, profile_of, profile_options, profile_words
from flows.console.look import Card, Grid
from tracewheel.core.errors import DataError, DoubtfulData

NAMES = {
    "doubly_robust": "doubly robust",
    "self_normalised": "self-normalised importance sampling",
    "per_decision": "per decision",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument("--state", required=True, metavar="DIR", help="the challenger: output of warm-start or an update")
    parser.add_argument("--trajectories", nargs="+", metavar="FILE", help="trajectories.parquet of rollouts that were sampled")
    parser.add_argument("--scores", nargs="+", metavar="FILE", help="their scores.parquet")
    parser.add_argument("--traces", metavar="DIR", help="output of ingest, whose traces have tokens and outcomes")
    parser.add_argument("--temperature", type=float, help="the challenger's temperature (default: that of each episode)")
    parser.add_argument("--min-effective", type=float, default=50.0, metavar="N", help="refuse below N effective episodes (50)")
    parser.add_argument("--clip", type=float, metavar="W", help="cut weights at W times their mean (default: do not)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel preview`.

    Raises:
        DoubtfulData: too few episodes count.
        DataError: the files are not what the options ask for, or no episode can be used.
    """
    config = profile_of(options, "policy.base")
    state = folder_of(options.state, "--state")
    from flows.console.progress import stage_shown
    from tracewheel.config import EngineSections
    from tracewheel.evaluation.off_policy import Limits
    from tracewheel.evaluation.preview import PreviewPlan, preview_policy
    from tracewheel.policy.adapters import policy_of

    limits = Limits(effective=options.min_effective, clip=options.clip)
    plan = PreviewPlan(policy_of(state, config.policy.base), options.temperature, limits)
    with stage_shown("preview", None):
        result = {"state": options.state, **preview_policy(EngineSections.of(config), _episodes(options), plan)}
    if result["refusal"]:
        raise DoubtfulData(f"no estimate: {result['refusal']}", result)
    return result


def _episodes(options: argparse.Namespace) -> Any:
    from tracewheel.evaluation.preview import episodes_of_traces
    from tracewheel.learner.scored_trajectories import read_scored_trajectories
    from tracewheel.traces.ingested_folder import TRACES_FOLDER

    if bool(options.traces) == bool(options.trajectories) or bool(options.trajectories) != bool(options.scores):
        raise DataError("give --traces, or --trajectories with their --scores")
    if options.traces:
        return episodes_of_traces([folder_of(options.traces, "--traces") / TRACES_FOLDER])
    files = [Path(name) for name in (*options.trajectories, *options.scores)]
    if missing := [file for file in files if not file.is_file()]:
        raise DataError(f"{missing[0]}: no such file")
    count = len(options.trajectories)
    return read_scored_trajectories(files[:count], files[count:])


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    """What the command says on a terminal."""
    rows = [
        (NAMES[name], f"{each['value']:.3f}", _ends(each["interval"]), f"{each['gain']:+.3f}", _ends(each["gain_interval"]))
        for name, each in result["estimates"].items()
    ]
    best = result["estimates"]["doubly_robust"]
    look_at, tone = f"its mean reward changes by {best['gain']:+.3f}, 95% interval {_ends(best['gain_interval'])}", "good"
    if result["refusal"]:
        look_at, tone = "these estimates are not to be relied on", "bad"
    left_out = ", ".join(f"{count}: {reason}" for reason, count in result["left_out"].items())
    return Card(
        f"{result['state']} on {result['episodes']} logged episodes of {result['tasks']} tasks",
        [
            ("logged mean reward", f"{result['logged']:.3f}"),
            ("effective episodes", f"{result['effective']:.1f} (tasks {result['effective_tasks']:.1f})"),
            *([("weights cut", f"{result['clipped']:.1%}")] if result["clipped"] else []),
            *([("left out", left_out)] if left_out else []),
        ],
        [Grid(("estimate", "mean reward", "95% interval", "gain", "95% interval"), rows)],
        look_at,
        tone,
        [f"tracewheel evaluate {profile_words(options)} --curated DIR --split validation --state {result['state']} --out DIR"],
    )


def _ends(interval: list[float | None]) -> str:
    return " to ".join("–" if end is None else f"{end:+.3f}" for end in interval)


COMMAND = Command("preview", "estimate a policy's score from logs", add_options, run, card)
