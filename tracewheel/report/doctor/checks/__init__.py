"""The checks by name, the most urgent first. Each takes the records of a run and returns one finding."""

from __future__ import annotations

from collections.abc import Callable

from tracewheel.report.doctor.checks.entropy_collapse import entropy_collapse
from tracewheel.report.doctor.checks.fidelity import fidelity
from tracewheel.report.doctor.checks.flawed_success import flawed_success
from tracewheel.report.doctor.checks.guard import guard
from tracewheel.report.doctor.checks.held_batches import held_batches
from tracewheel.report.doctor.checks.held_out_use import held_out_use
from tracewheel.report.doctor.checks.invented_tools import invented_tools
from tracewheel.report.doctor.checks.judge_drift import judge_drift
from tracewheel.report.doctor.checks.kl_explosion import kl_explosion
from tracewheel.report.doctor.checks.length_explosion import length_explosion
from tracewheel.report.doctor.checks.observation_loss import observation_loss
from tracewheel.report.doctor.checks.repetition import repetition
from tracewheel.report.doctor.checks.reward_hacking import reward_hacking
from tracewheel.report.doctor.checks.sampler_mismatch import sampler_mismatch
from tracewheel.report.doctor.checks.sandbox_findings import sandbox_findings
from tracewheel.report.doctor.checks.stale_adapter import stale_adapter
from tracewheel.report.doctor.checks.truncation import truncation
from tracewheel.report.doctor.checks.unread_logs import unread_logs
from tracewheel.report.doctor.checks.unrecorded_calls import unrecorded_calls
from tracewheel.report.doctor.checks.weak_start import weak_start
from tracewheel.report.doctor.checks.zero_variance import zero_variance
from tracewheel.report.doctor.finding import Finding
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
