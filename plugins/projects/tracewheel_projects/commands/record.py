"""`tracewheel data record`: a recorded environment of traces, for where no simulator exists."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracewheel import Card, Command, DataError, Writes, folder_of


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("traces", metavar="TRACES", help="output of ingest")
    parser.add_argument("--tool-set", metavar="TEXT", help="only traces whose tool set has TEXT in its name")
    parser.add_argument("--free-tool", dest="free_tools", action="append", default=[], metavar="NAME", help="never matched")
    parser.add_argument("--world", choices=("measured", "shared", "separate"), default="measured", help="default: measured")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write; name it as environment.kind recorded:DIR")


def run(options: argparse.Namespace) -> dict[str, Any]:
    from tracewheel import build_recording, outcomes_of, produce_whole, read_table, tool_sets

    traces = read_table(folder_of(options.traces, "TRACES") / "traces.parquet")
    if options.tool_set:
        chosen = tool_sets(traces).str.contains(re.escape(options.tool_set))
        if not chosen.any():
            raise DataError(f"--tool-set {options.tool_set}: no trace's tool set has that in its name")
        traces = traces[chosen]
    world = {"measured": None, "shared": True, "separate": False}[options.world]
    about = produce_whole(
        Path(options.out), lambda out: build_recording(traces, out, free_tools=options.free_tools, shared_world=world)
    )
    shown = {name: value for name, value in about.items() if name not in ("tools", "version")}
    shown["outcomes"] = outcomes_of(traces)
    return {"out": options.out, **shown, "environment": f"recorded:{options.out}"}


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    rows = [
        (name.replace("_", " "), _shown(value))
        for name, value in result.items()
        if isinstance(value, int | float | str | None) and name not in ("out", "environment")
    ]
    outcomes = result["outcomes"]
    rows.append(("outcomes", ", ".join(f"{count} {name}" for name, count in outcomes.items())))
    title = f"Recorded environment in {result['out']}"
    if not outcomes["success"]:
        says = "none of its traces is a success, so it has no task: name the field of the outcome with ingest.fields.outcome"
        return Card(title, rows, look_at=f"{says} (docs/traces.md)", tone="warning")
    kind = f"environment.kind={result['environment']}"
    return Card(
        title,
        rows,
        look_at=f"name it in the profile: environment.kind: {result['environment']}",
        next=[f"tracewheel curate PROFILE.yaml --traces {options.traces} --set {kind} --out DIR"],
    )


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return str(value or "–")


COMMAND = Command(
    "data record",
    "make a recorded environment of traces, for where no simulator exists",
    add_options,
    run,
    card,
    Writes(("calls.parquet", "recording.json")),
)
