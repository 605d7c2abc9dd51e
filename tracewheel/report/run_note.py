"""The note on a run for the pages of a tracking server: the verdict, a table, a curve and where to look, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracewheel.evaluation.wording import in_words

BARS = "▁▂▃▄▅▆▇█"
FIGURES = {"success": "held-out, greedy", "sampled": "held-out, sampled", "harder": "harder tier, greedy"}


def run_note(summary: Mapping[str, Any], changes: Sequence[Mapping[str, Any]], findings: Sequence[Any]) -> str:
    """The note.

    Args:
        summary: As `tracewheel retrain` prints it.
        changes: The held-out tasks that the run gained and lost.
        findings: The doctor's findings.
    """
    gate = summary["gate"]
    parts = [
        "\n".join(f"- {sentence}" for sentence in in_words(gate)),
        _table(summary),
        _curve(summary.get("validation") or {}),
        _changed(changes),
        _findings(findings),
        str((summary.get("worth") or {}).get("says", "")),
        f"Report: `{summary['report']}` · `tracewheel dashboard {_folder(summary)}`",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def spark(values: Sequence[float | None]) -> str:
    """Shares as a line of bars, from 0 to 1; a dot where there is no value."""
    return "".join("·" if value is None else BARS[min(len(BARS) - 1, int(value * len(BARS)))] for value in values)


def _table(summary: Mapping[str, Any]) -> str:
    head = "| policy | " + " | ".join(FIGURES.values()) + " |\n|---|" + "---:|" * len(FIGURES)
    rows = [
        f"| {policy} | " + " | ".join(_cell(summary, name, policy) for name in FIGURES) + " |"
        for policy in summary.get("success") or {}
    ]
    return "\n".join([head, *rows]) if rows else ""


def _cell(summary: Mapping[str, Any], name: str, policy: str) -> str:
    value = (summary.get(name) or {}).get(policy)
    ends = ((summary.get("intervals") or {}).get(name) or {}).get(policy)
    if value is None:
        return ""
    return f"{value:.1%}" + (f" ({ends[0]:.1%} to {ends[1]:.1%})" if ends else "")


def _curve(validation: Mapping[Any, Mapping[str, float | None]]) -> str:
    rows = sorted(validation.items(), key=lambda item: int(item[0]))
    if len(rows) < 2:
        return ""
    values = [figures.get("sampled") for _, figures in rows]
    known = [value for value in values if value is not None]
    if not known:
        return ""
    return f"Validation, sampled, iterations {rows[0][0]} to {rows[-1][0]}: `{spark(values)}` {known[0]:.1%} to {known[-1]:.1%}"


def _changed(changes: Sequence[Mapping[str, Any]]) -> str:
    lost = [row for row in changes if row["change"] == "lost"]
    if not changes:
        return ""
    named = ", ".join(f"`{row['task_id']}` ({row['family']})" for row in lost[:5])
    more = f" and {len(lost) - 5:,} more" if len(lost) > 5 else ""
    return f"Held-out tasks: {len(changes) - len(lost)} gained, {len(lost)} lost{f' ({named}{more})' if lost else ''}"


def _findings(findings: Sequence[Any]) -> str:
    alarms = [finding for finding in findings if finding.severity in ("severe", "warning")]
    return "\n".join(f"- doctor, {finding.severity}: {finding.sentence}" for finding in alarms)


def _folder(summary: Mapping[str, Any]) -> str:
    return str(summary["report"]).rpartition("/")[0]
