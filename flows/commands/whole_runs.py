"""The commands about whole runs: retrain, promote, report, status."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from flows.console.arguments import best_evaluation, named_folder
from flows.setup import prepare_environment, resolve_config
from tracewheel.config import RetrainConfig
from tracewheel.core.errors import ConfigError, DataError, GateRefused, InfrastructureError
from tracewheel.core.spool import Spool
from tracewheel.core.stopping import Stopped, requested, stoppable


def retrain(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel retrain`."""
    config = _config(options)
    from tasks.engine.reading import begin_run
    from tasks.engine.run import Run
    from tasks.records.template import checked_template

    checked_template(Run.unread(config))  # what is missing is found before anything is started
    if options.dry_run:
        from flows.commands.dry_run import make_plan, show_plan

        plan = make_plan(begin_run(config, fresh=options.fresh))
        return plan if options.json else {"show": lambda: show_plan(plan)}
    from flows.deploy.server import LocalServer

    with stoppable(grace=0), LocalServer(Path(config.work_dir)) as server:
        from prefect.exceptions import Abort, TerminationSignal

        from flows import retrain as flow

        server.wait()
        with stoppable():  # no signal in the midst of Prefect's engine, which would call the run crashed
            try:
                summary = _through_prefect(flow, options)
            except (Abort, TerminationSignal) as stop:  # the second where a signal meets Prefect's own handler, at the start
                if request := requested():
                    raise Stopped(request, str(stop)) from None
                raise
    return _judged(options, summary)


def _through_prefect(flow: Any, options: argparse.Namespace) -> Any:
    """The flow's summary. Where Prefect's server is away, the same run without it: what is stored is not made again."""
    try:
        return flow.retrain(options.config, options.overrides, options.run_dir, fresh=options.fresh)
    except Exception as error:
        from tasks.engine.drivers import DirectDriver, is_prefect_away

        if not is_prefect_away(error):
            raise
        print("Prefect's server does not answer: the run goes on without it", file=sys.stderr)
        return flow.run_alone(options.config, options.overrides, options.run_dir, DirectDriver(), fresh=options.fresh)


