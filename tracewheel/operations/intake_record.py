"""What a run took in, for its record: what became of the records that it read, and the batches that it left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tracewheel.core.files import read_json
from tracewheel.operations.batches import Batch, held_batches

INTAKE_FILE = "intake.json"
COUNTS = ("read", "kept", "duplicates", "quarantined")


def intake_of(report: Mapping[str, Any], examples: Mapping[str, str], batches: Iterable[Batch]) -> dict[str, Any]:
    """The record, as `intake.json` of a run has it.

    Args:
        report: The report of the ingest.
        examples: Of the frequent reasons of the quarantine, the first place.
        batches: The batches that are held.
    """
    held = [_short(batch) for batch in batches]
    counts = {name: report[name] for name in COUNTS}
    out = sum(batch["records"] for batch in held)
    return {
        "found": counts["read"] + out,
        **counts,
        "held": out,
        "by_reason": dict(report["by_reason"]),
        "examples": dict(examples),
        "batches": held,
        **({"outcomes": dict(report["outcomes"])} if "outcomes" in report else {}),
    }


def read_intake(record: Path, work_dir: Path) -> dict[str, Any] | None:
    """The record of a run, with the batches in their present state; None for a run of an earlier version.

    Args:
        record: The folder of the run, or of a specialist's loop within it.
        work_dir: The work folder.
    """
    path = next((folder / INTAKE_FILE for folder in (record, *record.parents[:3]) if (folder / INTAKE_FILE).is_file()), None)
    if path is None:
        return None
    intake: dict[str, Any] = read_json(path)
    now = {batch.id: _short(batch) for batch in held_batches(work_dir)}
    return {**intake, "batches": [now.get(batch["id"], {**batch, "waits": False}) for batch in intake["batches"]]}


def sentences(intake: Mapping[str, Any]) -> list[str]:
    """What a reader must know of it: held batches first, then the quarantine; empty where all is well."""
    said = [
        f"Batch {batch['id']} of {batch['when'][:10]} is held: {batch['records']} of {intake['found']} records are left out. "
        f"{'; '.join(batch['reasons'])}"
        for batch in intake["batches"]
    ]
    if intake["quarantined"]:
        reasons = ", ".join(
            f"{count} {reason}" + (f" (as {intake['examples'][reason]})" if reason in intake["examples"] else "")
            for reason, count in sorted(intake["by_reason"].items(), key=lambda item: -item[1])
        )
        share = intake["quarantined"] / intake["read"]
        said.append(f"{intake['quarantined']} of {intake['read']} records ({share:.1%}) are in quarantine: {reasons}.")
    if outcomes := intake.get("outcomes"):
        said.append(about_outcomes(outcomes))
    return said


def about_outcomes(outcomes: Mapping[str, Any]) -> str:
    """What was said after the conversations, in a sentence."""
    parts = [f"{outcomes.get('traces', 0)} traces have some"]
    labels = {"corrected": "have a corrected one", "waiting": "wait for their trace", "too_late": "came too late to count"}
    parts += [f"{outcomes[name]} {label}" for name, label in labels.items() if outcomes.get(name)]
    if unreadable := outcomes.get("unreadable"):
        parts.append(f"{unreadable['rows']} rows cannot be read (as {unreadable['first']})")
    return f"{outcomes.get('said', 0)} outcomes were said later: {', '.join(parts)}."


def _short(batch: Batch) -> dict[str, Any]:
    return {
        "id": batch.id,
        "when": batch.when,
        "records": batch.records["read"],
        "waits": batch.waits,
        "reasons": [check["sentence"] for check in batch.reasons] or [batch.decisions[-1]["why"]],
    }
