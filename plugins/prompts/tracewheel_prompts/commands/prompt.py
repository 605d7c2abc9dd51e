"""`tracewheel prompt`: a better prompt for a policy, by GEPA; the gate judges it on held-out tasks."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, DataError, Writes

if TYPE_CHECKING:
    from tracewheel import Card, RetrainConfig
    from tracewheel_prompts.optimise import Found
    from tracewheel_prompts.players import Player
    from tracewheel_prompts.settings import PromptSettings

BUDGETS = {"tokens", "reflections", "iterations"}  # a run that was killed may go on with more


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="YAML profile")
    parser.add_argument("settings", metavar="SETTINGS", help="YAML: reflection, budgets, parts")
    parser.add_argument("--curated", required=True, metavar="DIR", help="output of curate")
    parser.add_argument(
        "--state", metavar="DIR", help="the policy: output of a warm start or an update (default: the base alone)"
    )
    parser.add_argument("--baseline", action="store_true", help="the policy is the model behind the profile's baseline instead")
    parser.add_argument("--register", action="store_true", help="register the prompt with MLflow")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="a.b=c", help="override one setting")
    parser.add_argument("--run-dir", metavar="DIR", help="where everything goes, instead of the profile's work_dir")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write; replaced if it exists")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Optimise, judge and write. An interrupted command goes on from its journal beside `--out`.

    Raises:
        ConfigError: the profile or the settings are invalid, or the environment takes no prompt.
        DataError: there are no tasks, or the journal is another run's.
        InfrastructureError: the policy's engine or endpoint failed.
        InputError: the reflection's endpoint, model or key is wrong.
    """
    from tracewheel import curated_folder, prepare_environment, produce_whole, resolve_config
    from tracewheel_prompts.judging import check_gate
    from tracewheel_prompts.settings import PromptSettings

    config = resolve_config(options.config, options.overrides, options.run_dir)
    config.require("environment.kind")
    settings, curated = PromptSettings.load(options.settings), curated_folder(options)
    prepare_environment(config.work_dir, debug=options.debug)
    player = _player(config, options, curated, settings)
    check_gate(player)
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

    from tracewheel import content_hash, load_tasks, open_environment, stage_shown, write_json
    from tracewheel_prompts.journal import Journal
    from tracewheel_prompts.judging import judge, overfitting, page
    from tracewheel_prompts.optimise import PromptAdapter, optimise
    from tracewheel_prompts.players import prompted, start_of
    from tracewheel_prompts.prompt import Prompt
    from tracewheel_prompts.reflection import Reflector

    config = player.config
    train, validation = (load_tasks(curated, split) for split in ("train", "validation"))
    train, validation = train[: settings.train_tasks], validation[: settings.validation_tasks]
    if not train or not validation:
        raise DataError(
            f"--curated {curated}: has {len(train)} training and {len(validation)} validation tasks; both are needed"
        )
    with open_environment(train[0].environment) as environment:
        start = start_of(config) or Prompt(system=environment.system_prompt)
        tools = {tool["function"]["name"]: tool["function"]["description"] for tool in environment.tools()}
    _say_budget(settings, player, len(train), len(validation))
    asked = settings.model_dump(mode="json", exclude=BUDGETS | {"reflection"})
    asked["reflection"] = settings.reflection.model_dump(mode="json", exclude=set(settings.reflection.HOW_ASKED))
    ids = [task.id for task in (*train, *validation)]
    sections = config.model_dump(mode="json", include={"environment", "rollout", "evaluation", "rubric", "policy", "seed"})
    identity = content_hash([asked, sections, player.identity, start.digest, ids])
    with Journal(path, identity) as journal, Reflector(settings, journal) as reflector:
        adapter = PromptAdapter(settings, player, start, tools, train, validation, curated, journal, reflector)
        with stage_shown("prompt", config.stage_seconds):
            found = optimise(adapter, train, validation, out / "gepa.log")
            kinds = {"train": train, "validation": validation}
            seen = {split: sorted({task.id for task in tasks} & set(found.seen)) for split, tasks in kinds.items()}
            judged = judge(player, start, found.prompt, seen, out)
        report = {**_about(found, start, player, reflector, settings), **judged, "seen": seen}
    report["overfitting"] = overfitting(judged["splits"], judged["gate"]) if judged["gate"] else ""
    write_json(out / "report.json", report)
    write_json(out / "prompt.json", {**found.prompt.model_dump(mode="json"), "digest": found.prompt.digest})
    (out / "prompt.md").write_text(page(report), encoding="utf-8")
    values = prompted(config, found.prompt).model_dump(mode="json", exclude_unset=True)
    (out / "profile.yaml").write_text(yaml.safe_dump(values, allow_unicode=True, sort_keys=False), encoding="utf-8")
    return report


def _about(found: Found, start: Any, player: Player, reflector: Any, settings: PromptSettings) -> dict[str, Any]:
    return {
        "prompt": {**found.prompt.model_dump(mode="json"), "digest": found.prompt.digest},
        "before": {**start.model_dump(mode="json"), "digest": start.digest},
        "policy": player.identity,
        "tokens": found.tokens,
        "iterations": found.iterations,
        "stopped": found.stopped,
        "candidates": found.candidates,
        "reflection": {
            "model": settings.reflection.model,
            "asked": reflector.asked,
            "unusable": reflector.unusable,
            "cost": reflector.cost,
        },
    }


def _say_budget(settings: PromptSettings, player: Player, train: int, validation: int) -> None:
    money = settings.reflection.budget
    print(
        f"Optimising {', '.join(settings.parts)} on {train} training tasks; {validation} validation tasks choose.\n"
        f"At most {settings.tokens:,} sampled tokens (up to {player.most_tokens:,} an episode), "
        f"{settings.reflections} replies of {settings.reflection.model}"
        + (f" for at most {money:g}" if money else "")
        + f", {settings.iterations} proposals.\n"
        "Training, validation and held-out tasks are evaluated at the end, under both prompts, on top of that.",
        file=sys.stderr,
        flush=True,
    )


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