def promote(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel promote`."""
    config = _config(options)
    if options.challenger:
        return _promote_evaluation(options, config)
    from flows.opening import tracked
    from tasks.tracking.registry import register
    from tracewheel.policy.adapters import ADAPTER, MODEL

    run, summary = _finished(config)
    verdict = summary["gate"]
    if options.verdict_only:
        return dict(verdict)
    weights = next(folder for name in (ADAPTER, MODEL) if (folder := run.record.path / name).is_dir())
    _require_mlflow(config, "promote")
    with tracked(run) as run:
        return _refuse_or(verdict, {**verdict, "model_version": _registered(register(run, weights, verdict))})


def rollback(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel rollback`."""
    config = _config(options)
    config.require("policy.base")
    from tasks.tracking.rollback import roll_back

    _require_mlflow(config, "rollback")
    return roll_back(config, options.to, options.why)


def report(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel report`."""
    config = _config(options)
    run, summary = _finished(config)
    from tracewheel.dashboard.files import export_runs

    page = options.out or summary["report"]
    export_runs([run.record], Path(page))
    return {"report": str(page)}


def status(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel status`."""
    config = _config(options)
    from tracewheel.core.run_record import find_runs
    from tracewheel.core.run_state import describe
    from tracewheel.core.store import Store

    runs = []
    held = Store(Path(config.work_dir) / "store").is_held()
    for record in find_runs(Path(config.work_dir)):
        summary = record.summary or {}
        runs.append(
            {
                "run_id": record.run_id,
                "started": record.lineage["started"],
                **({"state": "complete"} if summary else describe(record.path, held=held)),
                "verdict": summary.get("gate", {}).get("verdict"),
                "success": summary.get("success", {}).get("rl"),
                "report": summary.get("report"),
            }
        )
    champion, note = find_champion_of(config)
    from tasks.records.decisions import last_decision
    from tracewheel.operations.batches import HELD, Batches

    held_batches = [batch.to_record() for batch in Batches(config.work_dir).all() if batch.state == HELD]
    told = {
        "decision": last_decision(config.work_dir),
        "waiting": len(Spool.of(config.work_dir).waiting()),
        "held_batches": held_batches,
    }
    return {"runs": runs, "champion": champion.to_record() if champion else None, "note": note, **told}


def find_champion_of(config: RetrainConfig) -> Any:
    """The champion and a sentence about it; see `tasks.tracking.registry.find_champion`."""
    from tasks.tracking.registry import find_champion

    return find_champion(config)


def _config(options: argparse.Namespace) -> RetrainConfig:
    config = resolve_config(options.config, options.overrides, options.run_dir)
    prepare_environment(config.work_dir, debug=options.debug)
    return config


def _finished(config: RetrainConfig) -> tuple[Any, dict[str, Any]]:
    """The last run of a profile and its summary.

    Raises:
        DataError: no run of the profile has begun, or the last one is not complete.
    """
    from tasks.engine.reading import last_run

    run = last_run(config)
    if (summary := run.record.summary) is None:
        raise DataError(f"run {run.record.run_id} in {config.work_dir} is not complete; run `tracewheel retrain` first")
    return run, summary


def _false_accepts(config: RetrainConfig) -> float | None:
    share = config.gate.false_accepts
    if share == "audit":
        raise ConfigError(
            "gate.false_accepts is audit, and only a run audits its graders: give the number that `tracewheel audit` found,"
            " as in --set gate.false_accepts=0.02"
        )
    return share


def _promote_evaluation(options: argparse.Namespace, config: RetrainConfig) -> dict[str, Any]:
    """Judge stored evaluations; register the adapter, if one is given, by the verdict."""
    from tracewheel.core.store import produce_whole
    from tracewheel.evaluation.gate_stage import decide_gate

    baselines = dict(named_folder(pair, "--baseline") for pair in options.baseline or [])
    validations = dict(named_folder(pair, "--validation") for pair in options.validation or [])
    if not baselines or (len(baselines) > 1 and set(baselines) != set(validations)):
        raise DataError("--challenger needs a --baseline NAME=DIR; several need a --validation NAME=DIR each, to choose by")
    name = best_evaluation(validations, "--validation") if len(baselines) > 1 else next(iter(baselines))
    look = None if options.verdict_only else _look_at(config, Path(options.challenger), baselines[name], name)

    def judged(out: Path | None) -> Any:
        challenger, share = Path(options.challenger), _false_accepts(config)
        return decide_gate(config.gate, challenger, baselines[name], out, baseline_name=name, look=look, false_accepts=share)

    verdict = (produce_whole(Path(options.out), judged) if options.out else judged(None)).to_record()
    if options.verdict_only:
        return verdict
    if options.adapter:
        if config.gate.approval == "required":
            raise ConfigError(
                "gate.approval is required: only a run can wait for it, with its record; leave --adapter out, or set"
                " gate.approval=none"
            )
        from flows.opening import tracked
        from tasks.engine.reading import begin_run
        from tasks.tracking.registry import register

        _require_mlflow(config, "promote")
        with tracked(begin_run(config)) as run:
            version = _registered(register(run, Path(options.adapter), verdict))
            return _refuse_or(verdict, {**verdict, "model_version": version})
    return _refuse_or(verdict, verdict)


def _require_mlflow(config: RetrainConfig, purpose: str) -> None:
    from tasks.tracking.sync import require_mlflow

    require_mlflow(config, purpose, lambda text: print(text, file=sys.stderr))


def _registered(version: str) -> str:
    """The version.

    Raises:
        InfrastructureError: MLflow went away meanwhile.
    """
    from tasks.tracking.promotion import WAITING

    if version == WAITING:
        raise InfrastructureError("MLflow went away: the registration waits, and `tracewheel sync` delivers it")
    return version


def _look_at(config: RetrainConfig, challenger: Path, baseline: Path, name: str) -> Any:
    """The place of a gate on two folders of evaluations in the work folder's sequence."""
    from tasks.records.gate_ledger import note
    from tracewheel.core.fingerprint import digest_of

    evidence = f"{digest_of(challenger)}-{digest_of(baseline)}"
    return note(config.work_dir, config.gate, {"evidence": evidence, "run": "", "baseline": name})


def _refuse_or(gate: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """The result; a refusal is raised with it, for the exit code."""
    if gate["verdict"] == "refused":
        raise GateRefused("; ".join(gate["reasons"]), result)
    return result


def _judged(options: argparse.Namespace, summary: dict[str, Any]) -> dict[str, Any]:
    if options.json:
        return _refuse_or(summary["gate"], summary)
    from flows.console.arguments import profile_words
    from flows.console.summary import show_summary

    return _refuse_or(summary["gate"], {"show": lambda: show_summary(summary, profile_words(options))})
