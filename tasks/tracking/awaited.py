"""What registering a version has to know of a person's approval (`gate.approval`)."""

from __future__ import annotations

from typing import Any

from tasks.engine.run import Run
from tracewheel.core.run_state import PROMOTED
from tracewheel.operations.approval import APPROVED, approval_of, ask

WAITS = "its promotion waits for approval"


def approval_values(run: Run, verdict: dict[str, Any]) -> dict[str, Any]:
    """What registering has to know of the approval: `withheld` and `decision`; nothing where none is needed.

    A run that has waited once keeps to its decision, whatever the profile says since.
    """
    known = approval_of(run.record.path)
    if verdict["verdict"] != PROMOTED or (known is None and run.config.gate.approval == "none"):
        return {}
    approval = known or ask(run.record.path)
    if approval.waits:
        return {"withheld": WAITS, "decision": {"approval": "awaited"}}
    told = {
        "approval": approval.decision,
        "approval_by": approval.by,
        "approval_note": approval.note,
        "approval_at": approval.at,
    }
    return {"decision": told} | ({} if approval.decision == APPROVED else {"withheld": approval.says})
