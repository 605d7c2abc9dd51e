"""`tracewheel stage warm-start`: supervised fine-tuning on logged episodes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from flows.commands.command import Command
from flows.console.arguments import (
    curated_folder,
    curated_option,
    leak_option,
    out_option,
    profile_options,
    profile_words,
    warn_of_leaks,
)
from flows.console.look import Card, number, written
from flows.console.stages import POLICY_OUT, produced, stage_profile


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    curated_option(parser)
    parser.add_argument(
        "--demonstrations", choices=("verified", "all", "replay", "none"), help="default: the profile's setting"
    )
    leak_option(parser)
    out_option(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    config = stage_profile(options, "policy.base")
    curated = curated_folder(options)
    from tracewheel.config import WarmStartSections
    from tracewheel.curation.leaks import check_curated
    from tracewheel.learner.warm_start.stage import warm_start

    warn_of_leaks(check_curated(curated, config.curation))
    kind = options.demonstrations or config.warm_start.demonstrations
    sections = WarmStartSections.of(config)
    return produced(options, config, "warm_start", lambda out: warm_start(sections, curated, out, kind))


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    profile, few = f"{profile_words(options)} --curated {options.curated}", not result["steps"]
    return written(
        f"Warm start on {number(result['demonstrations'])} demonstrations",
        result,
        "nothing was learnt: no step was taken" if few else "",
        "bad" if few else "good",
        f"tracewheel evaluate {profile} --split validation --state {result['out']} --out {result['out']}-validation",
        f"tracewheel stage improve {profile} --start {result['out']} --out data/rl",
    )


COMMAND = Command("stage warm-start", "supervised fine-tuning on logged episodes", add_options, run, card, POLICY_OUT)
