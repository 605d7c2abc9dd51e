"""A comparison of runs as sections of a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tracewheel import Quote, Section, Table

Found = Mapping[str, Any]
NOTHING = "Nothing differs."
SIDES = ("base", "run")


def title_of(found: Found) -> str:
    """The page's title."""
    ids = [run["run_id"] for run in found["runs"]]
    return f"{', '.join(ids[1:])} beside {ids[0]}"


def sections_of(found: Found) -> list[Section]:
    """What `comparison.compare_runs` found, in sections."""
    ids = [run["run_id"] for run in found["runs"]]
    return [
        _runs(found),
        *(_comparison(found["policy"], comparison) for comparison in found["comparisons"]),
        _values("Metrics", found["metrics"], ids),
        _differences("Configuration", found["config"], ids),
        _differences("Code, packages, machine", found["environment"], ids),
        _data(found["data"], ids),
        _values(
            "Costs",
            found["costs"],
            ids,
            "Seconds and tokens as spent when each result was made, in this run or an earlier one.",
        ),
    ]


def _runs(found: Found) -> Section:
    rows = [[run["run_id"], run["name"], str(run["started"]), run["state"], run["folder"]] for run in found["runs"]]
    rows[0][0] += " (base)"
    return Section("Runs", parts=[Table(("run", "profile", "started", "state", "folder"), rows)])


def _comparison(policy: str, comparison: Found) -> Section:
    """Paired differences, tasks gained and lost."""
    run, base = comparison["run"], comparison["base"]
    sentences = [*comparison["notes"], *(f"Not paired: {why}." for why in comparison["not_paired"])]
    parts: list[Table | Quote] = []
    for split, part in comparison["splits"].items():
        name = split.replace("_", "-")
        sentences.append(_shared(name, part, run, base))
        if part["paired"]:
            figure = "greedy and sampled success" if part["paired"]["sampled"] else "greedy success"
            share = f"{part['paired']['confidence']:.0%}"
            rows = [_family(row) for row in part["paired"]["rows"]]
            headings = ("family", "tasks", "difference", f"{share} interval", "p", "stands out")
            parts.append(Table(headings, rows, f"{name} tasks: {figure} of {policy}, {run} minus {base}"))
    if not comparison["not_paired"]:
        sentences.append(f"Greedy episodes on held-out tasks: {comparison['gained']} tasks gained, {comparison['lost']} lost.")
    if comparison["changes"]:
        files = " and ".join(f"{comparison['changes'][0][side]['file']} (run {comparison[side]})" for side in SIDES)
        sentences.append(f"The episodes are in the stores of the runs: {files}.")
        parts.append(_changes(comparison))
        parts += [_quote(change, run, base) for change in comparison["changes"] if "excerpt" in change]
    return Section(f"{run} against {base}", sentences, parts)


def _shared(split: str, part: Found, run: str, base: str) -> str:
    def alone(of: str, other: str, counts: Found, key: str) -> str:
        if not counts["tasks"]:
            return f"none only in {of}"
        where = ", ".join(f"{count} {side}" for side, count in counts[key].items())
        return f"{counts['tasks']} only in {of} (in {other}: {where})"

    return (
        f"{split} tasks: {part['shared']} shared, {alone(base, run, part['only_base'], 'in_run')}, "
        f"{alone(run, base, part['only_run'], 'in_base')}. Only the shared ones are compared."
    )


def _family(row: Found) -> list[str]:
    if row["difference"] is None:
        return [row["family"], str(row["tasks"]), "–", "–", "–", ""]
    interval = f"{_points(row['interval'][0])} to {_points(row['interval'][1])}"
    return [
        row["family"],
        str(row["tasks"]),
        _points(row["difference"]),
        interval,
        f"{row['p']:.2g}",
        "yes" if row["stands_out"] else "",
    ]


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def _changes(comparison: Found) -> Table:
    rows = [
        [f"{change['change']} {change['task_id']}", change["family"], *(change[side]["trajectory"] or "–" for side in SIDES)]
        for change in comparison["changes"]
    ]
    headings = ("task", "family", f"episode in {comparison['base']}", f"episode in {comparison['run']}")
    return Table(headings, rows, "Tasks gained and lost, with the ids of the greedy episodes")


