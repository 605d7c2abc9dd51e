"""Flawed success: correct answers that were reached by bad steps, which a reward for the end alone reinforces."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracewheel.report.doctor.checks.shares import Share, share_finding
from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.run_records import RunRecords
from tracewheel.scoring.flaws import FLAWS, HALF, NO_CALL

NAME = "flawed_success"
ADVICE = (
    "Many successes were reached by bad steps, and a reward for the end alone reinforces those too. Read the examples, "
    "then score the steps as well: rubric.flawed_penalty takes from the reward of such successes, rubric.turn_rewards "
    "with learner.credit: turn rewards each step, and so do rubric.malformed_penalty or a verifier of the steps."
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
    return share_finding(NAME, records, Share(flawed, success, counts), records.config.doctor.limit("flawed_success"), ADVICE)


def flaws(records: RunRecords) -> dict[str, pd.Series]:
    """For each kind of flaw, whether each episode has it. A single error that the episode recovered from is not a flaw."""
    episodes = records.episodes
    found = {name: records.flaws[name] for name in FLAWS}
    found["a step back"] = episodes["negative_rewards"] > 0
    if records.tools:
        found[NO_CALL] = episodes["calls"] == 0
    if records.graders:
        found["another grader disagrees"] = (episodes[records.graders] < HALF).any(axis=1)
    return found
