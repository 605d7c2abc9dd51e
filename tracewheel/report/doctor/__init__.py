"""The doctor: checks of a run's records for the known failure modes of agentic reinforcement learning."""

from tracewheel.core.run_record import LOOP_FILE
from tracewheel.report.doctor.checks import CHECKS, examine
from tracewheel.report.doctor.finding import Finding, worst
from tracewheel.report.doctor.run_records import (
    GUARD_FILE,
    Iteration,
    RunRecords,
    read_families,
    read_guard,
    read_iteration,
    read_records,
    read_split_ledger,
)
