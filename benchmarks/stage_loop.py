"""The stages of a run in order, by hand: for what a run does not offer, and where there is no Prefect."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import cpu_seconds

from tracewheel.config import (
    CurateSections,
    RetrainConfig,
    RolloutSections,
    SamplerSections,
    ScoreSections,
    UpdateSections,
    WarmStartSections,
)
from tracewheel.core.files import read_json, write_json
from tracewheel.learner.update import update
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.learner.warm_start.stage import warm_start
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.rollout import TRAJECTORIES_FILE, RolloutPlan, rollout
from tracewheel.rollout.training_tasks import training_tasks
from tracewheel.sampling.curriculum import make_sampler
from tracewheel.sampling.sampler import observe_scores
from tracewheel.sampling.seeds import rollout_seed
from tracewheel.scoring.score import SCORES_FILE, score

DONE = "done"  # a file in a finished folder
FIGURES = "figures.json"


def curated_logs(config: RetrainConfig, out: Path) -> Path:
    """Curate the profile's logs into a folder, unless that is done. Returns the folder."""
    if (out / DONE).exists():
        return out
    from tracewheel.curation.curate import curate
    from tracewheel.traces.ingest import ingest

    traces = out.with_name(f"{out.name}-traces")
    for folder in (traces, out):
        folder.mkdir(parents=True, exist_ok=True)
    ingest(config.ingest, traces)
    curate(CurateSections.of(config), traces, out)
    (out / DONE).touch()
    return out


def warm_started(config: RetrainConfig, curated: Path, out: Path) -> Path:
    """Train the profile's warm start into a folder, unless that is done. Returns the folder."""
    if (out / DONE).exists():
        return out
    out.mkdir(parents=True, exist_ok=True)
    warm_start(WarmStartSections.of(config), curated, out, config.warm_start.demonstrations)
    (out / DONE).touch()
    return out


def stage_loop(
    config: RetrainConfig,
    curated: Path,
    start: Path,
    work: Path,
    *,
    sampling: RetrainConfig | None = None,
    drawn: int | None = None,
    change: Callable[[PolicyRef, Path], None] | None = None,
    solutions: Callable[[int, Path], Path | None] | None = None,
    learnt_from: Callable[[Path], Path] | None = None,
    enough: Callable[[list[dict[str, Any]]], bool] | None = None,
    rate: Callable[[list[dict[str, Any]]], float] | None = None,
) -> tuple[Path, list[dict[str, Any]]]:
    """All iterations of a profile, but for those that are done with the same settings: a loop that was stopped goes on.

    The code is not compared: after a change of it give another folder.

    Args:
        curated: The curation's output.
        start: The warm start's.
        work: Where each iteration has a folder.
        sampling: The profile of the rollouts; the same unless given.
        drawn: Seed of the episodes' random numbers; the profile's unless given. Another one repeats the loop with other luck.
        change: Called with the policy that sampled and the file of its trajectories, before the update.
        solutions: Called with the iteration and its folder, once it is scored; gives the file of solutions of lost tasks. Of
            iterations that are done it is called too.
        learnt_from: Called with the iteration's folder, once it is scored; gives the folder whose episodes are learnt from.
        enough: Called with the figures so far; ends the loop early.
        rate: Called with the figures so far; gives the next update's learning rate. The profile's unless given.

    Returns:
        The last policy's adapter; and each update's figures with `rollout_s` and `update_s`, seconds, and `cpu_s` of both.
    """
    sampler, sections = make_sampler(SamplerSections.of(config), curated), RolloutSections.of(sampling or config)
    settings = json.dumps([each and each.model_dump(mode="json") for each in (config, sampling)] + [drawn], sort_keys=True)
    state, version, figures = start, 0, []
    for iteration in range(1, config.training.iterations + 1):
        folder = work / f"{iteration:03d}"
        trajectories, scores = folder / TRAJECTORIES_FILE, folder / SCORES_FILE
        task_ids = sampler.select(config.training.tasks_per_iteration, iteration)
        done = folder / DONE
        if solutions and done.exists():
            solutions(iteration, folder)
        if not done.exists() or done.read_text() != settings:
            begun, spent = time.perf_counter(), cpu_seconds()
            folder.mkdir(parents=True, exist_ok=True)
            seed = rollout_seed(config.seed if drawn is None else drawn, iteration)
            chosen = training_tasks(config.rollout.exploration, curated, task_ids, sampler.variants(task_ids), seed).tasks
            policy = PolicyRef(config.policy.base, str(state / "adapter"), version)
            rollout(sections, policy, RolloutPlan(chosen, samples=config.rollout.group_size, seed=seed), folder)
            score(ScoreSections.of(config), chosen, trajectories, folder)
            sampled = time.perf_counter()
            if change:
                change(policy, trajectories)
            shown = solutions(iteration, folder) if solutions else None
            source = learnt_from(folder) if learnt_from else folder
            files = UpdateFiles([source / TRAJECTORIES_FILE], [source / SCORES_FILE], state, start / "adapter", folder, shown)
            learnt = UpdateSections.of(config)
            if rate:
                learner = learnt.learner.model_copy(update={"learning_rate": rate(figures)})
                learnt = learnt.model_copy(update={"learner": learner})
            found = update(learnt, files, iteration=iteration)
            seconds = {"rollout_s": sampled - begun, "update_s": time.perf_counter() - sampled}
            seconds["cpu_s"] = cpu_seconds() - spent
            write_json(folder / FIGURES, {**found, **seconds})
            done.write_text(settings)
        observe_scores(sampler, scores)
        figures.append(read_json(folder / FIGURES))
        state, version = folder, iteration
        if enough and enough(figures):
            break
    return state / "adapter", figures
