"""The audit of graders as a page of its own, and as a section of other pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from markupsafe import Markup

from tracewheel.core.errors import DataError
from tracewheel.core.pages import percent, render
from tracewheel.evaluation.gate import EXPLAINED

HERE = Path(__file__).parent
PAGE_FILE = "audit.html"
EXAMPLES = 60  # of a judge, on the page of the audit
MOST_EXAMPLES = 6  # of a verifier, in a section of a run's page
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


def write_audit_page(result: Mapping[str, Any], out: Path) -> Path:
    """Write the page of an audit's result into a folder."""
    page = out / PAGE_FILE
    html = render(HERE, "audit.html", (), {"percent": percent}, section=audit_section(result), result=result)
    page.write_bytes(html.encode("utf-8", errors="replace"))
    return page


def audit_section(result: Mapping[str, Any]) -> Markup:
    """The tables and examples of an audit as HTML, for a page that has `.scroll`, `.card` and `.note`."""
    return Markup(
        render(HERE, "audit_part.html", (), {"percent": percent}, audit=result, groups=grouped(result), most=EXAMPLES)
    )


def audit_short(result: Mapping[str, Any], gate: Mapping[str, Any] | None = None, asked: float | str | None = None) -> Markup:
    """The rates of each verifier and its worst examples as HTML, for a section of a run's page.

    Args:
        result: What the audit found.
        gate: The record of the run's `Verdict`; empty or None where none was decided.
        asked: `gate.false_accepts` of its profile: what the gate held the gain against.

    Raises:
        DataError: an earlier version, or a hand, wrote the result.
    """
    gate = gate or {}
    reason = next((str(one) for one in gate.get("reasons") or () if str(one).startswith(EXPLAINED)), "")
    passed_gate = asked is not None and gate.get("verdict") == "promoted"
    values: dict[str, Any] = {
        "audit": result,
        "reason": reason,
        "passed_gate": passed_gate,
        "asked": asked,
        "most": MOST_EXAMPLES,
    }
    try:
        return Markup(render(HERE, "audit_short.html", (), {"percent": percent}, **values))
    except (TemplateError, TypeError, ValueError, AttributeError) as flaw:
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
