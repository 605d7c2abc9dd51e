"""`tracewheel compare`: finished runs side by side."""

from __future__ import annotations

import argparse
from typing import Any

from tracewheel import Command, InputError
from tracewheel_lab.formats import PAGE, format_options, ids_option, in_format


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="a run's folder, a work folder (its latest complete run), or an id; the first is the base",
    )
    ids_option(parser)
    parser.add_argument("--policy", default="rl", metavar="NAME", help="policy to compare task by task (default: rl)")
    parser.add_argument("--excerpts", type=int, default=5, metavar="N", help="gained and lost tasks to quote (default 5 each)")
    format_options(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Compare.

    Raises:
        InputError: `--excerpts` is negative.
        DataError: a run is not there, or a file of it cannot be read.
    """
    from tracewheel import FinishedRun, run_named
    from tracewheel_lab.compare.comparison import check_runs, compare_runs
    from tracewheel_lab.compare.sections import sections_of, title_of

    if options.excerpts < 0:
        raise InputError(f"--excerpts {options.excerpts}: 0 or more")
    runs = [FinishedRun(run_named(name, options.run_dir)) for name in options.runs]
    check_runs(runs)
    found = compare_runs(runs, policy=options.policy, excerpts=options.excerpts)
    return in_format(options, found, title_of(found), sections_of(found))


COMMAND = Command(
    "compare",
    "two or more finished runs: what differs in settings, data, success and cost; tasks gained and lost",
    add_options,
    run,
    writes=PAGE,
)
