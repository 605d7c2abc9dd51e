"""What the names in a score's breakdown mean."""

from __future__ import annotations

from collections.abc import Mapping

from tracewheel.scoring.adjustments import ADJUSTMENTS
from tracewheel.scoring.objectives import PREFIX
from tracewheel.scoring.outcome_first import OUTCOME, SHAPING

CAPPED = "capped."
CERTAINTY = "certainty"
NO_MARKS = ("success", CERTAINTY, OUTCOME, SHAPING, *ADJUSTMENTS)


def verifier_marks(breakdown: Mapping[str, float]) -> dict[str, float]:
    """The verifiers' own marks, each verifier's total and its parts: without what the rubric made of them."""
    return {name: value for name, value in breakdown.items() if name not in NO_MARKS and not name.startswith((PREFIX, CAPPED))}
