"""`tracewheel runs gc`: what the store can do without."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from flows.commands.command import Command
from flows.console.arguments import profile_of, profile_options, profile_words
from flows.console.look import Card, Grid, number

DEFAULT_KEEP = 30
UNITS = ("B", "kB", "MB", "GB", "TB")


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument(
        "--keep", type=int, metavar="N", help="complete runs to keep, the latest first (default: schedule.keep_runs, or 30)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="only say what would be freed (the default)")
    what.add_argument("--yes", action="store_true", help="free it")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Say what can be freed; with `--yes`, free it.

    Raises:
        ConfigError: `--keep` is below 1.
        InfrastructureError: a run holds the store.
        DataError: a file that says what is needed is damaged.
    """
    config = profile_of(options, prefect=True)
    from tasks.records.housekeeping import keep_house
    from tracewheel.core.errors import ConfigError

    keep = options.keep if options.keep is not None else config.schedule.keep_runs or DEFAULT_KEEP
    if keep < 1:
        raise ConfigError(f"--keep {keep}: give 1 or more; the last complete run is what the next one begins with")
    return keep_house(config, keep, yes=options.yes)


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    """What was freed, or would be, by stage."""
    freed, kept = result["freed"], result["kept"]
    rows = [(kind, number(item["entries"]), in_units(item["bytes"])) for kind, item in result["kinds"].items()]
    some = result["bytes"] > 0
    keep = f" --keep {options.keep}" if options.keep is not None else ""
    return Card(
        f"{'Freed' if freed else 'Would free'} {in_units(result['bytes'])} of {result['work_dir']}",
        [
            ("left in the store", f"{in_units(kept['store_bytes'])}, {number(kept['entries'])} entries"),
            ("champion", result["champion"]),
        ],
        parts=[
            *([Grid(("stage", "entries", "bytes"), rows)] if rows else []),
            Grid(("kept run", "why"), list(kept["runs"].items())),
        ],
        look_at="" if some else "nothing can be freed",
        next=[f"tracewheel runs gc {profile_words(options)}{keep} --yes"] if some and not freed else [],
    )


def in_units(size: int) -> str:
    """Bytes in the unit that reads best."""
    value, place = float(size), 0
    while value >= 1000 and place < len(UNITS) - 1:
        value, place = value / 1000, place + 1
    return f"{value:.0f} {UNITS[place]}" if place == 0 else f"{value:.1f} {UNITS[place]}"


COMMAND = Command("runs gc", "free what no champion, resumable run or recent run needs of the store", add_options, run, card)
