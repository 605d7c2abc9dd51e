"""What each command says on a terminal, made from the result that `--json` prints."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flows.commands.batches import batches_card
from flows.commands.command import Command
from flows.console.arguments import profile_words
from flows.console.data_cards import (
    curate_card,
    figures_card,
    ingest_card,
    keys_card,
    make_tasks_card,
    quality_card,
    recording_card,
)
from flows.console.look import Block, Card, Grid, number, percent, rows_of
from flows.console.review_cards import approve_card, calibrate_judge_card, dashboard_card, labels_card
from flows.console.upkeep_cards import deploy_card, gc_card, report_card, rollback_card, status_card, sync_card

Options = argparse.Namespace
Result = Mapping[str, Any]
MODES = ("greedy", "sampled")


def card_of(options: Options, result: Result) -> Card:
    """The card of a command's result."""
    if isinstance(options.command, Command):
        assert options.command.card
        return options.command.card(options, result)
    return CARDS[options.command](options, result)


def base_policy_card(options: Options, result: Result) -> Card:
    return Card(
        f"Base policy written to {result['out']}",
        rows_of(_figures(result)),
        next=[f"tracewheel retrain PROFILE.yaml --set policy.base={result['out']}"],
    )


def warm_start_card(options: Options, result: Result) -> Card:
    few = not result["steps"]
    return Card(
        f"Warm start on {number(result['demonstrations'])} demonstrations, written to {result['out']}",
        rows_of(_figures(result)),
        look_at="nothing was learnt: no step was taken" if few else "",
        tone="bad" if few else "good",
        next=[
            f"tracewheel evaluate {profile_words(options)} --curated {options.curated} --split validation "
            f"--state {result['out']} --out {result['out']}-validation",
            f"tracewheel improve {profile_words(options)} --curated {options.curated} --start {result['out']} --out data/rl",
        ],
    )


def teach_card(options: Options, result: Result) -> Card:
    taught, tasks = result["tasks_taught"], result["tasks"]
    look_at, tone = f"{taught} of {tasks} tasks have a demonstration by the teacher", "good" if taught else "bad"
    if result["stopped"]:
        look_at, tone = f"stopped: {result['stopped']}; the same command resumes", "warning"
    return Card(
        f"{result['demonstrations']} demonstrations by the teacher, written to {result['out']}",
        rows_of({**_figures(result), "success": percent(result["success"])}),
        look_at=look_at,
        tone=tone,
        next=[
            f"tracewheel warm-start {profile_words(options)} --curated {options.curated} "
            f"--set {shlex.quote('warm_start.extra_demonstrations=[' + result['out'] + ']')} --out data/warm_start"
        ],
    )


def rollout_card(options: Options, result: Result) -> Card:
    return Card(
        f"{number(result['episodes'])} episodes, written to {result['out']}",
        rows_of(_figures(result)),
        next=[
            f"tracewheel score {profile_words(options)} --curated {options.curated} "
            f"--trajectories {Path(result['out']) / 'trajectories.parquet'} --out {result['out']}-scores"
        ],
    )


def score_card(options: Options, result: Result) -> Card:
    lost = result["unscored"] + result["infrastructure_failed"]
    look_at, tone = f"success {percent(result['success'])}, mean reward {number(result['reward'])}", "good"
    if lost:
        look_at, tone = f"{lost} of {result['trajectories']} episodes have no score, which is not 0", "warning"
    return Card(
        f"{result['scored']} of {result['trajectories']} episodes scored, written to {result['out']}",
        rows_of(_figures({name: value for name, value in result.items() if name != "changes"})) + _changes(result),
        look_at=look_at,
        tone=tone,
        next=[
            f"tracewheel update {profile_words(options)} --trajectories {options.trajectories} "
            f"--scores {Path(result['out']) / 'scores.parquet'} --state DIR --reference DIR --out data/update"
        ],
    )


def _changes(result: Result) -> list[tuple[str, str]]:
    """What another rubric made of the same episodes, by family."""
    found = result.get("changes") or {}
    return [
        (
            f"changed, {family or 'without a family'}",
            f"{each['moved']} of {each['episodes']} rewards; {each['to_success']} now succeed, {each['to_failure']} now fail, "
            f"{each['to_unscored']} now unscored",
        )
        for family, each in (found.get("families") or {}).items()
    ]


def update_card(options: Options, result: Result) -> Card:
    look_at, tone = "", "good"
    if not result["steps"]:
        look_at, tone = "no step was taken: the rewards of each group are equal, so nothing can be learnt from them", "warning"
    return Card(
        f"Policy updated by {number(result['steps'])} steps, written to {result['out']}",
        rows_of(_figures(result)),
        look_at=look_at,
        tone=tone,
        next=[
            f"tracewheel evaluate {profile_words(options)} --curated data/curated --split validation --state {result['out']} "
            f"--out {result['out']}-validation"
        ],
    )


def improve_card(options: Options, result: Result) -> Card:
    names = [name for name in result["candidates"][0] if name not in ("policy", "iteration")] if result["candidates"] else []
    grid = Grid(
        ("policy", *(name.replace("_", " ") for name in names)),
        [(item["policy"], *(_rate(item.get(name)) for name in names)) for item in result["candidates"]],
    )
    look_at, tone = f"best on the validation split: {result['best']}", "good"
    if not result["best_iteration"]:
        look_at, tone = "the start is still the best on the validation split: no iteration improved it", "warning"
    alarms = [f"iteration {event.get('iteration')}: {event.get('action')}" for event in result["guard"]]
    return Card(
        f"Loop of {len(result['candidates'])} candidates, written to {result['out']}",
        [("the guard", "; ".join(alarms))] if alarms else (),
        [grid],
        look_at,
        tone,
        [
            f"tracewheel evaluate {profile_words(options)} --curated {options.curated} --state {Path(result['out']) / 'best'} "
            f"--out data/evaluation"
        ],
    )