def _quote(change: Found, run: str, base: str) -> Quote:
    found = change["excerpt"]
    lines = [f"task: {change['prompt']}"]
    at = found["parts_at"]
    lines.append(f"the episodes part at message {at}" if at else "the episodes have the same messages")
    for name, side in ((base, found["base"]), (run, found["run"])):
        lines.append(f"{name}:")
        lines += [f"  {turn}" for turn in side["turns"]]
        lines.append(f"  ended: {side['stop_reason']}" + (f"; {side['scored']}" if side["scored"] else ""))
    lines += [f"final state, {path}: {one} / {two}" for path, one, two in found["final_state"]]
    if found["more_states"]:
        lines.append(f"final state: {found['more_states']} more differences")
    return Quote(f"{change['change']}: {change['family']} {change['task_id']}", lines)


def _values(heading: str, groups: Found, ids: Sequence[str], *sentences: str) -> Section:
    """Tables with a column for each run."""
    tables = [
        Table(
            ("", *ids),
            [[str(row["name"]), *(_with_interval(row, place) for place in range(len(ids)))] for row in rows],
            title,
        )
        for title, rows in groups.items()
    ]
    return Section(heading, sentences, tables)


def _with_interval(row: Found, place: int) -> str:
    interval = (row.get("intervals") or [None] * (place + 1))[place]
    value = as_text(row["values"][place])
    return f"{value} ({as_text(interval[0])} to {as_text(interval[1])})" if interval else value


def _differences(heading: str, rows: Sequence[Found], ids: Sequence[str]) -> Section:
    if not rows:
        return Section(heading, [NOTHING])
    shown = [[row["name"], *(as_text(value) for value in row["values"])] for row in rows]
    return Section(heading, parts=[Table(("", *ids), shown)])


def _data(data: Found, ids: Sequence[str]) -> Section:
    sentences = [_logs(log, ids[0]) for log in data["logs"]]
    for run, moved in zip(ids[1:], data["moved"], strict=True):
        if moved:
            counts = ", ".join(f"{count} {name.replace('_', '-')}" for name, count in moved.items())
            sentences.append(f"Tasks of both runs on another side in {run} than in {ids[0]}: {counts}.")
    splits = [
        [f"{split.replace('_', '-')} tasks", *(_split(part, place) for place, part in enumerate(parts))]
        for split, parts in data["splits"].items()
    ]
    rows = [[f"traces {row['name']}", *map(as_text, row["values"])] for row in data["rows"]]
    rows += splits
    rows += [
        [f"digest of {stage}", *((digest or "–")[:16] for digest in digests)] for stage, digests in data["entries"].items()
    ]
    rows += [[f"input {row['name']}", *(as_text(value)[:16] for value in row["values"])] for row in data["inputs"]]
    return Section("Data", sentences, [Table(("", *ids), rows)])


def _split(part: Found, place: int) -> str:
    if part["tasks"] is None:
        return "–"
    shared = f", {part['in_base']} shared" if place and part["in_base"] is not None else ""
    return f"{part['tasks']} ({part['digest'][:12]}{shared})"


def _logs(log: Found, base: str) -> str:
    if not log["known"]:
        return f"{log['run']}: an earlier version made one of the runs; which lines they share is not known."

    def named(parts: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {lines}" for name, lines in parts.items()) or "none"

    return (
        f"Log lines of {log['run']}: {log['shared_lines']} shared with {base}; only in {base}: {named(log['only_base'])}; "
        f"only in {log['run']}: {named(log['only_run'])}."
    )


def as_text(value: Any) -> str:
    """A value of a cell."""
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list) and all(isinstance(item, float) for item in value):
        return " to ".join(f"{item:.4g}" for item in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
