"""`tracewheel stage update`: one policy update on scored trajectories. Under torchrun it runs on every process."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.commands.command import Command
from flows.console.arguments import (
    curated_folder,
    curated_option,
    folder_of,
    note,
    out_option,
    profile_options,
    profile_words,
)
from flows.console.look import Card, number, written
from flows.console.stages import POLICY_OUT, produced, stage_profile


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    curated_option(parser)
    parser.add_argument("--trajectories", required=True, metavar="FILE", help="trajectories.parquet of a rollout")
    parser.add_argument("--scores", required=True, metavar="FILE", help="scores.parquet of a scoring")
    parser.add_argument("--state", required=True, metavar="DIR", help="output of the previous update or of the warm start")
    parser.add_argument("--reference", required=True, metavar="DIR", help="adapter that KL is measured to")
    parser.add_argument("--iteration", type=int, default=1)
    out_option(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    config = stage_profile(options, "policy.base")
    state, reference = folder_of(options.state, "--state"), folder_of(options.reference, "--reference")
    from tracewheel.config import UpdateSections
    from tracewheel.curation.leaks import check_training
    from tracewheel.learner.backends.processes import is_first
    from tracewheel.learner.mismatch import mismatch_warning
    from tracewheel.learner.update import update
    from tracewheel.learner.update_files import UpdateFiles

    sections, trajectories, scores = UpdateSections.of(config), Path(options.trajectories), Path(options.scores)
    check_training(curated_folder(options), trajectories)

    def produce(out: Path) -> dict[str, float]:
        files = UpdateFiles([trajectories], [scores], state, reference, out)
        return update(sections, files, iteration=options.iteration)

    if not is_first():
        return {"out": options.out, **produce(Path(options.out))}
    result = produced(options, config, "update", produce)
    if warning := mismatch_warning(config.learner.mismatch, result):
        note(f"tracewheel: {warning}")
    return result


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    look_at, tone = "", "good"
    if not result["steps"]:
        look_at, tone = "no step was taken: the rewards of each group are equal, so nothing can be learnt from them", "warning"
    return written(
        f"Policy updated by {number(result['steps'])} steps",
        result,
        look_at,
        tone,
        f"tracewheel evaluate {profile_words(options)} --curated {options.curated} --split validation --state {result['out']} "
        f"--out {result['out']}-validation",
    )


COMMAND = Command("stage update", "one policy update on scored trajectories", add_options, run, card, POLICY_OUT)
