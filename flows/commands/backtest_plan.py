"""What a backtest replays and where: its options, checked before anything is computed, and its folder.

`plan.json` in it identifies the backtest; `branches/NAME/` is the work folder of a branch, `reference/` that of the exam,
`store/` has the results of all, and `mlflow/` their registry.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands.command import Writes
from flows.console.arguments import note, profile_options
from tracewheel.core.errors import DataError
from tracewheel.core.out_folder import check_out_folder

if TYPE_CHECKING:
    from flows.console.progress import TerminalReporter
    from tracewheel.backtest.history import History
    from tracewheel.backtest.plan import Branch, Window
    from tracewheel.config import RetrainConfig

PLAN_FILE, CONSOLE_FILE = "plan.json", "console.log"
BRANCHES, REFERENCE = "branches", "reference"
WRITES = Writes(("plan.json",), ("branches/*", "reference/*", "store/*", "mlflow/*", "backtest.*", "costs.json"))


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument("--logs", metavar="PATH", help="files, folder or glob of logs (default: the profile's ingest.paths)")
    parser.add_argument(
        "--from", dest="first", required=True, metavar="DATE", help="first day; what was logged before is known"
    )
    parser.add_argument("--to", dest="last", required=True, metavar="DATE", help="last day, included")
    parser.add_argument("--cadence", required=True, metavar="LIST", help="how often a run is scheduled, as in 12h,1d,3d,2w")
    parser.add_argument(
        "--gate", action="append", default=[], metavar="NAME=LIST", help="values of a setting of the gate to compare"
    )
    parser.add_argument("--timezone", metavar="NAME", help="of the days (default: schedule.timezone, or UTC)")
    parser.add_argument("--exam", type=int, metavar="N", help="at most N tasks of a day measure what served it (default: all)")
    parser.add_argument("--assume-utc", action="store_true", help="count times without a zone as UTC, beside others with one")
    parser.add_argument("--out", metavar="DIR", help="results and state; the same command resumes (default: WORK_DIR-backtest)")


@dataclass(frozen=True)
class Backtest:
    """A backtest that was checked and is ready to run.

    Attributes:
        config: The profile, with paths and tracking of the backtest.
        out: Its folder.
        per_day: Tasks of the exam a day; None for all.
    """

    config: RetrainConfig
    history: History
    window: Window
    branches: tuple[Branch, ...]
    out: Path
    per_day: int | None


def checked(options: argparse.Namespace) -> Backtest:
    """Check everything before anything is computed.

    Raises:
        InputError: an option, the profile or the logs are wrong; or the folder holds another backtest.
    """
    from flows.setup import resolve_config
    from tasks.engine.run import Run
    from tasks.records.template import checked_template
    from tracewheel.backtest.history import read_history
    from tracewheel.backtest.plan import Branch, Window, parse_cadences, parse_gates

    overrides = [*options.overrides, *([f"ingest.paths={json.dumps([options.logs])}"] if options.logs else [])]
    overrides.append("gate.approval=none")  # nobody approves in a replay
    config = resolve_config(options.config, overrides, options.run_dir)
    window = Window.of(options.first, options.last, options.timezone or config.schedule.timezone or "UTC")
    cadences = parse_cadences(options.cadence)
    for cadence in cadences:
        window.ticks(cadence)
    gates = parse_gates(options.gate, config.gate)
    if options.exam is not None and options.exam < 1:
        raise DataError(f"--exam {options.exam}: give 1 or more tasks a day")
    checked_template(Run.unread(config))
    history = read_history(config.ingest)
    history.check_zones(assume_utc=options.assume_utc)
    _check_window(history, window)
    for sentence in history.says():
        note(sentence)
    out = Path(options.out or f"{config.work_dir.rstrip('/')}-backtest").resolve()
    check_out_folder(out, WRITES, by="backtest")
    branches = tuple(Branch(cadence, gate) for gate in gates for cadence in cadences)
    plan = Backtest(config, history, window, branches, out, options.exam)
    _keep_plan(plan)
    return plan


def _check_window(history: History, window: Window) -> None:
    first, last = history.span
    if not history.count(window.begin, window.end):
        raise DataError(
            f"--from {window.first} --to {window.last}: no record of the logs is from these days ({window.zone}); they have "
            f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"
        )


def _keep_plan(plan: Backtest) -> None:
    """Write what identifies the backtest, or compare it with what its folder holds.

    Raises:
        DataError: the folder is of another backtest.
    """
    from tasks.engine.inputs import identify_settings, other_inputs
    from tracewheel.core.files import read_json
    from tracewheel.core.store import write_whole

    ours = {
        "settings": identify_settings(plan.config, other_inputs(plan.config)),
        "schedule": plan.config.schedule.model_dump(mode="json"),
        "screening": plan.config.screening.model_dump(mode="json"),
        "logs": plan.history.digests,
        "window": [str(plan.window.first), str(plan.window.last), plan.window.zone],
        "exam": plan.per_day,
    }
    path = plan.out / PLAN_FILE
    if path.is_file():
        known = read_json(path)
        differs = [name for name, value in ours.items() if known.get(name) != value]
        if differs:
            raise DataError(
                f"--out {plan.out}: holds a backtest with other {' and '.join(differs)}; give another folder, or delete it"
            )
        return
    write_whole(path, json.dumps(ours, indent=1) + "\n")


def config_in(plan: Backtest, folder: Path, branch: Branch | None = None) -> RetrainConfig:
    """The profile for a folder of the backtest: its logs, the shared store, a registry of its own, and nobody to notify.

    Nothing of the store is freed, as the branches share it, and no time limit ends a run: days pass at once here.
    """
    from tracewheel.backtest.plan import gate_with
    from tracewheel.config import TrackingConfig

    (plan.out / "store").mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "store").is_symlink():
        (folder / "store").symlink_to(Path("../" * len(folder.relative_to(plan.out).parts)) / "store")
    (plan.out / "mlflow").mkdir(exist_ok=True)
    config = plan.config
    tracking = TrackingConfig(
        uri=f"sqlite:///{plan.out}/mlflow/mlflow.db",
        experiment="backtest",
        model_name=branch.folder if branch else REFERENCE,
        traces_per_evaluation=0,
    )
    schedule = config.schedule.model_copy(update={"keep_runs": None, "max_run_seconds": None, "notify": ()})
    changes: dict[str, Any] = {"work_dir": str(folder), "tracking": tracking, "schedule": schedule}
    changes["ingest"] = config.ingest.model_copy(update={"paths": (str(folder / "logs"),)})
    if branch and branch.gate:
        changes["gate"] = gate_with(config.gate, branch.gate)
    return config.model_copy(update=changes)


@contextlib.contextmanager
def reporting(folder: Path) -> Iterator[TerminalReporter]:
    """Writes what the runs of a folder say into a file there."""
    from rich.console import Console

    from flows.console.progress import TerminalReporter

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / CONSOLE_FILE).open("a", encoding="utf-8") as file:
        yield TerminalReporter(console=Console(file=file, highlight=False, width=160))
