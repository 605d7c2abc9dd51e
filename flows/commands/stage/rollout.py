"""`tracewheel stage rollout`: trajectories of training tasks."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.commands.command import Command, Writes
from flows.console.arguments import (
    curated_folder,
    curated_option,
    leak_option,
    out_option,
    profile_options,
    profile_words,
    state_option,
    warn_of_leaks,
)
from flows.console.look import Card, number, written
from flows.console.stages import policy_in, produced, stage_profile


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    leak_option(parser)
    curated_option(parser)
    state_option(parser)
    parser.add_argument("--iteration", type=int, default=1, help="decides the tasks and the seed (default 1)")
    out_option(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    config = stage_profile(options, "policy.base")
    curated = curated_folder(options)
    policy = policy_in(config, options.state)
    from tracewheel.config import RolloutSections, SamplerSections
    from tracewheel.curation.curated_folder import TRAIN, load_tasks
    from tracewheel.curation.leaks import check_curated
    from tracewheel.evaluation.idle_reward import check_idle
    from tracewheel.rollout.rollout import roll_out
    from tracewheel.sampling.curriculum import make_sampler

    warn_of_leaks(check_curated(curated, config.curation))
    check_idle(config.rubric, config.audit, load_tasks(curated, TRAIN))
    sampler = make_sampler(SamplerSections.of(config), curated)
    task_ids = sampler.select(config.training.tasks_per_iteration, options.iteration)

    def produce(out: Path) -> dict[str, float]:
        return roll_out(
            RolloutSections.of(config),
            policy,
            curated,
            task_ids,
            out,
            iteration=options.iteration,
            variants=sampler.variants(task_ids),
            greedy_baseline=config.greedy_baseline,
        )

    return produced(options, config, "rollout", produce)


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    trajectories, scores = Path(result["out"]) / "trajectories.parquet", f"{result['out']}-scores"
    words = f"{profile_words(options)} --curated {options.curated} --trajectories {trajectories} --out {scores}"
    failed = result.get("without_score", "")
    figures = {name: value for name, value in result.items() if name != "without_score"}
    tone, title = "warning" if failed else "good", f"{number(result['episodes'])} episodes"
    return written(title, figures, failed, tone, f"tracewheel stage score {words}")


COMMAND = Command(
    "stage rollout",
    "sample trajectories of training tasks",
    add_options,
    run,
    card,
    Writes(("trajectories.parquet", "metrics.json"), ("greedy.parquet", "variants.parquet")),
)
