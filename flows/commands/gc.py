"""`tracewheel gc`: what the store can do without."""

from __future__ import annotations

import argparse
from typing import Any

DEFAULT_KEEP = 30


def add_gc_command(commands: Any, add: Any) -> None:
    """Add the command to the command line; `add` makes the parser of a command with a profile."""
    parser = add(
        commands, "gc", "flows.commands.gc:gc", "free what no champion, resumable run or recent run needs of the store"
    )
    parser.add_argument(
        "--keep", type=int, metavar="N", help="complete runs to keep, the latest first (default: schedule.keep_runs, or 30)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="only say what would be freed (the default)")
    what.add_argument("--yes", action="store_true", help="free it")


def gc(options: argparse.Namespace) -> dict[str, Any]:
    """Say what can be freed; with `--yes`, free it.

    Raises:
        ConfigError: `--keep` is below 1.
        InfrastructureError: a run holds the store.
        DataError: a file that says what is needed is damaged.
    """
    from flows.setup import prepare_environment, resolve_config
    from tracewheel.core.errors import ConfigError

    config = resolve_config(options.config, options.overrides, options.run_dir)
    keep = options.keep if options.keep is not None else config.schedule.keep_runs or DEFAULT_KEEP
    if keep < 1:
        raise ConfigError(f"--keep {keep}: give 1 or more; the last complete run is what the next one begins with")
    prepare_environment(config.work_dir, debug=options.debug)
    from tasks.records.housekeeping import keep_house

    return keep_house(config, keep, yes=options.yes)
