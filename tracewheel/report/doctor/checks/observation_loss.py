"""Observation tokens in the loss: the policy learns to write the environment's replies."""

from __future__ import annotations

from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.run_records import RunRecords

NAME = "observation_loss"
ADVICE = (
    "The loss covers tokens that the policy did not sample, which teaches it to invent tool replies. Check the code that "
    "makes the action mask (the engine, the renderer or an import of trajectories): it must be 1 on sampled tokens only."
)
# The learner reports a mean of whole numbers; a difference beyond rounding means another mask.
TOLERANCE = 0.01


def observation_loss(records: RunRecords) -> Finding:
    """Compare the action mask with the turns, with their end-of-turn tokens, and with the learner's token count."""
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
    """Iterations whose update used more tokens per trajectory than its turns hold.

    Empty where updates also learn from trajectories of earlier iterations.
    """
    if records.replays:
        return set()
    sampled = records.episodes.groupby("iteration")["turn_tokens"].mean()
    counted = records.metric("generated_tokens")
    return {number for number, tokens in counted.items() if number in sampled and tokens > sampled[number] * (1 + TOLERANCE)}
