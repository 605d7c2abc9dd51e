"""`tracewheel evaluate`: success of a policy, or of a model behind an endpoint, on a split of the tasks."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.commands.command import Command, Writes
from flows.console.arguments import (
    best_state,
    checked_split,
    curated_folder,
    curated_option,
    out_option,
    profile_options,
    profile_words,
    state_option,
    tasks_of_split,
)
from flows.console.look import Block, Card, Grid, number, percent
from flows.console.stages import policy_in, produced, resumable, stage_profile
from tracewheel.core.errors import DataError

MODES = ("greedy", "sampled")


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    curated_option(parser)
    state_option(parser)
    parser.add_argument("--split", default="held_out", help="validation, held_out, harder or train (default held_out)")
    parser.add_argument("--samples", type=int, metavar="N", help="sampled episodes per task (default: the profile's setting)")
    parser.add_argument("--best-of", nargs="+", metavar="DIR=DIR", help="evaluation=state pairs; the best evaluation's policy")
    out_option(parser)
    other = parser.add_argument_group("a model behind an OpenAI-compatible endpoint instead")
    other.add_argument(
        "--endpoint", nargs="?", const="", metavar="URL", help="its address, up to /v1 (without URL: the profile's baseline)"
    )
    other.add_argument("--model", metavar="NAME", help="the model's name there (default: the profile's baseline.model)")
    other.add_argument("--tasks", type=int, metavar="N", help="only the first N tasks")
    other.add_argument("--sampled-only", action="store_true", help="play no greedy episodes; --samples 0 plays only those")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Evaluate.

    Raises:
        ConfigError: no base, or no endpoint and model are named.
        DataError: the curated folder is not one, or has no such split.
        InputError: the endpoint, the model or the key is wrong.
        InfrastructureError: the endpoint does not answer.
    """
    if options.endpoint is not None:
        return _evaluate_endpoint(options)
    if options.model or options.tasks or options.sampled_only:
        raise DataError("--model, --tasks and --sampled-only are for a model behind an endpoint: give --endpoint")
    config = stage_profile(options, "policy.base")
    curated, split = curated_folder(options), checked_split(options)
    from tracewheel.config import EvaluateSections
    from tracewheel.evaluation.evaluate import evaluate_split

    state = best_state(options.best_of) if options.best_of else options.state
    policy, sections, samples = policy_in(config, state), EvaluateSections.of(config), options.samples

    def produce(out: Path) -> Any:
        return evaluate_split(sections, policy, curated, split, out, samples=samples)

    return {**produced(options, config, "evaluate", produce), "policy": state or "base"}


def _evaluate_endpoint(options: argparse.Namespace) -> dict[str, Any]:
    """Each reply is stored next to `--out` as it arrives: an interrupted command resumes."""
    given = {"endpoint": options.endpoint, "model": options.model}
    named = [f"baseline.{name}={json.dumps(value)}" for name, value in given.items() if value]
    options.overrides = [*named, *options.overrides]
    config = stage_profile(options)
    samples = config.evaluation.samples if options.samples is None else options.samples
    if samples < 0:
        raise DataError(f"--samples {samples}: 0 or more")
    tasks = tasks_of_split(options)[: options.tasks]
    if not tasks:
        raise DataError(f"--split {options.split}: no task of it is in {options.curated}")
    from tracewheel.config import BaselineSections
    from tracewheel.teacher.baseline import evaluate_endpoint

    sections, greedy = BaselineSections.of(config), not options.sampled_only

    def produce(out: Path, journal: Path, progress: Any) -> dict[str, Any]:
        summary, played = evaluate_endpoint(
            sections, tasks, out, samples=samples, greedy=greedy, journal=journal, progress=progress
        )
        run = {"requests": played.counts, "seconds": round(played.seconds, 2), "stopped": played.stopped}
        return {"split": options.split, "policy": summary["endpoint"]["model"], "tasks": len(tasks), **summary, **run}

    return resumable(options, f"baseline {options.split}", produce)


def _passed(k: str, value: float | None, known: Mapping[str, Any] | None) -> str:
    if value is None or not known:
        return f"{k}: {percent(value)}"
    low, high = known["interval"]
    unscored = f", {known['unscored']} tasks unscored" if known["unscored"] else ""
    return f"{k}: {percent(value)} ({percent(low)} to {percent(high)}{unscored})"


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    rows = [(mode, *_estimate(result[mode])) for mode in MODES if mode in result]
    missing = {mode: count["unscored"] + count["infrastructure_failed"] for mode, count in result.get("missing", {}).items()}
    look_at, tone = f"greedy success {percent(result['greedy']['rate'])}", "good"
    if any(missing.values()):
        look_at, tone = f"{sum(missing.values())} episodes have no score, which is not 0", "warning"
    if result["greedy"]["rate"] is None and result["sampled"]["rate"] is None:
        look_at, tone = "no episode could be scored", "bad"
    if words := result.get("without_score"):
        from tracewheel.scoring.missing import ADVICE

        advice = [] if "endpoint" in result else [ADVICE]
        look_at = "; ".join([*(f"{mode}: {text}" for mode, text in words.items()), *advice])
    families = [
        (f"{kind} {name}", *(percent(modes[mode]["rate"]) for mode in MODES if mode in modes))
        for kind, group in (("tier", result.get("by_tier", {})), ("family", result.get("by_family", {})))
        for name, modes in group.items()
    ]
    pass_at = ", ".join(
        _passed(k, value, result.get("pass_at_known", {}).get(k)) for k, value in result.get("pass_at", {}).items()
    )
    parts: list[Grid | Block] = [Grid(("episodes", "success", "95% interval", "tasks"), rows)]
    if families:
        parts.append(Grid(("", *MODES), families))
    figures = [("pass@k", pass_at), ("tokens", number(result.get("generated_tokens")))]
    if endpoint := result.get("endpoint"):
        counts, cost = result["requests"], "not known" if endpoint["cost"] is None else f"{endpoint['cost']:.4f}"
        figures += [
            (
                f"{endpoint['replies']} replies",
                f"{endpoint['prompt_tokens']} prompt tokens ({endpoint['cached_tokens']} cached), "
                f"{endpoint['completion_tokens']} completion tokens; cost {cost}",
            ),
            (
                "this time",
                f"{counts['sent']} requests, {counts['repeated']} of them repeated, {counts['no_answer']} without an answer, "
                f"in {result['seconds']:.1f} s",
            ),
            ("trainable", f"{endpoint['trainable']} of {result['episodes']} episodes can be learned from"),
        ]
    return Card(
        f"{result['policy']} on {result['tasks']} tasks of {options.split}, written to {result['out']}",
        figures,
        parts,
        look_at,
        tone,
        [
            f"tracewheel champion promote {profile_words(options)} --challenger {result['out']} "
            "--baseline NAME=DIR --out data/gate"
        ],
    )


def _estimate(mode: Mapping[str, Any]) -> tuple[str, str, str]:
    interval = mode.get("interval")
    shown = f"{interval[0]:.1%} to {interval[1]:.1%}" if mode["rate"] is not None and interval else "–"
    return percent(mode["rate"]), shown, str(mode["n"])


COMMAND = Command(
    "evaluate",
    "greedy and sampled success on a split, of a policy or of a model behind an endpoint",
    add_options,
    run,
    card,
    Writes(
        ("evaluation.json", "results.parquet"),
        ("greedy/*", "sampled/*", "*/held_back/*", "*/training/*", "attempts.parquet", "trajectories.parquet"),
    ),
)
