"""`tracewheel lineage`: back from an adapter to the log lines it learned from, forward from a trace to all that holds it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands.command import Command
from flows.console.arguments import profile_of, profile_options
from flows.console.look import Block, Card, number
from tracewheel.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from tracewheel.lineage.backward import Backward
    from tracewheel.lineage.forward import Affected

DEFAULT_LIMIT = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="a run, the folder or digest of an adapter, a model version (NAME/VERSION, or champion), a trace, user or session",
    )
    parser.add_argument("--as", dest="what", choices=("trace", "user", "session"), help="look for TARGET as this alone")
    parser.add_argument(
        "--limit", type=int, default=DEFAULT_LIMIT, metavar="N", help="traces to show with their lines (default 20; 0: all)"
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Trace back or forward.

    Raises:
        ConfigError: `--limit` is negative.
        DataError: nothing has the name TARGET, or the work folder holds no run.
    """
    if options.limit < 0:
        raise ConfigError(f"--limit {options.limit}: give 0 for all, or more")
    config = profile_of(options, prefect=True)
    from tasks.afterwards.lineage_target import resolve_target
    from tracewheel.lineage.work_folder import WorkFolder

    folder = WorkFolder(Path(config.work_dir))
    target = resolve_target(config, folder, options.target, options.what)
    return _back(options, folder, target) if target.direction == "back" else _forward(options, folder, target)


def _back(options: argparse.Namespace, folder: Any, target: Any) -> dict[str, Any]:
    from tracewheel.lineage.backward import trace_back

    if not target.entry:
        raise DataError(
            f"{options.target}: the store of {folder.path} no longer holds it, only the record of run {target.run} does"
            f" ({folder.path / target.run / 'lineage.json'})"
        )
    found = trace_back(folder, target.entry, options.limit or len(folder.entries) + 10**9)
    return {
        "target": options.target,
        "direction": "back",
        "entry": target.entry,
        "run": target.run,
        "adapter": folder.adapter(target.entry),
        "roads": found.roads(),
        "learned": int(found.learned["trace_id"].nunique()),
        "missing": found.missing,
        "graph": found.graph.to_record(),
        "show": _card_back(options, folder, target, found),
    }


def _forward(options: argparse.Namespace, folder: Any, target: Any) -> dict[str, Any]:
    from tracewheel.lineage.forward import affected

    found = affected(folder, target.what, [target.value])
    record = {"target": options.target, "direction": "forward", **found.to_record(), "graph": found.graph.to_record()}
    return {**record, "show": _card_forward(options, found, f"What holds something of {found.what} {target.value}")}


def _card_back(options: argparse.Namespace, folder: Any, target: Any, found: Backward) -> Card:
    from tracewheel.lineage.log_lines import shown

    made = [f"{folder.label(name)}: {name}" for name in found.entries]
    limit = options.limit or len(made)
    lines = []
    roads = found.learned.groupby("trace_id", sort=False)["road"].unique().to_dict() if len(found.learned) else {}
    for places in found.lines.values():
        for trace, stretches in places.stretches.items():
            task = found.learned.loc[found.learned["trace_id"] == trace, "task_id"].iloc[0]
            lines.append(f"{shown(stretches)}  trace {trace}  task {task}  by {', '.join(roads[trace])}")
    left = found.learned["trace_id"].nunique() - len(lines)
    parts = [Block(f"Made from {len(made)} entries of the store", [*made[:limit], *_more(len(made) - limit, "entries")])]
    parts.append(Block("Log lines", [*lines, *_more(left, "traces")]))
    if found.missing:
        parts.append(Block("Not known", found.missing))
    rows = [
        ("adapter", f"{folder.label(target.entry)} ({target.entry})"),
        ("digest", str(folder.adapter(target.entry).get("digest", "–"))),
        ("run", target.run or ", ".join(folder.runs_with(target.entry)) or "–"),
        *((f"by {road}", f"{count} traces") for road, count in found.roads().items()),
    ]
    return Card(f"What {options.target} learned from ({target.found_as})", rows, parts)


def _card_forward(options: argparse.Namespace, found: Affected, title: str) -> Card:
    from tracewheel.lineage.log_lines import shown

    limit = options.limit or 10**9
    lines: dict[str, None] = {}
    for of_ingest in found.lines.values():
        for trace, stretches in of_ingest.stretches.items():
            copies = of_ingest.copies.get(trace, ())
            lines[f"{shown(stretches)}  trace {trace}" + (f"  copies: {shown(copies)}" if copies else "")] = None
    holds = [f"{hold.label} ({hold.entry}): {'; '.join(hold.why)}" + _splits(hold.splits) for hold in found.holds.values()]
    runs = [
        f"{run.run}: {run.verdict or 'not complete'}, {len(run.entries)} entries"
        + (f", its adapter is version {run.version}" if run.version and run.adapter else "")
        + (f", report {run.report}" if run.report else "")
        for run in found.runs.values()
    ]
    shown_lines, parts = list(lines), []
    for heading, rows, what in (("Log lines", shown_lines, "lines"), ("Entries", holds, "entries"), ("Runs", runs, "runs")):
        parts.append(Block(f"{heading}: {len(rows)}", [*rows[:limit], *_more(len(rows) - limit, what)]))
    figures = [("traces", number(len(found.traces))), ("adapters", number(len(found.adapters))), ("runs", number(len(runs)))]
    return Card(title, figures, parts)


def _splits(splits: dict[str, int]) -> str:
    return f"; tasks by split: {', '.join(f'{split} {count}' for split, count in splits.items())}" if splits else ""


def _more(left: int, what: str) -> list[str]:
    return [f"… and {left} {what} more (--limit 0 shows all)"] if left > 0 else []


COMMAND = Command(
    "lineage",
    "what an adapter learned from, and what holds a trace or a user",
    add_options,
    run,
)
