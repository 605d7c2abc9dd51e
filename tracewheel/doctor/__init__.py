"""The doctor: the known ways in which agentic reinforcement learning goes wrong, looked for in a run's records."""

from tracewheel.doctor.checks import CHECKS
from tracewheel.doctor.examine import examine
from tracewheel.doctor.finding import SEVERITIES, Finding, worst
from tracewheel.doctor.records import (
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
