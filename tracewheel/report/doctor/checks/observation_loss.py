"""Observation tokens in the loss: the policy learns to write what the environment says."""

from __future__ import annotations

from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.records import RunRecords

NAME = "observation_loss"
ADVICE = (
    "The loss covers tokens that the policy did not sample, and teaches it to invent what tools answer. Look at where "
    "the action mask is made (the engine, the renderer or an import of trajectories): it is 1 on sampled tokens "
    "alone."
)
# The learner's count is a mean of whole numbers; anything beyond rounding is another mask.
TOLERANCE = 0.01


def observation_loss(records: RunRecords) -> Finding:
    """Compare the action mask with the turns, with where turns end, and with how many tokens the learner learned from."""
    if records.episodes.empty:
        return not_checked(NAME, "No trajectories are stored.")
    outside, past = records.count("outside_turns"), records.count("past_the_end")
    learned = _learned_too_many(records)
    found = sorted(number for number in outside if outside[number] or past[number] or number in learned)
    evidence = {
        "action tokens": int(records.episodes["action_tokens"].sum()),
        "outside any turn": sum(outside.values()),
        "after a turn's end": sum(past.values()),
        "iterations in which the learner counts more than was sampled": sorted(learned),
    }
    if not found:
        return Finding(NAME, "healthy", evidence)
    faulty = records.episodes[(records.episodes["outside_turns"] > 0) | (records.episodes["past_the_end"] > 0)]
    return Finding(NAME, "severe", evidence | {"examples": faulty["id"].head(3).tolist()}, ADVICE, tuple(found))


def _learned_too_many(records: RunRecords) -> set[int]:
    """Iterations whose update learned from more tokens a trajectory than the turns of its trajectories hold.

    Left alone where an update learns from other trajectories than the iteration's own.
    """
    if records.replays:
        return set()
    sampled = records.episodes.groupby("iteration")["turn_tokens"].mean()
    counted = records.metric("generated_tokens")
    return {number for number, tokens in counted.items() if number in sampled and tokens > sampled[number] * (1 + TOLERANCE)}
