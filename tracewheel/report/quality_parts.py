"""What the quality report counts: rates with intervals, tools, lengths, families."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracewheel.curation.splits import SPLITS
from tracewheel.environments.recorded_calls import calls_in, is_error
from tracewheel.statistics import Interval, rate_interval, wilson_interval

if TYPE_CHECKING:
    import pandas

BINS = 12
# With fewer tasks the bootstrap would be far too sure of itself: of one task it always gives the same mean.
FEWEST_FOR_BOOTSTRAP = 10


def rates(labelled: pandas.DataFrame, by: str) -> list[dict[str, Any]]:
    """Success of the logged agent in each group: `name`, `episodes`, `unknown`, `tasks`, `rate`, `low`, `high`.

    A rate is the mean over tasks of each task's mean label, with a 95% interval over tasks, because the attempts
    at one task are not independent. It is None where no label is known.
    """
    rows = []
    order = {name: index for index, name in enumerate(SPLITS)}
    groups = [(name, group) for name, group in labelled.groupby(by)]
    for name, group in sorted(groups, key=lambda pair: (order.get(str(pair[0]), len(order)), pair[0])):
        known = group[group["label"].notna()]
        means = (known["label"] >= 1.0).groupby(known["task_id"]).mean()
        interval = _interval(means) if len(means) else None
        rows.append(
            {
                "name": str(name),
                "episodes": len(group),
                "unknown": len(group) - len(known),
                "tasks": int(group["task_id"].nunique()),
                "rate": float(means.mean()) if len(means) else None,
                "low": interval.low if interval else None,
                "high": interval.high if interval else None,
            }
        )
    return rows


def _interval(means: pandas.Series) -> Interval:
    if len(means) < FEWEST_FOR_BOOTSTRAP:
        return wilson_interval(float(means.sum()), len(means))
    return rate_interval(means.to_numpy())


def families(tasks: pandas.DataFrame) -> list[dict[str, Any]]:
    """Tasks of each family: in all, by split, by tier, and how many no logged attempt solved."""
    rows = []
    for name, group in tasks.groupby("family"):
        rows.append(
            {
                "name": str(name),
                "tasks": len(group),
                "splits": {split: int((group["split"] == split).sum()) for split in SPLITS},
                "tiers": {str(tier): int(count) for tier, count in sorted(Counter(group["tier"]).items())},
                "never_solved": int((group["successes"] == 0).sum()) if "successes" in group else None,
            }
        )
    return rows


def tools_used(labelled: pandas.DataFrame) -> list[dict[str, Any]]:
    """Each tool, the most called first: `calls`, `episodes` that call it, episodes it was `offered` in, `errors`, `success`.

    The success is that of the episodes that call it and have a known label, None where there are none.
    """
    calls: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    called: Counter[str] = Counter()
    offered: Counter[str] = Counter()
    labels: dict[str, list[float]] = defaultdict(list)
    for text, tools, label in zip(labelled["messages"], labelled["tools"], labelled["label"], strict=True):
        made = calls_in(json.loads(text))
        offered.update({tool["function"]["name"] for tool in json.loads(tools)})
        calls.update(call.name for call in made)
        errors.update(call.name for call in made if call.reply is not None and is_error(call.reply))
        names = {call.name for call in made}
        called.update(names)
        if not math.isnan(label):
            for name in names:
                labels[name].append(float(label >= 1.0))
    return [
        {
            "name": name,
            "calls": calls[name],
            "episodes": called[name],
            "offered": offered[name],
            "errors": errors[name],
            "success": sum(labels[name]) / len(labels[name]) if labels[name] else None,
        }
        for name in sorted(calls.keys() | offered.keys(), key=lambda name: (-calls[name], name))
    ]


def lengths(labelled: pandas.DataFrame) -> dict[str, dict[str, Any]]:
    """How long episodes are, in messages, calls and characters, each as `histogram` describes it."""
    messages, calls, characters = [], [], []
    for text in labelled["messages"]:
        spoken = json.loads(text)
        messages.append(len(spoken))
        calls.append(sum(len(message.get("tool_calls") or []) for message in spoken))
        characters.append(len(text))
    return {"messages": histogram(messages), "calls": histogram(calls), "characters": histogram(characters)}


def divergence_steps(labelled: pandas.DataFrame) -> dict[str, Any] | None:
    """After how many calls failures leave the way of a success; None where none is compared with one."""
    steps = [int(step) for step in labelled["diverges_at"].dropna()]
    return histogram(steps) if steps else None


def histogram(values: Sequence[int]) -> dict[str, Any]:
    """Counts in up to `BINS` bins of equal width, a whole number each: `start`, `width`, `counts`, and four figures.

    Bin i holds the values from start + i * width up to, not including, start + (i + 1) * width.
    """
    ordered = sorted(values)
    start, end = ordered[0], ordered[-1]
    width = max(1, math.ceil((end - start + 1) / BINS))
    counts = [0] * ((end - start) // width + 1)
    for value in ordered:
        counts[(value - start) // width] += 1
    return {
        "start": start,
        "width": width,
        "counts": counts,
        "least": start,
        "median": ordered[len(ordered) // 2],
        "ninth_decile": ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)],
        "most": end,
    }