def evaluate_card(options: Options, result: Result) -> Card:
    rows = [(mode, *_estimate(result[mode])) for mode in MODES if mode in result]
    missing = {mode: count["unscored"] + count["infrastructure_failed"] for mode, count in result.get("missing", {}).items()}
    look_at, tone = f"greedy success {percent(result['greedy']['rate'])}", "good"
    if any(missing.values()):
        look_at, tone = f"{sum(missing.values())} episodes have no score, which is not 0", "warning"
    if result["greedy"]["rate"] is None and result["sampled"]["rate"] is None:
        look_at, tone = "no episode could be scored", "bad"
    families = [
        (f"{kind} {name}", *(percent(modes[mode]["rate"]) for mode in MODES if mode in modes))
        for kind, group in (("tier", result.get("by_tier", {})), ("family", result.get("by_family", {})))
        for name, modes in group.items()
    ]
    pass_at = ", ".join(f"{k}: {percent(value)}" for k, value in result.get("pass_at", {}).items())
    parts: list[Grid | Block] = [Grid(("episodes", "success", "95% interval", "tasks"), rows)]
    if families:
        parts.append(Grid(("", *MODES), families))
    return Card(
        f"{result.get('policy', 'the policy')} on {result['tasks']} tasks of {options.split}, written to {result['out']}",
        [("pass@k", pass_at), ("tokens", number(result.get("generated_tokens")))],
        parts,
        look_at,
        tone,
        [f"tracewheel promote {profile_words(options)} --challenger {result['out']} --baseline NAME=DIR --out data/gate"],
    )


def export_card(options: Options, result: Result) -> Card:
    unknown = result["license"] == "unknown"
    refused = result["verdict"] not in (None, "promoted")
    notes = ["the licence of the base is unknown: find it out before you pass this on"] if unknown else []
    notes += [f"the gate's verdict was '{result['verdict']}'"] if refused else []
    return Card(
        f"{result['name']} written to {result['out']} as {result['format']}",
        rows_of({name: result[name] for name in ("dtype", "license", "run_id", "verdict", "policy_digest") if result[name]}),
        look_at="; ".join([*notes, f"the model card is {result['out']}/README.md"]),
        tone="warning" if notes else "good",
        next=[f"tracewheel lineage {options.policy}"],
    )


def promote_card(options: Options, result: Result) -> Card:
    promoted = result["verdict"] == "promoted"
    interval = result.get("interval")
    rows = [
        ("compared with", str(result["baseline"])),
        ("difference", _signed(result.get("difference"))),
        ("interval", f"{_signed(interval[0])} to {_signed(interval[1])}" if interval else "–"),
        ("p value", number(result.get("p_value"))),
    ]
    if "model_version" in result:
        rows.append(("registered as", f"version {result['model_version']}"))
    profile = profile_words(options)
    return Card(
        f"Gate: {result['verdict']}",
        rows,
        look_at="; ".join(result["reasons"]),
        tone="good" if promoted else "warning",
        next=[f"tracewheel {'status' if promoted else 'doctor'} {profile}"],
    )


def _figures(result: Result) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in ("out", "stopped")}


def _estimate(mode: Result) -> tuple[str, str, str]:
    interval = mode.get("interval")
    shown = f"{interval[0]:.1%} to {interval[1]:.1%}" if mode["rate"] is not None and interval else "–"
    return percent(mode["rate"]), shown, str(mode["n"])


def _rate(value: Any) -> str:
    return percent(value) if value is None or isinstance(value, float) else number(value)


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"


CARDS: dict[str, Callable[[Options, Result], Card]] = {
    "flows.commands.ingest:ingest": ingest_card,
    "flows.commands.single:curate": curate_card,
    "flows.commands.single:base_policy": base_policy_card,
    "flows.commands.single:warm_start": warm_start_card,
    "flows.commands.teach:teach": teach_card,
    "flows.commands.single:rollout": rollout_card,
    "flows.commands.single:score": score_card,
    "flows.commands.single:update": update_card,
    "flows.commands.loop_command:improve": improve_card,
    "flows.commands.single:evaluate": evaluate_card,
    "flows.commands.export:export": export_card,
    "flows.commands.make_tasks:make_tasks": make_tasks_card,
    "flows.commands.whole_runs:promote": promote_card,
    "flows.commands.approve:approve": approve_card,
    "flows.commands.labels:labels": labels_card,
    "flows.commands.judges:calibrate_judge": calibrate_judge_card,
    "flows.commands.dashboard:dashboard": dashboard_card,
    "flows.commands.whole_runs:report": report_card,
    "flows.commands.whole_runs:rollback": rollback_card,
    "flows.commands.whole_runs:status": status_card,
    "flows.commands.sync:sync": sync_card,
    "flows.commands.deploy:deploy": deploy_card,
    "flows.commands.batches:batches": batches_card,
    "flows.commands.gc:gc": gc_card,
    "flows.commands.data:record": recording_card,
    "flows.commands.data:report": quality_card,
    "flows.commands.dvc:keys": keys_card,
    "flows.commands.dvc:figures": figures_card,
}
