"""`tracewheel stage prompt`: the stage of a run with a section `prompt`, by hand; held-out tasks are not played."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, ConfigError, Writes

if TYPE_CHECKING:
    from tracewheel import Card


def add_options(parser: argparse.ArgumentParser) -> None:
    from tracewheel import profile_options

    profile_options(parser)
    parser.add_argument("--curated", required=True, metavar="DIR", help="output of curate")
    parser.add_argument("--state", metavar="DIR", help="the policy: output of a warm start or an update (default: the base)")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write; replaced if it exists")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Optimise and write. An interrupted command goes on from its journal beside `--out`.

    Raises:
        ConfigError: the profile has no section `prompt`, or its environment takes no prompt.
        DataError: there are no tasks, or the journal is another run's.
        LeakError: the profile's prompt holds a task outside training.
    """
    from tracewheel import PolicyRef, curated_folder, policy_of, prepare_environment, produce_whole, profile_of, stage_shown
    from tracewheel_prompts.optimising import Optimising
    from tracewheel_prompts.players import LocalPlayer, check_start
    from tracewheel_prompts.stages import PromptSections, write_found

    config = profile_of(options)
    if "prompt" not in config.wheel_sections:
        raise ConfigError(
            f"{options.config}: has no section prompt; write prompt: {{reflection: {{endpoint: URL, model: NAME}}}}"
        )
    config.require("policy.base", "environment.kind")
    sections, curated = PromptSections.of(config), curated_folder(options)
    check_start(config, curated)
    prepare_environment(config.work_dir, debug=options.debug)
    base = config.policy.base
    policy = policy_of(Path(options.state), base) if options.state else PolicyRef(base)
    player = LocalPlayer(sections, policy, curated, sections.prompt.samples, sections.prompt.seed)
    work, out = Optimising(sections.prompt, player, curated), Path(options.out)
    print(work.budget, file=sys.stderr, flush=True)
    journal = out.resolve().with_name(f".{out.name}.prompt-journal.jsonl")
    with stage_shown("prompt", config.stage_seconds):
        found = produce_whole(out, lambda folder: write_found(work, journal, folder))
    journal.unlink()
    return {**found, "out": options.out}


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    from tracewheel import Card

    before, after = result["before"]["digest"], result["prompt"]["digest"]
    rows = [
        ("prompt before", before),
        ("prompt", after if before != after else "the same: none was better on validation"),
        ("sampled tokens", f"{result['tokens']:,}"),
        ("reflection", f"{result['reflection']['asked']} replies, {result['reflection']['unusable']} unusable"),
        ("ended by", result["stopped"]),
    ]
    return Card("A prompt, not judged yet", rows, look_at="held-out tasks were not played: the gate of a run judges")


COMMAND = Command(
    "stage prompt",
    "a better prompt for a policy by a profile's section prompt, as retrain does after the warm start",
    add_options,
    run,
    card,
    Writes(("prompt.json", "report.json"), ("gepa.log",)),
)
