"""What a run has come to when the gate has judged."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from tasks.engine.run import Policy
from tasks.records.improvement import Improvement
from tracewheel.core.store import Entry


@dataclass(frozen=True)
class Outcome:
    """The results of a run, for its report.

    Attributes:
        evaluations: Policy name to split to evaluation, in the order of the table's rows.
        learned: What the loop returned.
        sampler: The tasks' posterior at the end.
        repeated: The second evaluation of the gate's baseline on the held-out split; None without an A/A run.
        candidate: The line in the ledger of the candidate that the run began with; None where none waits any more.
    """

    traces: Entry
    curated: Entry
    policies: dict[str, Policy]
    evaluations: dict[str, dict[str, Entry]]
    learned: Improvement
    gate: dict[str, Any]
    sampler: dict[str, Any]
    started: float = field(default_factory=time.monotonic)
    repeated: Entry | None = None
    candidate: dict[str, Any] | None = None
