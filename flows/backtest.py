"""`tracewheel backtest`: the loop on the logs of the past, day by day, with the clock of the day.

Each cadence with each gate is a *branch*: a work folder of its own, in which the scheduled flow runs at the moments of the
cadence and sees the logs, the champion and its own records as they were then. All branches share one store.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.setup import prepare_environment, resolve_config
from tracewheel.core.errors import DataError, InfrastructureError, InputError
from tracewheel.core.stopping import Stopped, requested, stoppable

if TYPE_CHECKING:
    import pandas

    from flows.progress import TerminalReporter
    from tasks.run import Policy, Run
    from tasks.ticks import Tick
    from tracewheel.backtest.history import History
    from tracewheel.backtest.plan import Branch, Window
    from tracewheel.config import RetrainConfig
    from tracewheel.core.store import Entry

PLAN_FILE, RESULT_FILE, COSTS_FILE, PAGE_FILE, PLOT_FILE = (
    "plan.json", "backtest.json", "costs.json", "backtest.html", "backtest.svg",
)  # fmt: skip
BRANCHES, REFERENCE, CONSOLE_FILE, EXAM_FILE = "branches", "reference", "console.log", "exam.json"
Work = Callable[["Run", "TerminalReporter"], dict[str, Any]]


def add_backtest_command(commands: Any, add: Any) -> None:
    """Add the command to the command line; `add` makes the parser of a command with a profile."""
    parser = add(commands, "backtest", "flows.backtest:backtest", "what scheduled retraining would have done with past logs")
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


def backtest(options: argparse.Namespace) -> dict[str, Any]:
    """Replay the past, and write what it shows."""
    plan = checked(options)
    prepare_environment(str(plan.out), debug=options.debug)
    from flows.setup import use_threads
    from tracewheel.report.backtest import shown, write_backtest

    use_threads(plan.config.threads)
    with _stoppable():
        exam = make_exam(plan)
        for branch in plan.branches:
            replay(plan, branch)
        result, costs = judge(plan, exam)
    files = write_backtest(plan.out, result, costs)
    whole = {**result, "costs": costs, "files": files}
    return whole if options.json else {**whole, "show": lambda: print(shown(result, costs, files))}


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    with stoppable():
        from prefect.exceptions import Abort

        try:
            yield
        except Abort as stop:
            if request := requested():
                raise Stopped(request, "stopped; the same command resumes the backtest") from stop
            raise


def checked(options: argparse.Namespace) -> Backtest:
    """Check everything before anything is computed.

    Raises:
        InputError: an option, the profile or the logs are wrong; or the folder holds another backtest.
    """
    from tasks.run import Run
    from tracewheel.backtest.history import read_history
    from tracewheel.backtest.plan import Branch, Window, parse_cadences, parse_gates

    overrides = [*options.overrides, *([f"ingest.paths={json.dumps([options.logs])}"] if options.logs else [])]
    config = resolve_config(options.config, overrides, options.run_dir)
    window = Window.of(options.first, options.last, options.timezone or config.schedule.timezone or "UTC")
    cadences = parse_cadences(options.cadence)
    for cadence in cadences:
        window.ticks(cadence)
    gates = parse_gates(options.gate, config.gate)
    if options.exam is not None and options.exam < 1:
        raise DataError(f"--exam {options.exam}: give 1 or more tasks a day")
    Run.unread(config)
    history = read_history(config.ingest)
    history.check_zones(assume_utc=options.assume_utc)
    _check_window(history, window)
    for sentence in history.says():
        say(sentence)
    out = Path(options.out or f"{config.work_dir.rstrip('/')}-backtest").resolve()
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
    from tasks.inputs import identify_settings, other_inputs
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


def make_exam(plan: Backtest) -> Entry:
    """The exam: the logs as screening lets them in day by day, and the tasks that users asked for in the window."""
    from flows.intake import take_in
    from tasks.drivers import DirectDriver
    from tasks.exam import set_exam
    from tasks.reading import begin_run
    from tasks.screening import screened
    from tracewheel.core import clock
    from tracewheel.core.errors import DoubtfulData

    config = _config_in(plan, plan.out / REFERENCE)
    before, traces, run = None, None, None
    with _reporter(plan.out / REFERENCE) as reporter:
        for moment in [plan.window.begin, *(day.end for day in plan.window.days())]:
            if plan.history.extend(Path(config.ingest.paths[0]), before, moment):
                with clock.at(moment), contextlib.suppress(DoubtfulData):  # all that there is so far is held
                    run = screened(begin_run(config, reporter, DirectDriver()))
                    traces = take_in(run)
            before = moment
        if run is None or traces is None:
            raise DataError("all records of the logs are held by screening: there is nothing to replay")
        days = [[str(day.date), day.begin.isoformat(), day.end.isoformat()] for day in plan.window.days()]
        exam = set_exam(run, traces=traces, days=days, per_day=plan.per_day)
    if not exam.result["tasks"]:
        raise DataError(
            f"--from {plan.window.first} --to {plan.window.last}: none of the records of these days gives a task that can be "
            f"verified, so nothing can be measured ({exam.result['left_out'] or 'no reason known'})"
        )
    say(f"exam: {exam.result['tasks']} tasks asked for on {exam.result['days']} days")
    return exam


def replay(plan: Backtest, branch: Branch, work: Work | None = None) -> list[Tick]:
    """Replay a branch from where it stands; returns all of its ticks.

    Args:
        work: What a run does once its logs are screened; by default the scheduled flow.
    """
    from tasks.ticks import read_ticks

    folder = plan.out / BRANCHES / branch.folder
    config = _config_in(plan, folder, branch)
    moments = plan.window.ticks(branch.cadence)
    done = read_ticks(folder)
    with _reporter(folder) as reporter:
        for place in range(len(done), len(moments)):
            before = moments[place - 1] if place else None
            new = plan.history.extend(Path(config.ingest.paths[0]), before, moments[place])
            tick = run_tick(config, moments[place], new, reporter, work)
            say(f"{branch.name}  {tick.at[:16].replace('T', ' ')}  {words_of(tick)}")
    return read_ticks(folder)


def run_tick(config: RetrainConfig, moment: datetime, new: int, reporter: TerminalReporter, work: Work | None = None) -> Tick:
    """One scheduled run at a moment of the past, and its record.

    What an input is wrong with ends the tick, as it would have ended the run; anything else ends the backtest, which resumes.
    """
    from tasks.ticks import HELD_BACK, NO_LOGS, Tick, add_tick, begin_tick, held_at, outcome, serving
    from tracewheel.core import clock
    from tracewheel.core.errors import DoubtfulData

    folder, at = Path(config.work_dir), moment.isoformat(timespec="seconds")
    before = begin_tick(folder, at)
    run, nothing = None, ""
    problem: Exception | None = None
    with clock.at(moment):
        try:
            if any(path.is_file() for path in Path(config.ingest.paths[0]).rglob("[!.]*")):
                run = _begin(config, reporter)
                _scheduled(run, reporter, work)
            else:
                nothing = NO_LOGS
        except DoubtfulData as doubt:
            nothing, problem = (HELD_BACK, None) if run is None else ("", doubt)
        except InputError as error:
            problem = error
        except InfrastructureError as error:
            if not str(error).startswith("gave up"):
                raise
            problem = error
        found = outcome(folder, run, at, before, problem)
        if nothing:
            found |= {"end": nothing, "figures": {}}
        champion, weights = serving(run) if run else (None, None)
    tick = Tick(at=at, champion=champion, weights=weights, held=held_at(folder, at), new=new, **found)
    add_tick(folder, tick)
    return tick


def _begin(config: RetrainConfig, reporter: TerminalReporter) -> Run:
    from tasks.drivers import DirectDriver
    from tasks.reading import begin_run
    from tasks.screening import screened

    return screened(begin_run(config, reporter, DirectDriver()))


def _scheduled(run: Run, reporter: TerminalReporter, work: Work | None) -> None:
    """What the scheduled flow does with a run that has begun."""
    from flows.ends import ending, skipped
    from flows.retrain import whole
    from tasks.decisions import nothing_new

    if reason := nothing_new(run):
        skipped(run, reason)
        return
    ending(run, lambda: work(run, reporter) if work else whole(run, reporter, scheduled=True))


def judge(plan: Backtest, exam: Entry) -> tuple[dict[str, Any], dict[str, Any]]:
    """Let every policy that served sit the exam; returns the result, equal for equal inputs, and what was spent."""
    from tasks.exam import sit_exam
    from tasks.ticks import read_ticks
    from tracewheel.backtest.exam import ASKED_FILE
    from tracewheel.backtest.result import BranchRecord, result_of
    from tracewheel.backtest.serving import FIRST
    from tracewheel.core.files import read_table

    config = _config_in(plan, plan.out / REFERENCE)
    asked = read_table(exam.path / ASKED_FILE)
    ticks = {branch: read_ticks(plan.out / BRANCHES / branch.folder) for branch in plan.branches}
    with _reporter(plan.out / REFERENCE) as reporter:
        run = _run_of(config, reporter)
        scores = {FIRST: sit_exam(run, run.base(), exam, exam.result["blocks"])}
        for policy, since in _policies(run, ticks.values()):
            blocks = _blocks(asked, exam, since)
            say(f"exam of {policy.entry.digest[:8] if policy.entry else policy.name}: {len(blocks)} blocks of tasks")
            scores[policy.name] = sit_exam(run, policy, exam, blocks)
        records = {branch.name: BranchRecord(str(branch.cadence), dict(branch.gate), ticks[branch]) for branch in plan.branches}
        used = {branch.name: [_used(run, tick) for tick in found] for branch, found in ticks.items()}
    result = result_of(plan.window, asked, exam.result, records, used, scores)
    return result, _costs(plan, run, ticks)


def _policies(run: Run, branches: Any) -> Iterator[tuple[Policy, datetime]]:
    """Each policy that served, under its weights' digest, and since when at the earliest."""
    from dataclasses import replace

    first: dict[str, Tick] = {}
    for tick in sorted((tick for ticks in branches for tick in ticks if tick.champion), key=lambda tick: tick.moment):
        first.setdefault(str(tick.champion), tick)
    for digest, tick in first.items():
        entry = _entry(run, str(tick.weights))
        yield replace(run.adapted(digest, entry, version=entry.result["policy_version"])), tick.moment


