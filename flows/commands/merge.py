"""`tracewheel merge`: several adapters into one, kept only when it holds up on the validation split."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands.command import Command, Writes
from flows.console.arguments import folder_of, out_option, profile_of, profile_options, profile_words
from flows.console.look import Card, Grid, percent, rows_of
from tracewheel.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from tracewheel.config import MergeConfig

SETTINGS = ("method", "weight", "density", "space", "rank")


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument("--adapter", dest="adapters", action="append", required=True, metavar="NAME=DIR", help="once for each")
    parser.add_argument("--method", choices=("linear", "ties", "dare_linear", "dare_ties"), help="default: ties")
    parser.add_argument("--weight", type=float, help="weight of each adapter (default: the mean of all)")
    parser.add_argument("--density", type=float, help="share of the entries to keep (default 0.5)")
    parser.add_argument("--rank", type=int, help="rank of the result (default: enough for all parts)")
    parser.add_argument("--space", choices=("weights", "factors"), help="what is merged (default: the changes of the weights)")
    parser.add_argument(
        "--start", metavar="DIR", help="the adapter that all parts began as; their changes since then are merged onto it"
    )
    parser.add_argument("--curated", metavar="DIR", help="output of curate, whose validation split judges the merge")
    parser.add_argument("--unevaluated", action="store_true", help="write the merge without judging it")
    out_option(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Merge adapters of one base, evaluate the merge and its parts, and keep it when it is not worse than the best part.

    Raises:
        AdapterMismatchError: an adapter was made for another base.
        ConfigError: an option does not fit.
        DataError: a folder is missing, or there is nothing to evaluate on.
        GateRefused: the merge is worse than one of its parts; nothing is written.
    """
    config = profile_of(options, "policy.base")
    from tracewheel.config import MergeCheckSections
    from tracewheel.core.store import produce_whole
    from tracewheel.evaluation.merge_check import MERGED, MergeFolders, merge_and_check

    settings = merge_settings(options)
    folders = dict(named(pair) for pair in options.adapters)
    if len(folders) != len(options.adapters):
        raise DataError("--adapter: names must be distinct")
    if MERGED in folders:
        raise DataError(f"--adapter {MERGED}=…: that is the name of the result; give the part another")
    if bool(options.curated) == options.unevaluated:
        raise DataError("a merge is evaluated before it is used: give --curated DIR, or --unevaluated to do without")
    parts = {name: folder_of(folder, f"--adapter {name}") for name, folder in folders.items()}
    given = MergeFolders(parts, folder_of(options.start, "--start") if options.start else None)
    sections, curated = MergeCheckSections.of(config), Path(options.curated) if options.curated else None
    result = produce_whole(Path(options.out), lambda out: merge_and_check(sections, given, settings, out, curated))
    return {"out": options.out, **result}


def merge_settings(options: argparse.Namespace) -> MergeConfig:
    """How to merge, by the options that were given."""
    from pydantic import ValidationError

    from tracewheel.config import MergeConfig

    given = {name: value for name in SETTINGS if (value := getattr(options, name)) is not None}
    try:
        return MergeConfig.model_validate(given)
    except ValidationError as error:
        problems = "; ".join(f"--{problem['loc'][0]}: {problem['msg']}" for problem in error.errors())
        raise ConfigError(problems) from error


def named(pair: str) -> tuple[str, str]:
    """Name and folder of `NAME=DIR`."""
    name, separator, folder = pair.partition("=")
    if not separator or not name or "/" in name or name.startswith("."):
        raise DataError(f"--adapter {pair}: expected NAME=DIR, the name without a slash")
    return name, folder


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    if not result["evaluated"]:
        return Card(
            f"{len(result['parts'])} adapters merged, written to {result.get('out', options.out)}",
            rows_of(result["settings"]),
            look_at="the merge was not evaluated",
            tone="warning",
            next=[f"tracewheel evaluate {profile_words(options)} --curated DIR --state {options.out} --out data/evaluation"],
        )
    accepted, profile = result["accepted"], profile_words(options)
    return Card(
        f"Merge of {', '.join(result['parts'])}: {'kept' if accepted else 'refused, and not written'}",
        rows_of(result["settings"]),
        [Grid(("policy", "success on validation"), [(name, percent(rate)) for name, rate in result["rates"].items()])],
        f"the merge reaches {percent(result['rate'])}, its best part {percent(result['best_part_rate'])}",
        "good" if accepted else "warning",
        [
            f"tracewheel evaluate {profile} --curated {options.curated} --state {options.out} --out data/evaluation"
            if accepted
            else f"tracewheel merge {profile} … --method linear"
        ],
    )


COMMAND = Command(
    "merge",
    "several adapters into one, when it is no worse than its parts",
    add_options,
    run,
    card,
    Writes(("adapter", "merge.json"), ("adapter/*", "comparison.json", "validation/*")),
)
