"""`tracewheel data report`: a quality report of a curated data set."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.commands.command import Command, Writes
from flows.console.arguments import folder_of, out_option
from flows.console.look import Card, counted, number


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("curated", metavar="CURATED", help="output of curate")
    parser.add_argument("--traces", metavar="DIR", help="output of ingest that it was made from")
    out_option(parser, "folder for quality.html and quality.json")


def run(options: argparse.Namespace) -> dict[str, Any]:
    from tracewheel.core.store import produce_whole
    from tracewheel.curation.quality import quality_report, write_quality
    from tracewheel.dashboard.files import write_quality_page

    def produce(out: Path) -> None:
        write_quality(data, out)
        write_quality_page(data, out)

    data = quality_report(
        folder_of(options.curated, "CURATED"), folder_of(options.traces, "--traces") if options.traces else None
    )
    produce_whole(Path(options.out), produce)
    return {"out": options.out, "funnel": data["funnel"]}


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    rows = [
        (
            step["name"],
            f"{number(step['count'])} {step['unit']}" + (f" (lost: {counted(step['lost'])})" if step["lost"] else ""),
        )
        for step in result["funnel"]
    ]
    return Card(f"Quality report in {result['out']}", rows, look_at=f"open {Path(result['out']) / 'quality.html'}")


COMMAND = Command(
    "data report",
    "a quality report of a curated data set, as a page and as JSON",
    add_options,
    run,
    card,
    Writes(("quality.html", "quality.json")),
)
