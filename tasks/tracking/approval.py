"""Promotions that wait for a person (`gate.approval: required`): asking, and carrying the decision out.

The alias is moved by the code that moves it for any promotion (`promotion.py`), so that an approval is subject to the
same rules: a run whose champion was replaced meanwhile is not promoted, however late it is approved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasks.engine.run import Run
from tasks.tracking.client import MlflowAway, clear_errors, make_client
from tasks.tracking.promotion import WAITING
from tasks.tracking.registry import register
from tasks.tracking.tracking import Tracking, require_mlflow
from tracewheel.config import RetrainConfig, load_stored_config
from tracewheel.core import run_state
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.run_record import CONFIG_FILE, SUMMARY_FILE, RunRecord
from tracewheel.core.run_state import PROMOTED
from tracewheel.operations.approval import APPROVED, OVERTAKEN, Approval, approval_of, carried_out, decide
from tracewheel.policy.adapters import ADAPTER, MODEL

Say = Callable[[str], None]


def approve(record: RunRecord, decision: str, by: str, note: str, say: Say) -> Approval:
    """Decide on a promotion that waits, and carry it out: move the alias `champion`, or leave it.

    Args:
        record: The run.
        decision: `approved` or `refused`.
        by: Who decides.
        note: What they say of it.
        say: Told what a person should know.

    Raises:
        InputError: the run does not wait, is decided already, or a text is unusable.
        MlflowAway: the registry does not answer. The decision is kept; the same one again carries it out.
        DataError: the run's weights are gone, or another champion came in between: nothing was promoted.
    """
    config, gate, weights = _what_waits(record)
    decide(record.path, decision, by, note)
    with clear_errors():
        require_mlflow(config, "a decision", say)
        tracking = Tracking.open(config, record, say)
        with tracking.closing():
            version = register(replace(Run.on(config, record.run_id), tracking=tracking), weights, gate)
            if version == WAITING:
                raise MlflowAway("MLflow went away: the decision is kept, and the same one again carries it out")
            registered = make_client(config.tracking.uri).get_model_version(config.tracking.model_name, version)
            approval = _note(record, registered.tags)
    if approval.outcome == OVERTAKEN:
        raise DataError(f"run {record.run_id} is approved, and not champion: {approval.why}")
    return approval


def _what_waits(record: RunRecord) -> tuple[RetrainConfig, dict[str, Any], Path]:
    """The profile of a run, its gate and its weights.

    Raises:
        DataError: the run is not complete, or its weights are gone.
    """
    summary = record.summary
    if summary is None:
        raise DataError(f"{record.path}: run {record.run_id} is not complete; `tracewheel retrain` resumes it")
    try:
        config = load_stored_config(record.path)
    except ConfigError as error:
        raise DataError(f"{record.path / CONFIG_FILE}: a profile of another version ({error})") from error
    weights = next((record.path / name for name in (ADAPTER, MODEL) if (record.path / name).is_dir()), None)
    if weights is None:
        raise DataError(f"{record.path}: the run's weights are gone; `tracewheel runs report` of its profile shows what it was")
    return config.model_copy(update={"work_dir": str(record.path.parent)}), summary["gate"], weights


def _note(record: RunRecord, tags: dict[str, str]) -> Approval:
    """Write down what came of a decision, by the tags of the run's version."""
    known = approval_of(record.path)
    assert known is not None
    outcome, why = (PROMOTED if known.decision == APPROVED else run_state.REFUSED), ""
    if outcome == PROMOTED and tags.get("crowned") != "yes":
        outcome, why = OVERTAKEN, tags.get("not_champion", "the registry has another champion")
    approval = carried_out(record.path, outcome, why)
    record.state.settled(PROMOTED if outcome == PROMOTED else run_state.REFUSED, approval.says)
    if summary := record.summary:
        record.write(SUMMARY_FILE, {**summary, "approval": approval.to_record()})
    return approval
