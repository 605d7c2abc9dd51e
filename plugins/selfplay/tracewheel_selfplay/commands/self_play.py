"""`tracewheel self-play`: one policy proposes tasks, another learns on them, and the gate judges the solver."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, DataError, Writes, profile_of, profile_options, profile_words

if TYPE_CHECKING:
    from tracewheel import Card

RESULT_FILE, SHOWN = "result.json", 8


def options(parser: ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument(
        "--curated", required=True, metavar="DIR", help="output of curate, whose held-out tasks judge the solver"
    )
    parser.add_argument("--state", required=True, metavar="DIR", help="the solver to begin with: output of a warm start")
    parser.add_argument(
        "--challenger", metavar="DIR", help="the challenger to begin with (default: one that proposes at random)"
    )
    parser.add_argument("--challenger-profile", metavar="CONFIG", help="by which the challenger learns (default: the solver's)")
    parser.add_argument("--at-random", action="store_true", help="propose at random all the time: the control")
    parser.add_argument("--tokens", type=int, metavar="N", help="stop after the round in which the solver has sampled N tokens")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write; replaced if it exists")


def run(options: Namespace) -> dict[str, Any]:
    """Play the rounds, and let the gate judge the solver against the one that it began as.

    Raises:
        ConfigError: the environment generates no tasks, or the gate waits for an audit.
        DataError: a folder is missing, or the options contradict each other.
    """
    config = profile_of(options, "policy.base", "environment.kind")
    from tracewheel import curated_folder, folder_of, resolve_config, write_json
    from tracewheel_selfplay.proposals import maker_of
    from tracewheel_selfplay.rounds import begin, check_start, judge
    from tracewheel_selfplay.self_play import SelfPlay, taught_to_propose

    if options.at_random and options.challenger:
        raise DataError("--at-random has no challenger: leave --challenger away")
    if options.tokens is not None and options.tokens < 1:
        raise DataError(f"--tokens {options.tokens}: a number from 1")
    curated, start, out = curated_folder(options), folder_of(options.state, "--state"), Path(options.out)
    its = resolve_config(options.challenger_profile, [], None) if options.challenger_profile else config
    proposer = folder_of(options.challenger, "--challenger") if options.challenger else None
    maker_of(config.environment.spec)
    check_start(config, out, curated, start, *([proposer] if proposer else []))
    begin(config, out)
    if proposer is None and not options.at_random:
        proposer = taught_to_propose(its, config.environment.spec, out / "taught")
    found = SelfPlay(config, curated, out / "rounds", proposer, its).run(start, options.tokens)
    verdict = judge(config, {"start": start, "self-play": Path(found["state"])}, curated, out / "held_out")
    result = {"out": options.out, **found, **verdict}
    write_json(out / RESULT_FILE, result)
    return result


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    from tracewheel import Card, Grid

    rounds = result["rounds"]
    rows = [
        (
            str(number),
            str(each["different"]),
            ", ".join(f"{name} ({count})" for name, count in sorted(each["clusters"].items(), key=lambda one: -one[1])[:3]),
            str(sum(each["refused"].values())),
            "–" if each["success"] is None else f"{each['success']:.1%}",
            f"{each.get('learnability', 0.0):.2f}",
        )
        for number, each in list(enumerate(rounds, 1))[-SHOWN:]
    ]
    figures = [
        (name, " and ".join("–" if one is None else f"{one:.1%}" for one in rates)) for name, rates in result["rates"].items()
    ]
    headings = ("round", "proposals", "most frequent", "refused", "solved", "reward of the challenger")
    tone = "good" if result["verdict"] == "promoted" else "warning"
    again = [
        f"tracewheel evaluate {profile_words(options)} --curated {options.curated} --state {result['state']} --out evaluation"
    ]
    return Card(
        f"Self-play, {len(rounds)} rounds: {result['verdict']}", figures, [Grid(headings, rows)], result["says"], tone, again
    )


COMMAND = Command(
    "self-play",
    "one policy proposes tasks, another learns on them; verifiers and the gate decide",
    options,
    run,
    card,
    Writes(("begun.json",), (RESULT_FILE, "rounds/*", "held_out/*", "taught/*")),
)
