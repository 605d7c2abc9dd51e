"""Review: the decision on a promotion that waits for a person, and what wheels have a person look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracewheel.core.errors import InputError
from tracewheel.dashboard.view import Ask, Tab, form, page
from tracewheel.evaluation.wording import in_words
from tracewheel.operations.approval import DECISIONS, approval_of


@page("/runs/{place}/{run_id}/review", "review.html", tab=Tab("Review", "v", 8, in_file=True))
def review(ask: Ask) -> dict[str, Any]:
    """What the gate says of a run that waits, and the decision."""
    return {
        "approval": approval_of(ask.run.record.path),
        "verdict": in_words(ask.run.gate),
        "decides": ask.desk.decide is not None,
        "folder": ask.run.record.path,
    }


@form("/runs/{place}/{run_id}/decision")
def decision(ask: Ask, fields: Mapping[str, str]) -> str:
    """Have the decision on a promotion carried out; back to the review."""
    if ask.desk.decide is None:
        raise InputError("this dashboard cannot move the champion: use `tracewheel champion approve`")
    said = fields.get("decision", "")
    if said not in DECISIONS:
        raise InputError(f"decision {said!r}: give {' or '.join(DECISIONS)}")
    ask.desk.decide(ask.run.record, said, fields.get("who", ""), fields.get("note", ""))
    return ask.address("review")
