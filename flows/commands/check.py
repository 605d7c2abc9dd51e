"""`tracewheel check`: whether a profile can run, in seconds, before anything is trained."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flows.commands.command import Command
from flows.console.arguments import profile_of, profile_options
from flows.console.look import Card, Grid
from tracewheel.core.errors import UnfitProfile


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Check a profile on its first logs, without its model.

    Raises:
        ConfigError: the profile cannot be read.
        UnfitProfile: something stands in the way of a run.
    """
    config = profile_of(options)
    from tasks.records.beforehand import work_folder_lines
    from tracewheel.operations.preflight import preflight

    config.require_run()
    lines = [*preflight(config), *work_folder_lines(config)]
    result = {"profile": options.config, "lines": [asdict(line) for line in lines]}
    if wrong := [line.name for line in lines if line.state == "error"]:
        raise UnfitProfile(f"{options.config}: {', '.join(wrong)}", {**result, "show": card(options, result)})
    return result


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    rows = [(line["name"], line["state"], line["says"], line["advice"]) for line in result["lines"]]
    states = {line["state"] for line in result["lines"]}
    tone = "bad" if "error" in states else "warning" if "warning" in states else "good"
    look_at = {"bad": "a run would fail", "warning": "a run is possible", "good": "nothing stands in the way of a run"}[tone]
    profile = Path(result["profile"])
    elsewhere = profile.parent.resolve() != Path.cwd()  # its paths and classes are looked for where the command starts
    again = [f"cd {shlex.quote(str(profile.parent))} && tracewheel check {shlex.quote(profile.name)}"] if elsewhere else []
    return Card(
        f"Profile {result['profile']}",
        (),
        [Grid(("check", "state", "found", "what to do"), rows, figures=False)],
        look_at,
        tone,
        again if tone == "bad" else [f"tracewheel retrain {result['profile']}"],
    )


COMMAND = Command(
    "check", "whether a profile can run: classes, logs, replays, prompts, gate; in seconds", profile_options, run, card
)
