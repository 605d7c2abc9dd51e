"""The checks by name, the most urgent first. Each takes the records of a run and returns one finding."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tracewheel.report.doctor.checks.episodes import (
    broken_programs,
    flawed_success,
    invented_tools,
    repetition,
    truncation,
    unrecorded_calls,
    weak_start,
    zero_variance,
)
from tracewheel.report.doctor.checks.intake import fidelity, held_batches, held_out_use, observation_loss, unread_logs
from tracewheel.report.doctor.checks.rewards import judge_drift, length_explosion, reward_hacking, sandbox_findings
from tracewheel.report.doctor.checks.training import entropy_collapse, guard, kl_explosion, sampler_mismatch, stale_adapter
from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.run_records import RunRecords

Check = Callable[[RunRecords], Finding]

CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        held_out_use,
        held_batches,
        unread_logs,
        observation_loss,
        sampler_mismatch,
        broken_programs,
        fidelity,
        stale_adapter,
        guard,
        sandbox_findings,
        weak_start,
        reward_hacking,
        judge_drift,
        flawed_success,
        zero_variance,
        entropy_collapse,
        kl_explosion,
        length_explosion,
        truncation,
        invented_tools,
        unrecorded_calls,
        repetition,
    )
}


logger = logging.getLogger(__name__)


def examine(records: RunRecords) -> list[Finding]:
    """Run all checks; returns one finding for each, in the order of `CHECKS`.

    A check whose records are missing is `not_checked`, never `healthy`.
    """
    return [_guarded(name, check, records) for name, check in CHECKS.items()]


def _guarded(name: str, check: Check, records: RunRecords) -> Finding:
    try:
        return check(records)
    except Exception as error:  # a user's class wrote these records; a failed check must not end the run
        logger.warning("doctor: %s: %s: %s", name, type(error).__name__, error)
        return not_checked(name, f"The check itself failed: {type(error).__name__}: {error}")
