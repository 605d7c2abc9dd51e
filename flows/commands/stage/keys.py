"""`tracewheel stage keys`: what each stage of `dvc.yaml` depends on beside its files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flows.commands.command import Command, Writes
from flows.console.arguments import note, out_option, profile_of, profile_options

STAGES = ("ingest", "curate", "warm_start", "improve", "evaluate", "gate", "figures")


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    out_option(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Write a file for each stage of `dvc.yaml`; see `tasks.engine.keys`."""
    config = profile_of(options)
    from tasks.engine.keys import stage_keys
    from tracewheel.core.files import write_json
    from tracewheel.core.store import produce_whole

    if len(config.ingest.paths) > 1:
        note("tracewheel: dvc.yaml tracks the first of ingest.paths alone; name one folder that holds all logs")
    found = stage_keys(config)

    def write(out: Path) -> None:
        for stage, key in found.items():
            write_json(out / f"{stage}.json", key)

    produce_whole(Path(options.out), write)
    return {"out": options.out, "stages": list(found)}


COMMAND = Command(
    "stage keys",
    "settings, code and packages that each stage of dvc.yaml depends on",
    add_options,
    run,
    writes=Writes(tuple(f"{stage}.json" for stage in STAGES)),
)
