"""`tracewheel merge`: several adapters into one, kept only when it holds up on the validation split."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, ConfigError, DataError, Writes, profile_of, profile_options, profile_words

if TYPE_CHECKING:
    from tracewheel import Card
    from tracewheel_lab.merging import MergeConfig

SETTINGS = ("method", "weight", "density", "space", "rank")


def options(parser: ArgumentParser) -> None:
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
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write; replaced if it exists")


def run(options: Namespace) -> dict[str, Any]:
    """Merge adapters of one base, evaluate the merge and its parts, and keep it when it is not worse than the best part.

    Raises:
        AdapterMismatchError: an adapter was made for another base.
        ConfigError: an option does not fit.
        DataError: a folder is missing, or there is nothing to evaluate on.
        GateRefused: the merge is worse than one of its parts; nothing is written.
    """
    config = profile_of(options, "policy.base")
    from tracewheel import folder_of, produce_whole
    from tracewheel_lab.merge_check import MergeFolders, merge_and_check
    from tracewheel_lab.merging import MERGED

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
    curated = Path(options.curated) if options.curated else None
    result = produce_whole(Path(options.out), lambda out: merge_and_check(config, given, settings, out, curated))
    return {"out": options.out, **result}


def merge_settings(options: Namespace) -> MergeConfig:
    """How to merge, by the options that were given."""
    from pydantic import ValidationError

    from tracewheel_lab.merging import MergeConfig

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


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    from tracewheel import Card, Grid

    again = f"{profile_words(options)} --curated {options.curated or 'DIR'} --state {options.out} --out data/evaluation"
    rows = [(name, str(value)) for name, value in result["settings"].items() if value is not None]
    if not result["evaluated"]:
        title, look_at = f"{len(result['parts'])} adapters merged, written to {options.out}", "the merge was not evaluated"
        return Card(title, rows, look_at=look_at, tone="warning", next=[f"tracewheel evaluate {again}"])
    accepted = result["accepted"]
    return Card(
        f"Merge of {', '.join(result['parts'])}: {'kept' if accepted else 'refused, and not written'}",
        rows,
        [Grid(("policy", "success on validation"), [(name, _shown(rate)) for name, rate in result["rates"].items()])],
        f"the merge reaches {_shown(result['rate'])}, its best part {_shown(result['best_part_rate'])}",
        "good" if accepted else "warning",
        [f"tracewheel evaluate {again}" if accepted else f"tracewheel merge {profile_words(options)} … --method linear"],
    )


def _shown(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate:.1%}"


COMMAND = Command(
    "merge",
    "merge several adapters, if the result is no worse than its parts",
    options,
    run,
    card,
    Writes(("adapter", "merge.json"), ("adapter/*", "comparison.json", "validation/*")),
)
