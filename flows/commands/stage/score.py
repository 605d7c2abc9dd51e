"""`tracewheel stage score`: scores of stored trajectories, without a new rollout."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.commands.command import Command, Writes
from flows.console.arguments import curated_option, out_option, profile_options, profile_words, tasks_of_split
from flows.console.look import Card, number, percent, rows_of
from flows.console.stages import produced, stage_profile


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    curated_option(parser)
    parser.add_argument("--trajectories", required=True, metavar="FILE", help="trajectories.parquet of a rollout")
    parser.add_argument("--split", default="train", help="split the tasks are in (default train)")
    parser.add_argument("--compare", metavar="FILE", help="scores.parquet of an earlier scoring: what changed, by family")
    out_option(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    config = stage_profile(options)
    from tracewheel.config import ScoreSections
    from tracewheel.core.files import write_json
    from tracewheel.scoring.score import SCORES_FILE, read_scores, score, score_changes

    sections = ScoreSections.of(config)
    trajectories, tasks = Path(options.trajectories), tasks_of_split(options)
    earlier = read_scores(Path(options.compare)) if options.compare else None

    def produce(out: Path) -> dict[str, Any]:
        metrics = score(sections, tasks, trajectories, out)
        if earlier is None:
            return metrics
        changes = score_changes(earlier, read_scores(out / SCORES_FILE))
        write_json(out / "changes.json", changes)
        return {**metrics, "changes": changes}

    return produced(options, config, "score", produce)


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    lost = result["unscored"] + result["infrastructure_failed"]
    look_at, tone = f"success {percent(result['success'])}, mean reward {number(result['reward'])}", "good"
    if lost:
        look_at, tone = f"{lost} of {result['trajectories']} episodes have no score, which is not 0", "warning"
    changes = [  # what another rubric made of the same episodes, by family
        (
            f"changed, {family or 'without a family'}",
            f"{each['moved']} of {each['episodes']} rewards; {each['to_success']} now succeed, {each['to_failure']} now fail, "
            f"{each['to_unscored']} now unscored",
        )
        for family, each in ((result.get("changes") or {}).get("families") or {}).items()
    ]
    return Card(
        f"{result['scored']} of {result['trajectories']} episodes scored, written to {result['out']}",
        rows_of({name: value for name, value in result.items() if name not in ("changes", "out")}) + changes,
        look_at=look_at,
        tone=tone,
        next=[
            f"tracewheel stage update {profile_words(options)} --curated {options.curated} "
            f"--trajectories {options.trajectories} --scores {Path(result['out']) / 'scores.parquet'} "
            "--state DIR --reference DIR --out data/update"
        ],
    )


COMMAND = Command(
    "stage score",
    "score stored trajectories; needs no new rollout",
    add_options,
    run,
    card,
    Writes(("scores.parquet", "metrics.json"), ("changes.json",)),
)
