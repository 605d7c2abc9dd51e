"""The checks by name, what spoils a run at once first. Each takes the records of a run and gives one finding."""

from __future__ import annotations

from collections.abc import Callable

from tracewheel.doctor.checks.entropy_collapse import entropy_collapse
from tracewheel.doctor.checks.flawed_success import flawed_success
from tracewheel.doctor.checks.invented_tools import invented_tools
from tracewheel.doctor.checks.kl_explosion import kl_explosion
from tracewheel.doctor.checks.length_explosion import length_explosion
from tracewheel.doctor.checks.observation_loss import observation_loss
from tracewheel.doctor.checks.repetition import repetition
from tracewheel.doctor.checks.reward_hacking import reward_hacking
from tracewheel.doctor.checks.sampler_mismatch import sampler_mismatch
from tracewheel.doctor.checks.stale_adapter import stale_adapter
from tracewheel.doctor.checks.truncation import truncation
from tracewheel.doctor.checks.unrecorded_calls import unrecorded_calls
from tracewheel.doctor.checks.weak_start import weak_start
from tracewheel.doctor.checks.zero_variance import zero_variance
from tracewheel.doctor.finding import Finding
from tracewheel.doctor.records import RunRecords

Check = Callable[[RunRecords], Finding]

CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        observation_loss,
        sampler_mismatch,
        stale_adapter,
        weak_start,
        reward_hacking,
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
