"""Writing the page: template, style, script and data in one file."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tracewheel.core.pages import percent, render
from tracewheel.report import charts
from tracewheel.report.audit_page import audit_short
from tracewheel.report.doctor.finding import shown, worst_first
from tracewheel.report.report_data import Aim, Comparison, ReportData

HERE = Path(__file__).parent
KNOWN_COLOURS = ("deployed", "base", "warm_start", "warm_start_verified", "champion", "rl")


def write_report(data: ReportData, out: Path) -> Path:
    """Write the report of a run as one self-contained HTML file.

    Text of a policy stays text: the template escapes it, the data block cannot close its element, the
    script sets text only, and a content security policy allows no other script. Half of a surrogate
    pair, which UTF-8 cannot encode, becomes a question mark.

    Returns:
        `out`.
    """
    script = (HERE / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    filters: dict[str, Callable[..., Any]] = {
        "points": points,
        "duration": duration,
        "colour": colour,
        "chart": charts.line_chart,
        "plain": plain,
        "figure": shown,
        "worst_first": worst_first,
    }
    html = render(
        HERE,
        "page.html",
        (),
        filters,
        data=data,
        headline=headline(data),
        aims=[aim_sentence(aim) for aim in data.aims],
        gate_axis=gate_axis(data.gate),
        total_seconds=sum(cost.seconds or 0.0 for cost in data.costs),
        total_tokens=sum(cost.tokens or 0 for cost in data.costs),
        script=Markup(script),
        script_digest=digest,
        viewer=embedded_json(viewer_data(data)),
        audit=audit_short(data.audit, data.gate, (data.config.get("gate") or {}).get("false_accepts")) if data.audit else "",
        config_text=json.dumps(_finite(data.config), indent=2, ensure_ascii=False),
    )
    out.write_bytes(html.encode("utf-8", errors="replace"))
    return out


def headline(data: ReportData) -> str:
    """The result in one sentence."""
    after, deployed = data.policy(data.after), data.policy("deployed")
    if after is None or after.greedy is None:
        return "No policy was evaluated after RL."
    if deployed is None or deployed.greedy is None:
        return f"Held-out success after RL is {percent(after.greedy.value)}."
    return (
        f"Held-out success goes from {percent(deployed.greedy.value)} (deployed agent, as logged) "
        f"to {percent(after.greedy.value)} after RL."
    )


def aim_sentence(aim: Aim) -> tuple[bool, str]:
    """Whether an aim is met, and a sentence about it."""
    if aim.reached is None:
        return False, f"The aim of {percent(aim.target)} for {aim.name} was not measured."
    reached = aim.reached
    return aim.met, (
        f"The aim of {percent(aim.target)} for {aim.name} is {'met' if aim.met else 'not met'}: {percent(reached.value)} "
        f"(95% interval {percent(reached.low)} to {percent(reached.high)}, n = {reached.n})."
    )


def gate_axis(gate: Mapping[str, Any]) -> tuple[float, float]:
    """The range of the axis of the gate's differences; it holds zero."""
    values = [value for value in (gate.get("families") or {}).values() if value is not None]
    values += [value for value in (gate.get("difference"), *(gate.get("interval") or ())) if value is not None]
    low, high = min([0.0, *values]), max([0.0, *values])
    margin = 0.08 * (high - low) or 0.1
    return low - margin, high + margin


def points(value: float) -> str:
    """Percentage points with a sign, with a typographic minus."""
    return f"{100 * value:+.1f}".replace("-", "−")


def duration(seconds: float) -> str:
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def colour(key: str, policies: Sequence[Any]) -> str:
    """The CSS class of a policy's colour."""
    if key in KNOWN_COLOURS:
        return f"p-{key}"
    others = [row.key for row in policies if row.key not in KNOWN_COLOURS]
    return f"p-other{others.index(key) % 2}" if key in others else "p-other0"


def plain(value: Any) -> str:
    """A value as text: strings unchanged, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(_finite(value), ensure_ascii=False)


def viewer_data(data: ReportData) -> dict[str, Any]:
    """The data for the viewer's script."""
    evaluated = {key for item in data.comparisons for key in item.episodes}
    return {
        "policies": {row.key: row.label for row in data.policies if row.key in evaluated}
        | {key: key for key in sorted(evaluated) if data.policy(key) is None},
        "before": data.before,
        "after": data.after,
        "baseline": str(data.gate.get("baseline") or ""),
        "tasks": [_task(item) for item in data.comparisons],
    }


def _task(item: Comparison) -> dict[str, Any]:
    # States become text here, which keeps the order of their keys.
    shown = asdict(item)
    shown["initial_state"] = json.dumps(item.initial_state, indent=1, ensure_ascii=False)
    for key, episode in item.episodes.items():
        shown["episodes"][key]["final_state"] = json.dumps(episode.final_state, indent=1, ensure_ascii=False)
    return shown


def embedded_json(value: Any) -> Markup:
    """JSON that is safe inside a script element: without `<`, `>` and `&`."""
    text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _finite(value: Any) -> Any:
    """The value with None for NaN and infinity, which JSON cannot hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
