"""Held-out use: what the data of this run did to the splits, from curation's ledger."""

from __future__ import annotations

from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.run_records import RunRecords

NAME = "held_out_use"
LEAK = (
    "Tasks that are held out, or copies or users of them, are on another side too or were used by an earlier run, and"
    " curation.allow_leak let it pass: no figure of this run can be trusted. Curate again without it."
)
LINKED = (
    "New traces link training tasks that earlier runs have trained on to held-out or validation tasks. Both are out of the"
    " sets now, and this run's figures are clean; figures of earlier runs on the retired tasks were too good. Where"
    " this goes on, many users or sessions span tasks: see whether the log names them as it should."
)
QUOTED = (
    "A conversation that earlier runs have trained on holds the prompt or the gold answer of a task of the test side. That"
    " task is not held out any more; figures of earlier runs on it were too good. See where the logs show one user's text to"
    " another."
)
LOST = (
    "The record of splits was lost and was rebuilt from the logs: all of the training side counts as trained on, so held-out"
    " tasks retired that may have been clean. Keep splits.parquet of each run."
)


def held_out_use(records: RunRecords) -> Finding:
    """Held-out tasks that were used for anything else."""
    ledger = records.split_ledger
    if ledger is None:
        return not_checked(NAME, "The curation has no ledger of splits.")
    names = ("number", "gave_way", "gave_way_trained", "retired_held_out", "retired_validation", "rotated")
    evidence = {name.replace("_", " "): ledger[name] for name in names}
    if ledger["leaks"]:
        return Finding(NAME, "severe", {**evidence, "leaks": True}, LEAK)
    if ledger["lost"]:
        return Finding(NAME, "warning", evidence, LOST)
    if ledger.get("quoted"):  # curations of earlier versions did not look
        return Finding(NAME, "warning", {**evidence, "quoted": ledger["quoted"]}, QUOTED)
    if ledger["retired_held_out"] or ledger["retired_validation"] or ledger["gave_way_trained"]:
        return Finding(NAME, "warning", evidence, LINKED)
    return Finding(NAME, "healthy", evidence)
