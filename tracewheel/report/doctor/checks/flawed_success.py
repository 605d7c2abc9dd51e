"""Flawed success: correct answers that were reached by bad steps, which a reward for the end alone reinforces."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracewheel.report.doctor.checks.repetition import LOOP
from tracewheel.report.doctor.checks.shares import Share, share_finding
from tracewheel.report.doctor.checks.truncation import CAPS
from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.run_records import RunRecords

NAME = "flawed_success"
HALF = 0.5
ADVICE = (
    "Many successes were reached by bad steps, and a reward for the end alone reinforces those too. Read the examples, "
    "then score the steps as well: rubric.turn_rewards with learner.credit: turn, rubric.malformed_penalty, or a "
    "verifier of the steps."
)


def flawed_success(records: RunRecords) -> Finding:
    """The share of successes that have one of `flaws`."""
    if records.episodes.empty or not (records.episodes["success"] > 0).any():
        return not_checked(NAME, "No success is stored.")
    success = records.episodes["success"] > 0
    found = {name: flawed & success for name, flawed in flaws(records).items()}
    flawed = pd.DataFrame(found).any(axis=1)
    counts: dict[str, Any] = {name: int(flag.sum()) for name, flag in found.items() if flag.any()}
    counts["for example"] = records.episodes.loc[flawed, "id"].head(3).tolist()
    return share_finding(NAME, records, Share(flawed, success, counts), records.config.doctor.flawed_success, ADVICE)


def flaws(records: RunRecords) -> dict[str, pd.Series]:
    """For each kind of flaw, whether each episode has it. A single error that the episode recovered from is not a flaw."""
    episodes = records.episodes
    found = {
        "malformed calls": episodes["malformed"] > 0,
        "invented tools": episodes["unknown_tools"].map(len) > 0,
        "half the calls failed": (episodes["calls"] > 0) & (episodes["errors"] >= HALF * episodes["calls"]),
        "loops": episodes["loop"] >= LOOP,
        "cut off": episodes["stop_reason"].isin(CAPS),
        "a step back": episodes["negative_rewards"] > 0,
    }
    if records.tools:
        found["no call at all"] = episodes["calls"] == 0
    if records.graders:
        found["another grader disagrees"] = (episodes[records.graders] < HALF).any(axis=1)
    return found
