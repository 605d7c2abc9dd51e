"""`tracewheel champion promote`: let the gate decide, on the profile's run or on stored evaluations."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands.command import Command, Writes
from flows.console.arguments import (
    best_evaluation,
    finished_run,
    named_folder,
    note,
    profile_of,
    profile_options,
    profile_words,
)
from flows.console.look import Card, number
from tracewheel.core.errors import ConfigError, DataError, GateRefused, InfrastructureError

if TYPE_CHECKING:
    from tracewheel.config import RetrainConfig


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument("--challenger", metavar="DIR", help="an evaluation to judge, instead of the profile's run")
    parser.add_argument("--baseline", nargs="+", metavar="NAME=DIR", help="evaluations to compare with")
    parser.add_argument("--validation", nargs="+", metavar="NAME=DIR", help="of several baselines, the best of these is taken")
    parser.add_argument("--adapter", metavar="DIR", help="adapter to register when the gate promotes it")
    parser.add_argument("--verdict-only", action="store_true", help="write the verdict and change nothing; never exits with 3")
    parser.add_argument("--out", metavar="DIR", help="where to write gate.json")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Judge, and register the champion by the verdict.

    Raises:
        GateRefused: the gate did not promote the challenger.
        DataError: the run is not complete, or an evaluation is missing.
        InfrastructureError: MLflow does not answer.
    """
    config = profile_of(options, prefect=True)
    if options.challenger:
        return _promote_evaluation(options, config)
    finished, summary = finished_run(config)
    if options.verdict_only:
        return dict(summary["gate"])
    from tracewheel.policy.adapters import ADAPTER, MODEL

    weights = next(folder for name in (ADAPTER, MODEL) if (folder := finished.record.path / name).is_dir())
    return _registered(config, finished, weights, summary["gate"])


def _promote_evaluation(options: argparse.Namespace, config: RetrainConfig) -> dict[str, Any]:
    """Judge stored evaluations; register the adapter, if one is given, by the verdict."""
    from tasks.records.gate_ledger import note as note_look
    from tasks.records.gate_ledger import note_verdict
    from tracewheel.core.fingerprint import digest_of
    from tracewheel.core.store import produce_whole
    from tracewheel.evaluation.gate_stage import decide_gate

    if config.gate.false_accepts == "audit":
        raise ConfigError(
            "gate.false_accepts is audit, and only a run audits its graders: give the number that `tracewheel audit` found,"
            " as in --set gate.false_accepts=0.02"
        )
    challenger, share = Path(options.challenger), config.gate.false_accepts
    baselines = dict(named_folder(pair, "--baseline") for pair in options.baseline or [])
    validations = dict(named_folder(pair, "--validation") for pair in options.validation or [])
    if not baselines or (len(baselines) > 1 and set(baselines) != set(validations)):
        raise DataError("--challenger needs a --baseline NAME=DIR; several need a --validation NAME=DIR each, to choose by")
    name = best_evaluation(validations, "--validation") if len(baselines) > 1 else next(iter(baselines))
    baseline, look = baselines[name], None
    ours, theirs = digest_of(challenger), digest_of(baseline)
    evidence, changed = f"{ours}-{theirs}", ours != theirs
    if changed and not options.verdict_only:  # its place in the work folder's sequence
        look = note_look(config.work_dir, config.gate, {"evidence": evidence, "run": "", "baseline": name})

    def judged(out: Path | None) -> Any:
        return decide_gate(
            config.gate, challenger, baseline, out, baseline_name=name, look=look, false_accepts=share, trained=changed
        )

    verdict = (produce_whole(Path(options.out), judged) if options.out else judged(None)).to_record()
    if look:
        note_verdict(config.work_dir, evidence, verdict["verdict"])
    if options.verdict_only:
        return dict(verdict)
    if not options.adapter:
        return refuse_or(verdict, verdict)
    if config.gate.approval == "required":
        raise ConfigError(
            "gate.approval is required: only a run can wait for it, with its record; leave --adapter out, or set"
            " gate.approval=none"
        )
    return _registered(config, None, Path(options.adapter), verdict)


def _registered(config: RetrainConfig, run: Any, weights: Path, verdict: dict[str, Any]) -> dict[str, Any]:
    """Register the weights by the verdict.

    Raises:
        GateRefused: the gate did not promote the challenger.
        InfrastructureError: MLflow is away, or went away meanwhile.
    """
    from flows.opening import tracked
    from flows.wheel_stages import bring
    from tasks.engine.reading import begin_run
    from tasks.tracking.promotion import WAITING
    from tasks.tracking.registry import register
    from tasks.tracking.tracking import require_mlflow

    require_mlflow(config, "champion promote", note)
    with tracked(run or begin_run(config)) as run:
        version = register(run, weights, verdict)
        if version == WAITING:
            raise InfrastructureError("MLflow went away: the registration waits, and `tracewheel runs sync` delivers it")
        bring(config, note)
        return refuse_or(verdict, {**verdict, "model_version": version})


def refuse_or(gate: Mapping[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """The result; a refusal is raised with it, for the exit code."""
    from tracewheel.evaluation.wording import in_words

    if gate["verdict"] == "refused":
        raise GateRefused(" ".join(in_words(gate)), result)
    return result


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    from tracewheel.evaluation.wording import in_words

    promoted = result["verdict"] == "promoted"
    rows = [("compared with", str(result["baseline"])), ("p value", number(result.get("p_value")))]
    if "model_version" in result:
        rows.append(("registered as", f"version {result['model_version']}"))
    return Card(
        f"Gate: {result['verdict']}",
        rows,
        look_at=" ".join(in_words(result)),
        tone="good" if promoted else "warning",
        next=[f"tracewheel {'runs status' if promoted else 'doctor'} {profile_words(options)}"],
    )


COMMAND = Command(
    "champion promote",
    "let the gate decide, and register the champion",
    add_options,
    run,
    card,
    Writes(("gate.json",)),
)
