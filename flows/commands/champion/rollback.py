"""`tracewheel champion rollback`: the champion that the present one replaced."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from flows.commands.command import Command
from flows.console.arguments import note, profile_of, profile_options, profile_words
from flows.console.look import Card


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument("--to", metavar="VERSION", help="restore this version, which was champion (default: the one before)")
    parser.add_argument("--why", metavar="TEXT", help="the reason, kept with the version that is rolled back")


def run(options: argparse.Namespace) -> dict[str, Any]:
    config = profile_of(options, "policy.base", prefect=True)
    from flows.wheel_stages import bring
    from tasks.tracking.rollback import roll_back
    from tasks.tracking.tracking import require_mlflow

    require_mlflow(config, "champion rollback", note)
    result = roll_back(config, options.to, options.why)
    bring(config, note)
    return result


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    return Card(
        f"Version {result['restored']}, of run {result['run_id']}, is champion again",
        look_at=f"version {result['rolled_back']} is marked as rolled back: {result['why']}",
        next=[f"tracewheel runs status {profile_words(options)}"],
    )


COMMAND = Command("champion rollback", "restore the champion that the present one replaced", add_options, run, card)
