"""`tracewheel data record`: a recorded environment of traces, for where no simulator exists."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.commands.command import Command, Writes
from flows.console.arguments import folder_of, out_option
from flows.console.look import Card, number
from tracewheel.core.errors import DataError


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("traces", metavar="TRACES", help="output of ingest")
    parser.add_argument("--tool-set", metavar="TEXT", help="only traces whose tool set has TEXT in its name")
    parser.add_argument("--free-tool", dest="free_tools", action="append", default=[], metavar="NAME", help="never matched")
    parser.add_argument("--world", choices=("measured", "shared", "separate"), default="measured", help="default: measured")
    out_option(parser, "folder to write; name it as environment.kind recorded:DIR")


def run(options: argparse.Namespace) -> dict[str, Any]:
    from tracewheel.core.files import read_table
    from tracewheel.core.store import produce_whole
    from tracewheel.environments.recorded.build import build_recording, outcomes_of, tool_sets
    from tracewheel.traces.ingested_folder import TRACES_FOLDER

    traces = read_table(folder_of(options.traces, "TRACES") / TRACES_FOLDER)
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
        (name.replace("_", " "), number(value))
        for name, value in result.items()
        if isinstance(value, int | float | str | None) and name not in ("out", "environment")
    ]
    outcomes = result["outcomes"]
    rows.append(("outcomes", ", ".join(f"{count} {name}" for name, count in outcomes.items())))
    title = f"Recorded environment in {result['out']}"
    if not outcomes["success"]:
        from tracewheel.curation.no_tasks import without_task

        return Card(title, rows, look_at=without_task({"traces": outcomes}), tone="warning")
    kind = f"environment.kind={result['environment']}"
    return Card(
        title,
        rows,
        look_at=f"name it in the profile: environment.kind: {result['environment']}",
        next=[f"tracewheel curate PROFILE.yaml --traces {options.traces} --set {kind} --out DIR"],
    )


COMMAND = Command(
    "data record",
    "make a recorded environment of traces, for where no simulator exists",
    add_options,
    run,
    card,
    Writes(("calls.parquet", "recording.json")),
)
