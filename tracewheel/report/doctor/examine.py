"""All checks on one run."""

from __future__ import annotations

import logging

from tracewheel.report.doctor.checks import CHECKS, Check
from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.run_records import RunRecords

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
