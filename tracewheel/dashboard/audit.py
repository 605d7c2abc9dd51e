"""The audit of graders as HTML: the section of a run's page, and the page of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import TemplateError
from markupsafe import Markup

from tracewheel.core.errors import DataError
from tracewheel.dashboard.view import render
from tracewheel.evaluation.gate import EXPLAINED

EXAMPLES, MOST_EXAMPLES = 60, 6  # of a grader, on the page of the audit and on that of a run
WORDS = {
    "solution": "known solutions",
    "equal_end": "changed solutions that end the same",
    "remark": "solutions with a remark at the end",
    "nothing": "episodes without a call",
    "claim": "failed episodes that claim success",
    "near_miss": "near misses",
    "change": "changed solutions",
    "attack": "attacks on the answer",
    "state": "forged final states",
}


def audit_section(
    audit: Mapping[str, Any], gate: Mapping[str, Any] | None = None, asked: float | str | None = None, *, whole: bool = False
) -> Markup:
    """The rates of each grader and examples.

    Args:
        audit: What the audit found.
        gate: The record of the run's `Verdict`; empty or None where none was decided.
        asked: `gate.false_accepts` of its profile: what the gate held the gain against.
        whole: With a table of all kinds of probes, and all examples.

    Raises:
        DataError: an earlier version, or a hand, wrote the result.
    """
    gate = gate or {}
    reason = next((str(one) for one in gate.get("reasons") or () if str(one).startswith(EXPLAINED)), "")
    passed = asked is not None and gate.get("verdict") == "promoted"
    try:
        values: dict[str, Any] = {"audit": audit, "reason": reason, "asked": asked if passed else None, "whole": whole}
        groups = grouped(audit) if whole else {}
        return Markup(render("graders.html", **values, groups=groups, most=EXAMPLES if whole else MOST_EXAMPLES))
    except (TemplateError, TypeError, ValueError, AttributeError, KeyError) as flaw:
        raise DataError(f"the audit cannot be read ({flaw}): run `tracewheel audit` again with --run") from flaw


def grouped(result: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """For each verifier, the rates of groups of probes: counts added up, and the kinds that went wrong."""
    found: dict[str, list[dict[str, Any]]] = {}
    for spec, verifier in result["verifiers"].items():
        rows: dict[str, dict[str, Any]] = {}
        for rate in verifier["rates"]:
            name, _, kind = rate["kind"].partition(".")
            row = rows.setdefault(
                name,
                {"name": WORDS.get(name, name), "wants": rate["wants"], "wrong_kinds": []}
                | dict.fromkeys(("probes", "wrong", "unscored", "doubtful"), 0),
            )
            for count in ("probes", "wrong", "unscored", "doubtful"):
                row[count] += rate[count]
            if rate["wrong"]:
                row["wrong_kinds"].append(f"{kind.replace('_', ' ')} {rate['wrong']} of {rate['probes']}")
        found[spec] = [rows[name] for name in WORDS if name in rows] + [row for name, row in rows.items() if name not in WORDS]
    return found
