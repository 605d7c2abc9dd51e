"""`tracewheel teach`: demonstrations by a stronger model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from typing import Any

from flows.commands.command import Command, Writes
from flows.console.arguments import curated_folder, curated_option, out_option, profile_of, profile_options, profile_words
from flows.console.look import Card, percent, written
from flows.console.stages import resumable
from tracewheel.core.errors import DataError


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    curated_option(parser)
    parser.add_argument("--tasks", type=int, metavar="N", help="only the first N training tasks")
    out_option(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Let the profile's teacher play the training tasks; an interrupted command resumes.

    Raises:
        ConfigError: the profile has no teacher.
        DataError: the curated folder is not one, or has no training task.
        InputError: the endpoint, the model or the key is wrong.
        InfrastructureError: the endpoint does not answer.
    """
    config = profile_of(options)
    curated = curated_folder(options)
    if options.tasks is not None and options.tasks < 1:
        raise DataError(f"--tasks {options.tasks}: at least 1")
    from tracewheel.config import TeachSections
    from tracewheel.curation.curated_folder import load_tasks
    from tracewheel.teacher.teach import teach

    tasks = load_tasks(curated, "train")[: options.tasks]
    if not tasks:
        raise DataError(f"--curated {curated}: has no training task")
    sections = TeachSections.of(config)
    return resumable(
        options, "teach", lambda out, journal, progress: teach(sections, tasks, out, journal=journal, progress=progress)
    )


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    taught, tasks = result["tasks_taught"], result["tasks"]
    look_at, tone = f"{taught} of {tasks} tasks have a demonstration by the teacher", "good" if taught else "bad"
    if result["stopped"]:
        look_at, tone = f"stopped: {result['stopped']}; the same command resumes", "warning"
    figures = {name: value for name, value in result.items() if name != "stopped"}
    return written(
        f"{result['demonstrations']} demonstrations by the teacher",
        figures | {"success": percent(result["success"])},
        look_at,
        tone,
        f"tracewheel stage warm-start {profile_words(options)} --curated {options.curated} "
        f"--set {shlex.quote('warm_start.extra_demonstrations=[' + result['out'] + ']')} --out data/warm_start",
    )


COMMAND = Command(
    "teach",
    "a stronger model's verified solutions of the training tasks",
    add_options,
    run,
    card,
    Writes(("episodes.parquet", "metrics.json"), ("attempts.parquet",)),
)
