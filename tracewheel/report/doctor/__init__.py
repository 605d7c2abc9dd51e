"""The doctor: the known ways in which agentic reinforcement learning goes wrong, looked for in a run's records."""

from tracewheel.report.doctor.checks import CHECKS
from tracewheel.report.doctor.examine import examine
from tracewheel.report.doctor.finding import SEVERITIES, Finding, worst
from tracewheel.report.doctor.records import (
    LOOP_FILE,
    Iteration,
    RunRecords,
    Weights,
    loops_of,
    read_families,
    read_iteration,
    read_records,
)

__all__ = [
    "CHECKS",
    "LOOP_FILE",
    "SEVERITIES",
    "Finding",
    "Iteration",
    "RunRecords",
    "Weights",
    "examine",
    "loops_of",
    "read_families",
    "read_iteration",
    "read_records",
    "worst",
]