def _blocks(asked: pandas.DataFrame, exam: Entry, since: datetime) -> list[str]:
    """The blocks with a task that was asked for since a moment."""
    from tracewheel.core.files import read_table
    from tracewheel.curation.curated_folder import TASKS_FILE

    later = set(asked.loc[asked["at"] >= round(since.timestamp() * 1_000_000), "task_id"])
    tasks = read_table(exam.path / TASKS_FILE, ["id", "split"])
    return sorted(set(tasks.loc[tasks["id"].isin(later), "split"]))


def _used(run: Run, tick: Tick) -> tuple[frozenset[str], frozenset[str]]:
    """What the run of a tick trained or selected on: fingerprints of tasks, and identities of their components."""
    if tick.curated is None:
        return frozenset(), frozenset()
    from tracewheel.backtest.result import used_in

    return used_in(_entry(run, tick.curated).path)


def _entry(run: Run, name: str) -> Entry:
    stage, _, key = name.rpartition("-")
    if entry := run.store.find(stage, key):
        return entry
    raise DataError(f"{run.store.root / name}: lost or damaged; delete the folder of its branch, and it is replayed anew")


def _costs(plan: Backtest, run: Run, ticks: dict[Branch, list[Tick]]) -> dict[str, Any]:
    """Seconds, tokens and money: of each branch, as if it had been alone, and of the backtest, which made each result once."""
    from tasks.summary import costs
    from tasks.worth import prices
    from tracewheel.operations.worth import priced

    def spent(names: set[str]) -> dict[str, Any]:
        entries = [entry for name in sorted(names) if (entry := run.store.find(*name.rsplit("-", 1)))]
        found = costs(entries)
        seconds, tokens = sum(found["seconds"].values()), sum(found["tokens"].values())
        total = priced(seconds, tokens, prices(run), run.config.schedule.currency).to_record()
        return {"seconds": found["seconds"], "tokens": found["tokens"], "total": total}

    own = {branch.name: {name for tick in found for name in tick.entries} for branch, found in ticks.items()}
    sitting = {f"{entry.stage}-{entry.key}" for entry in run.used}
    return {
        "branches": {name: spent(names) for name, names in own.items()},
        "exam": spent(sitting),
        "backtest": spent(set().union(sitting, *own.values())),
        "shared": sum(map(len, own.values())) - len(set().union(*own.values())),
    }


def _config_in(plan: Backtest, folder: Path, branch: Branch | None = None) -> RetrainConfig:
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


def _run_of(config: RetrainConfig, reporter: TerminalReporter) -> Run:
    from tasks.drivers import DirectDriver
    from tasks.run import Run

    return Run.on(config, "exam", reporter, DirectDriver())


@contextlib.contextmanager
def _reporter(folder: Path) -> Iterator[TerminalReporter]:
    """Writes what the runs of a folder say into a file there."""
    from rich.console import Console

    from flows.progress import TerminalReporter

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / CONSOLE_FILE).open("a", encoding="utf-8") as file:
        yield TerminalReporter(console=Console(file=file, highlight=False, width=160))


def words_of(tick: Tick) -> str:
    """A tick in a line."""
    gained = tick.figures.get("difference")
    words = tick.end if gained is None else f"{tick.end} ({100 * gained:+.1f} points on held-out tasks)"
    held = f"; {sum(batch['records'] for batch in tick.held)} records held" if tick.held else ""
    return f"{words}{held}" + (f": {tick.figures['why']}" if tick.end == "failed" else "")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


__all__: Sequence[str] = ("add_backtest_command", "backtest")
