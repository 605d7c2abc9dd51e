"""`tracewheel preview`: estimate what a challenger would score on logged traffic, before it serves any."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, DataError, DoubtfulData, profile_of, profile_options, profile_words

if TYPE_CHECKING:
    from tracewheel import Card

NAMES = {
    "doubly_robust": "doubly robust",
    "self_normalised": "self-normalised importance sampling",
    "per_decision": "per decision",
}


def options(parser: ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument("--state", required=True, metavar="DIR", help="the challenger: output of warm-start or an update")
    parser.add_argument("--trajectories", nargs="+", metavar="FILE", help="trajectories.parquet of rollouts that were sampled")
    parser.add_argument("--scores", nargs="+", metavar="FILE", help="their scores.parquet")
    parser.add_argument("--traces", metavar="DIR", help="output of ingest, whose traces have tokens and outcomes")
    parser.add_argument("--temperature", type=float, help="the challenger's temperature (default: that of each episode)")
    parser.add_argument(
        "--min-effective", type=float, default=100.0, metavar="N", help="refuse below N effective episodes (100)"
    )


def run(options: Namespace) -> dict[str, Any]:
    """Estimate the challenger's mean reward.

    Raises:
        DoubtfulData: too few episodes count, or the log does not hold enough of what the challenger does.
        DataError: the files are not what the options ask for, or no episode can be used.
    """
    config = profile_of(options, "policy.base")
    from tracewheel import folder_of, policy_of, stage_shown
    from tracewheel_lab.logged_episodes import PreviewPlan, preview_policy
    from tracewheel_lab.off_policy import Limits

    limits = Limits(effective=options.min_effective)
    plan = PreviewPlan(policy_of(folder_of(options.state, "--state"), config.policy.base), options.temperature, limits)
    with stage_shown("preview", None):
        result = {"state": options.state, **preview_policy(config, _episodes(options), plan)}
    if result["refusal"]:
        raise DoubtfulData(f"no estimate: {result['refusal']}", result)
    return result


def _episodes(options: Namespace) -> Any:
    from tracewheel import folder_of, read_scored_trajectories
    from tracewheel_lab.logged_episodes import TRACES_FOLDER, episodes_of_traces

    if bool(options.traces) == bool(options.trajectories) or bool(options.trajectories) != bool(options.scores):
        raise DataError("give --traces, or --trajectories with their --scores")
    if options.traces:
        return episodes_of_traces([folder_of(options.traces, "--traces") / TRACES_FOLDER])
    files = [Path(name) for name in (*options.trajectories, *options.scores)]
    if missing := [file for file in files if not file.is_file()]:
        raise DataError(f"{missing[0]}: no such file")
    count = len(options.trajectories)
    return read_scored_trajectories(files[:count], files[count:])


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    from tracewheel import Card, Grid

    rows = [
        (NAMES[name], f"{each['value']:.3f}", _ends(each["interval"]), f"{each['gain']:+.3f}", _ends(each["gain_interval"]))
        for name, each in result["estimates"].items()
    ]
    best = result["estimates"]["doubly_robust"]
    look_at, tone = f"its mean reward changes by {best['gain']:+.3f}, 95% interval {_ends(best['gain_interval'])}", "good"
    if result["refusal"]:
        look_at, tone = "these estimates are not to be relied on", "bad"
    again = f"tracewheel evaluate {profile_words(options)}"
    left_out = ", ".join(f"{count}: {reason}" for reason, count in result["left_out"].items())
    return Card(
        f"{result['state']} on {result['episodes']} logged episodes of {result['tasks']} tasks",
        [
            ("logged mean reward", f"{result['logged']:.3f}"),
            ("effective episodes", f"{result['effective']:.1f} (tasks or users {result['effective_tasks']:.1f})"),
            ("mean weight", "not finite" if result["mean_weight"] is None else f"{result['mean_weight']:.2f}"),
            ("not in the log", f"{result['unseen']:.1%}"),
            *([("left out", left_out)] if left_out else []),
        ],
        [Grid(("estimate", "mean reward", "95% interval", "gain", "95% interval"), rows)],
        look_at,
        tone,
        [f"{again} --curated DIR --split validation --state {result['state']} --out DIR"],
    )


def _ends(interval: list[float | None]) -> str:
    return " to ".join("–" if end is None else f"{end:+.3f}" for end in interval)


COMMAND = Command("preview", "estimate what a policy would score on logged episodes before it serves any", options, run, card)
