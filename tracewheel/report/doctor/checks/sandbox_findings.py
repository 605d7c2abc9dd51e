"""Sandbox findings: episodes whose code did what an honest program does not, as the sandbox saw it."""

from __future__ import annotations

from typing import Any

from tracewheel.report.doctor.finding import Finding, Severity, not_checked
from tracewheel.report.doctor.run_records import RunRecords

NAME = "sandbox_findings"
ATTEMPT = "escape"
FLAGGED = "flagged by a verifier"
JUDGED = "flagged by a judge"
NOTHING = "No episode ran code in a sandbox, and no judge flagged one."
COMMON = "timeout"
EXAMPLES = 5
ADVICE: dict[Severity, str] = {
    "severe": (
        "Code of the agent tried to get out of its box: a forbidden system call, an address beyond the box, or a file that no "
        "honest program opens. Nothing came of it, and the built-in verifiers of code gave no reward: read the examples."
    ),
    "warning": (
        "Code of the agent was stopped for its use of memory, processes, disk or output, called a port where nothing listens, "
        "left a link that leads out, or a verifier flagged it, or a text may be written for the judge (it was judged "
        "without it, or waits for a person). Read the examples: a task may need higher limits (sandbox.limits), or the "
        "policy learns to crash, or to reach the tests."
    ),
}


def sandbox_findings(records: RunRecords) -> Finding:
    """How many episodes have which finding, with examples of each; trying to escape is severe.

    An episode that ran code and that a verifier flagged (its part `flagged`: an attempt on the tests, say) counts as a kind of
    its own. So does one that ran none: only judges flag those, for texts that are written for them.
    """
    episodes = records.episodes
    if episodes.empty:
        return not_checked(NAME, NOTHING)
    boxed = episodes[episodes["findings"].notna()] if "findings" in episodes else episodes[:0]
    kinds: dict[str, list[str]] = {}
    for row in boxed.to_dict("records"):
        for kind in (*dict.fromkeys(row["findings"].split()), *([FLAGGED] if row.get("flagged") else [])):
            kinds.setdefault(kind, []).append(row["id"])
    talked = episodes[~episodes["id"].isin(boxed["id"])]
    if "flagged" in talked and talked["flagged"].any():
        kinds[JUDGED] = talked["id"][talked["flagged"].astype(bool)].tolist()
    if boxed.empty and not kinds:
        return not_checked(NAME, NOTHING)
    evidence: dict[str, Any] = {"episodes that ran code": len(boxed)}
    evidence |= {kind: len(kinds[kind]) for kind in sorted(kinds)}
    # A slow program is often an honest one.
    odd = sorted(kinds.keys() - {COMMON}, key=lambda kind: (kind != ATTEMPT, kind))
    if not odd:
        return Finding(NAME, "healthy", evidence)
    for kind in odd:
        evidence[f"episodes {kind}" if kind in (FLAGGED, JUDGED) else f"episodes with {kind}"] = kinds[kind][:EXAMPLES]
    concerned = episodes[episodes["id"].isin({name for kind in odd for name in kinds[kind]})]
    severity: Severity = "severe" if ATTEMPT in kinds else "warning"
    return Finding(NAME, severity, evidence, ADVICE[severity], tuple(sorted({int(n) for n in concerned["iteration"]})))
