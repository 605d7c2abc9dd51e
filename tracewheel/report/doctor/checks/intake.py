"""Checks of what a run learns from: its split, its logs, and the tokens that enter the loss."""

from __future__ import annotations

from collections import Counter

from tracewheel.evaluation.gate import MIN_FIDELITY
from tracewheel.learner.fidelity import COUNTED
from tracewheel.report.doctor.finding import Finding, advice, not_checked
from tracewheel.report.doctor.measures import severity_above
from tracewheel.report.doctor.run_records import RunRecords


def held_out_use(records: RunRecords) -> Finding:
    """Held-out tasks that were used for anything else."""
    ledger = records.split_ledger
    if ledger is None:
        return not_checked("held_out_use", "The curation has no ledger of splits.")
    names = ("number", "gave_way", "gave_way_trained", "retired_held_out", "retired_validation", "rotated")
    evidence = {name.replace("_", " "): ledger[name] for name in names}
    if ledger["leaks"]:
        return Finding("held_out_use", "severe", {**evidence, "leaks": True}, advice("held_out_use.leak"))
    if ledger["lost"]:
        return Finding("held_out_use", "warning", evidence, advice("held_out_use.lost"))
    if ledger.get("quoted"):  # curations of earlier versions did not look
        return Finding("held_out_use", "warning", {**evidence, "quoted": ledger["quoted"]}, advice("held_out_use.quoted"))
    if ledger["retired_held_out"] or ledger["retired_validation"] or ledger["gave_way_trained"]:
        return Finding("held_out_use", "warning", evidence, advice("held_out_use.linked"))
    return Finding("held_out_use", "healthy", evidence)


def held_batches(records: RunRecords) -> Finding:
    """Batches that the screening held and no person has looked at."""
    intake = records.intake
    if intake is None:
        return not_checked("held_batches", "The run has no record of what it took in.")
    waiting = [batch for batch in intake["batches"] if batch["waits"]]
    evidence = {
        "held batches": len(intake["batches"]),
        "waiting": [batch["id"] for batch in waiting],
        "records left out": sum(batch["records"] for batch in intake["batches"]),
    }
    if not waiting:
        return Finding("held_batches", "healthy", evidence)
    return Finding(
        "held_batches",
        "severe",
        {**evidence, "why": [why for batch in waiting for why in batch["reasons"]]},
        advice("held_batches"),
    )


def unread_logs(records: RunRecords) -> Finding:
    """The share of the records in quarantine."""
    intake = records.intake
    if intake is None or not intake["read"]:
        return not_checked("unread_logs", "The run has no record of what it took in.")
    share = intake["quarantined"] / intake["read"]
    evidence = {"quarantined": intake["quarantined"], "read": intake["read"], "share": share}
    examples = [f"{count} {reason}" for reason, count in intake["by_reason"].items()]
    severity = severity_above(share, records.config.doctor.limit("unread_logs"))
    if severity == "healthy":
        return Finding("unread_logs", severity, evidence)
    return Finding(
        "unread_logs",
        severity,
        {**evidence, "reasons": examples, "as": list(intake["examples"].values())},
        advice("unread_logs"),
    )


MANY = 0.1  # share of requests with assistant messages that the policy did not say, from which on it is a warning


def fidelity(records: RunRecords) -> Finding:
    """An update below `MIN_FIDELITY`, or many requests that no turn of the policy matches."""
    measured = records.metric("fidelity")
    if not measured:
        return not_checked("fidelity", "No program played the episodes.")
    asked, unmatched = records.metric("requests"), records.metric("requests_unmatched")
    shares = {number: unmatched.get(number, 0.0) / count for number, count in asked.items() if count}
    evidence = {
        "least": min(measured.values()),
        "asked for": MIN_FIDELITY,
        "lost tokens": int(sum(records.metric("lost_tokens").values())),
        "unmatched requests": int(sum(unmatched.values())),
        "by_iteration": measured,
    }
    fields: Counter[str] = Counter()  # requests by what of them was left out or refused
    for item in records.iterations:
        fields.update({name: int(value) for name, value in item.metrics.items() if name.startswith(COUNTED)})
    if fields:
        evidence["fields left out or refused"] = dict(fields)
    low = tuple(number for number, value in measured.items() if value < MIN_FIDELITY)
    edited = tuple(number for number, share in shares.items() if share >= MANY)
    if low:
        return Finding("fidelity", "severe", evidence, advice("fidelity"), low)
    if edited:
        return Finding("fidelity", "warning", evidence, advice("fidelity.edits"), edited)
    return Finding("fidelity", "healthy", evidence)


# The learner reports a mean of whole numbers; a difference beyond rounding means another mask.
TOLERANCE = 0.01


def observation_loss(records: RunRecords) -> Finding:
    """Compare the action mask with the turns, with their end-of-turn tokens, and with the learner's token count."""
    if records.episodes.empty:
        return not_checked("observation_loss", "No trajectories are stored.")
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
        return Finding("observation_loss", "healthy", evidence)
    faulty = records.episodes[(records.episodes["outside_turns"] > 0) | (records.episodes["past_the_end"] > 0)]
    return Finding(
        "observation_loss",
        "severe",
        evidence | {"examples": faulty["id"].head(3).tolist()},
        advice("observation_loss"),
        tuple(found),
    )


def _learned_too_many(records: RunRecords) -> set[int]:
    """Iterations whose update used more tokens per trajectory than its turns hold."""
    sampled = records.episodes.groupby("iteration")["turn_tokens"].mean()
    counted = records.metric("generated_tokens")
    return {number for number, tokens in counted.items() if number in sampled and tokens > sampled[number] * (1 + TOLERANCE)}
