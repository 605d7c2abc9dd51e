"""`tracewheel stage figures`: grouped metrics and plots of a pipeline's outputs, for DVC."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.commands.command import Command, Writes
from flows.commands.stage.improve import REPORT_FILE
from flows.console.arguments import curated_option, folder_of, out_option, profile_options
from flows.console.look import Card, number, percent
from tracewheel.core.errors import DataError


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    curated_option(parser)
    parser.add_argument("--rl", required=True, metavar="DIR", help="output of improve")
    parser.add_argument("--evaluations", required=True, metavar="DIR", help="folder with POLICY/SPLIT, outputs of evaluate")
    parser.add_argument("--gate", required=True, metavar="DIR", help="output of champion promote")
    out_option(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Write `metrics.json` and the tables of the plots.

    Raises:
        DataError: a folder lacks something.
    """
    from flows.setup import resolve_config

    resolve_config(options.config, options.overrides)  # a wrong profile is an error here too
    from tracewheel.core.files import read_json
    from tracewheel.core.store import produce_whole
    from tracewheel.report.figures import RunFolders, read_gate, write_figures

    curated, rl = folder_of(options.curated, "--curated"), folder_of(options.rl, "--rl")
    loop = read_json(rl / REPORT_FILE)
    results = RunFolders(
        gate=read_gate(folder_of(options.gate, "--gate")),
        curated=curated,
        evaluations=_evaluations(folder_of(options.evaluations, "--evaluations")),
        updates={int(number): metrics for number, metrics in loop["updates"].items()},
        validation={item["iteration"]: {mode: item[mode] for mode in ("greedy", "sampled")} for item in loop["candidates"]},
        best_iteration=loop["best_iteration"],
    )
    return {"out": options.out, **produce_whole(Path(options.out), lambda out: write_figures(results, rl, out))}


def _evaluations(folder: Path) -> dict[str, list[Path]]:
    """Policy to the folders of its evaluations, in the order of the report's table."""
    from tracewheel.report.results import LABELS

    names = [path.name for path in folder.iterdir() if path.is_dir()]
    ordered = sorted(names, key=lambda name: (list(LABELS).index(name) if name in LABELS else -1, name))
    found = {name: sorted(path for path in (folder / name).iterdir() if path.is_dir()) for name in ordered}
    if not any(found.values()):
        raise DataError(
            f"--evaluations {folder}: no evaluations; it holds folders POLICY/SPLIT, outputs of `tracewheel evaluate`"
        )
    return found


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    rates = [
        (f"{policy} {name}".replace("_", " "), percent(v)) for policy, of in result["eval"].items() for name, v in of.items()
    ]
    rows = [
        (f"{group} {name}".replace("_", " "), number(value))
        for group in ("gate", "train", "cost")
        for name, value in result[group].items()
    ]
    return Card(f"Figures in {result['out']}", [*rates, *rows], next=["dvc metrics diff", "dvc plots show"])


COMMAND = Command(
    "stage figures",
    "grouped metrics and plots of a pipeline's outputs",
    add_options,
    run,
    card,
    Writes(("metrics.json", "learning.csv", "training.csv", "tiers.csv", "families.csv")),
)
