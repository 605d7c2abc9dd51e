"""Single stages from the command line, as `dvc.yaml` calls them: the same functions as the flow's, without Prefect."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows.console.arguments import (
    best_state,
    checked_split,
    curated_folder,
    curation_of,
    earlier_record,
    folder_of,
    tasks_of_split,
    warn_of_leaks,
)
from flows.console.progress import stage_shown
from flows.setup import prepare_environment, resolve_config
from tracewheel.config import (
    CurateSections,
    EvaluateSections,
    RetrainConfig,
    RolloutSections,
    SamplerSections,
    ScoreSections,
    UpdateSections,
    WarmStartSections,
)
from tracewheel.config.placement import check_device
from tracewheel.core.errors import DoubtfulData
from tracewheel.core.store import place_copy, produce_whole


def curate(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel curate`."""
    from tracewheel.curation.agreement import Agreement
    from tracewheel.curation.curate import HowTo, curate
    from tracewheel.curation.curated_folder import SPLITS_FILE
    from tracewheel.curation.pass_counts import KeptPassCounts

    config = _config(options, "environment.kind")
    sections = CurateSections.of(config)
    traces, out = folder_of(options.traces, "--traces"), Path(options.out)
    folder = curation_of(folder_of(options.earlier, "--earlier")) if options.earlier else None
    counts = KeptPassCounts.read(folder) if folder else None
    record = earlier_record(options, folder)
    how = HowTo(reuse=Path(options.reuse) if options.reuse else None, say=_note)
    result = _produced(options, config, lambda place: curate(sections, traces, place, counts, record, how))
    if options.splits:
        place_copy(out / SPLITS_FILE, Path(options.splits))
    if not config.curation.allow_drift and (drift := Agreement.from_record(result["agreement"]).drifts()):
        raise DoubtfulData(f"{drift}; mend the environment, or accept it with --allow-drift", _result(options, result))
    return _result(options, result)


def base_policy(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel base-policy`."""
    from tracewheel.demo.base_policy import train_base_policy
    from tracewheel.demo.config import load_base_config

    config = load_base_config(options.config, options.overrides)
    return _result(options, produce_whole(Path(options.out), lambda out: train_base_policy(config, out)))


def warm_start(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel warm-start`."""
    config = _config(options, "policy.base")
    curated = curated_folder(options)
    from tracewheel.curation.leaks import check_curated
    from tracewheel.learner.warm_start.stage import warm_start

    warn_of_leaks(check_curated(curated, config.curation))
    kind = options.demonstrations or config.warm_start.demonstrations
    sections = WarmStartSections.of(config)
    return _result(options, _produced(options, config, lambda out: warm_start(sections, curated, out, kind)))


def rollout(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel rollout`."""
    config = _config(options, "policy.base")
    curated = curated_folder(options)
    policy = _policy(config, options.state)
    from tracewheel.curation.leaks import check_curated
    from tracewheel.rollout.exploration import rollout_temperature
    from tracewheel.rollout.rollout import roll_out
    from tracewheel.sampling.curriculum import make_sampler
    from tracewheel.sampling.sampler import observe_scores
    from tracewheel.scoring.score import SCORES_FILE

    warn_of_leaks(check_curated(curated, config.curation))
    sampler = make_sampler(SamplerSections.of(config), curated)
    for earlier in range(1, options.iteration if options.scores_of else 1):
        observe_scores(sampler, folder_of(options.scores_of.replace("{}", str(earlier)), "--scores-of") / SCORES_FILE)
        sampler.evolve(curated)
    task_ids = sampler.select(config.training.tasks_per_iteration, options.iteration)
    temperature = rollout_temperature(config.rollout, config.training.iterations, options.iteration)

    def produce(out: Path) -> dict[str, float]:
        return roll_out(
            RolloutSections.of(config),
            policy,
            curated,
            task_ids,
            out,
            iteration=options.iteration,
            variants=sampler.variants(task_ids),
            temperature=temperature,
            greedy_baseline=config.greedy_baseline,
        )

    return _result(options, _produced(options, config, produce))


def score(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel score`."""
    from tracewheel.core.files import write_json
    from tracewheel.scoring.score import SCORES_FILE, read_scores, score
    from tracewheel.scoring.score_changes import score_changes

    config = _config(options)
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

    return _result(options, _produced(options, config, produce))


def update(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel update`. Under torchrun it runs on every process, and the first writes."""
    config = _config(options, "policy.base")
    sections = UpdateSections.of(config)
    state, reference = folder_of(options.state, "--state"), folder_of(options.reference, "--reference")
    from tracewheel.learner.backends.processes import is_first
    from tracewheel.learner.mismatch import mismatch_warning
    from tracewheel.learner.update import update
    from tracewheel.learner.update_files import UpdateFiles

    trajectories, scores, out = Path(options.trajectories), Path(options.scores), Path(options.out)

    def produce(out: Path) -> dict[str, float]:
        files = UpdateFiles([trajectories], [scores], state, reference, out)
        return update(sections, files, iteration=options.iteration)

    metrics = _produced(options, config, produce) if is_first() else produce(out)
    if is_first() and (warning := mismatch_warning(config.learner.mismatch, metrics)):
        print(f"tracewheel: {warning}", file=sys.stderr)
    return _result(options, metrics)


def evaluate(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel evaluate`."""
    config = _config(options, "policy.base")
    curated, split = curated_folder(options), checked_split(options)
    from tracewheel.evaluation.evaluate import evaluate_split

    state = best_state(options.best_of) if options.best_of else options.state
    policy, sections, samples = _policy(config, state), EvaluateSections.of(config), options.samples
    result = _produced(options, config, lambda out: evaluate_split(sections, policy, curated, split, out, samples=samples))
    return _result(options, result | {"policy": state or "base"})


def _config(options: argparse.Namespace, *required: str) -> RetrainConfig:
    config = resolve_config(options.config, options.overrides, options.run_dir)
    config.require(*required)
    prepare_environment(None, debug=options.debug)
    if "policy.base" in required and config.policy.device != "cpu":
        import torch

        check_device(config.policy.device, torch.cuda.device_count())
    return config


def _produced(options: argparse.Namespace, config: RetrainConfig, produce: Callable[[Path], Any]) -> Any:
    """Write the output of a stage, and show how far it is."""
    name = options.command.partition(":")[2]
    with stage_shown(name, config.seconds_for(name)):
        return produce_whole(Path(options.out), produce)


def _note(text: str) -> None:
    print(f"tracewheel: {text}", file=sys.stderr)


def _result(options: argparse.Namespace, result: dict[str, Any]) -> dict[str, Any]:
    return {"out": options.out, **result}


def _policy(config: RetrainConfig, state: str | None) -> Any:
    from tracewheel.policy.adapters import PolicyRef, policy_of

    return PolicyRef(config.policy.base) if state is None else policy_of(folder_of(state, "--state"), config.policy.base)
