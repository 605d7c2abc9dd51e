"""`tracewheel prompt`: a better prompt for a policy, by GEPA; the gate judges it on held-out tasks."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, DataError, Writes, profile_options

if TYPE_CHECKING:
    from tracewheel import Card, RetrainConfig
    from tracewheel_prompts.players import Player
    from tracewheel_prompts.settings import PromptSettings


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument("settings", metavar="SETTINGS", help="YAML: reflection, budgets, parts")
    parser.add_argument("--curated", required=True, metavar="DIR", help="output of curate")
    parser.add_argument(
        "--state", metavar="DIR", help="the policy: output of a warm start or an update (default: the base alone)"
    )
    parser.add_argument("--baseline", action="store_true", help="the policy is the model behind the profile's baseline instead")
    parser.add_argument("--register", action="store_true", help="register the prompt with MLflow")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write; replaced if it exists")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Optimise, judge and write. An interrupted command goes on from its journal beside `--out`.

    Raises:
        ConfigError: the profile or the settings are invalid, or the environment takes no prompt.
        DataError: there are no tasks, or the journal is another run's.
        InfrastructureError: the policy's engine or endpoint failed.
        LeakError: the profile's prompt holds a task outside training.
        InputError: the reflection's endpoint, model or key is wrong.
    """
    from tracewheel import curated_folder, prepare_environment, produce_whole, resolve_config
    from tracewheel_prompts.judging import check_gate
    from tracewheel_prompts.players import check_start
    from tracewheel_prompts.settings import PromptSettings

    config = resolve_config(options.config, options.overrides, options.run_dir)
    config.require("environment.kind")
    settings, curated = PromptSettings.load(options.settings), curated_folder(options)
    prepare_environment(config.work_dir, debug=options.debug)
    player = _player(config, options, curated, settings)
    check_gate(player)
    check_start(config, curated)
    out = Path(options.out)
    journal = out.resolve().with_name(f".{out.name}.prompt-journal.jsonl")
    report = produce_whole(out, lambda folder: _produce(settings, player, curated, journal, folder))
    journal.unlink()
    if options.register:
        from tracewheel_prompts.registry import register

        report["registered"] = register(config, report)
    return {**report, "out": options.out}


def _player(config: RetrainConfig, options: argparse.Namespace, curated: Path, settings: PromptSettings) -> Player:
    from tracewheel import PolicyRef, policy_of
    from tracewheel_prompts.players import EndpointPlayer, LocalPlayer

    if options.baseline:
        if options.state:
            raise DataError("--state and --baseline: the policy is one of them")
        return EndpointPlayer(config, curated, settings.samples, settings.seed)
    config.require("policy.base")
    base = config.policy.base
    policy = policy_of(Path(options.state), base) if options.state else PolicyRef(base)
    return LocalPlayer(config, policy, curated, settings.samples, settings.seed)


def _produce(settings: PromptSettings, player: Player, curated: Path, path: Path, out: Path) -> dict[str, Any]:
    import yaml

    from tracewheel import stage_shown, write_json
    from tracewheel_prompts.judging import judge, overfitting, page
    from tracewheel_prompts.optimising import Optimising
    from tracewheel_prompts.players import prompted

    config = player.config
    work = Optimising(settings, player, curated)
    print(
        f"{work.budget}\nTraining, validation and held-out tasks are evaluated at the end, under both prompts, on top of that.",
        file=sys.stderr,
        flush=True,
    )
    with stage_shown("prompt", config.stage_seconds):
        prompt, report = work.run(path, out / "gepa.log")
        judged = judge(player, work.start, prompt, report["seen"], out)
    report = {**report, **judged}
    report["overfitting"] = overfitting(judged["splits"], judged["gate"]) if judged["gate"] else ""
    write_json(out / "report.json", report)
    write_json(out / "prompt.json", report["prompt"])
    (out / "prompt.md").write_text(page(report), encoding="utf-8")
    values = prompted(config, prompt).model_dump(mode="json", exclude_unset=True)
    (out / "profile.yaml").write_text(yaml.safe_dump(values, allow_unicode=True, sort_keys=False), encoding="utf-8")
    return report


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    from tracewheel import Card, Grid, in_words
    from tracewheel_prompts.judging import AFTER, BEFORE, MODES, gain, points, shown_rate

    reflection, gate = result["reflection"], result["gate"]
    cost = "" if reflection["cost"] is None else f", cost {reflection['cost']:.4f}"
    rows = [
        ("sampled tokens", f"{result['tokens']:,}"),
        ("reflection", f"{reflection['asked']} replies, {reflection['unusable']} unusable{cost}"),
        ("proposals", f"{result['iterations']}, {len(result['candidates']) - 1} of them accepted"),
        ("ended by", result["stopped"]),
    ]
    if "registered" in result:
        rows.append(("registered as", result["registered"]))
    if gate is None:
        return Card("No better prompt was found", rows, look_at="held-out tasks were not played", tone="warning")
    table = []
    for name, found in result["splits"].items():
        cells = [shown_rate(found["rates"][which][mode]) for mode in MODES for which in (BEFORE, AFTER)]
        table.append((f"{found['tasks']} {name}", *cells, points(gain(found["rates"]))))
    headings = ("tasks", "greedy before", "after", "sampled before", "after", "gain")
    held = Path(result["out"]) / "evaluations" / "held_out"
    profile = shlex.quote(f"{result['out']}/profile.yaml")
    promote = f"tracewheel champion promote {profile} --challenger {held}/{AFTER} --baseline before={held}/{BEFORE}"
    return Card(
        f"Prompt {result['prompt']['digest']}: {gate['verdict']}",
        rows,
        [Grid(headings, table)],
        " ".join([*in_words(gate), result["overfitting"]]),
        "good" if gate["verdict"] == "promoted" else "warning",
        [f"{promote} --adapter DIR" if options.state else promote, f"tracewheel retrain {profile}"],
    )


COMMAND = Command(
    "prompt",
    "a better prompt for a policy by GEPA, judged by the gate on held-out tasks",
    add_options,
    run,
    card,
    Writes(("prompt.json", "prompt.md", "profile.yaml", "report.json"), ("evaluations/*", "gate.json", "gepa.log")),
)
