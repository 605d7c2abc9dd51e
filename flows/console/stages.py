"""What the commands of single stages share: the profile, the policy, and the output with its progress."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.console.arguments import folder_of, profile_of
from tracewheel.core.out_folder import Writes

if TYPE_CHECKING:
    from tracewheel.config import RetrainConfig
    from tracewheel.policy.adapters import PolicyRef

# What a warm start and an update write.
POLICY_OUT = Writes(
    ("metrics.json",),
    ("adapter/*", "model/*", "metrics.json", "learner.json", "optimizer.pt", "optimizer/*", "critic*"),
)


def stage_profile(options: argparse.Namespace, *required: str) -> RetrainConfig:
    """The profile of a single stage.

    Raises:
        ConfigError: it is invalid, lacks what is required, or names a device that is not there.
    """
    config = profile_of(options, *required)
    if "policy.base" in required and config.policy.device != "cpu":
        import torch

        from tracewheel.config.placement import check_device

        check_device(config.policy.device, torch.cuda.device_count())
    return config


def policy_in(config: RetrainConfig, state: str | None, option: str = "--state") -> PolicyRef:
    """The policy in a state's folder; the base alone without one.

    Raises:
        DataError: there is no such folder.
        AdapterMismatchError: it was trained for another base.
    """
    from tracewheel.policy.adapters import PolicyRef, policy_of

    return PolicyRef(config.policy.base) if state is None else policy_of(folder_of(state, option), config.policy.base)


def produced(options: argparse.Namespace, config: RetrainConfig, stage: str, produce: Callable[[Path], Any]) -> dict[str, Any]:
    """Write a stage's output as a whole, show how far it is, and hold its time limit; returns the result with its place."""
    from flows.console.progress import stage_shown
    from tracewheel.core.store import produce_whole

    with stage_shown(stage, config.seconds_for(stage)):
        return {"out": options.out, **produce_whole(Path(options.out), produce)}


def resumable(options: argparse.Namespace, label: str, produce: Callable[[Path, Path, Callable[[int, int], None]], Any]) -> Any:
    """Write what an endpoint answers: each reply is stored in a journal beside `--out` as it arrives, so that it resumes.

    Args:
        options: With `out`.
        label: What is shown while it runs.
        produce: Gets the folder, the journal and what to tell progress; returns a result with its own `stopped`, the reason
            why not all episodes have ended, or "". When all have ended the journal is removed.
    """
    from flows.console.progress import TerminalReporter
    from tracewheel.core.store import produce_whole

    out = Path(options.out)
    journal = out.with_name(f"{out.name}.journal.jsonl")
    reporter = TerminalReporter()
    with reporter.shown():
        reporter.start(label)
        result = produce_whole(out, lambda partial: produce(partial, journal, reporter.episodes))
    if result["stopped"]:
        reporter.say(f"{result['stopped']}; the same command resumes from {journal}")
    else:
        journal.unlink(missing_ok=True)
    return {"out": options.out, **result}
