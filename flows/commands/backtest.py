"""`tracewheel backtest`: the loop on the logs of the past, day by day, with the clock of the day.

Each cadence with each gate is a *branch*: a work folder of its own, in which the scheduled flow runs at the moments of the
cadence and sees the logs, the champion and its own records as they were then. All branches share one store.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands.backtest_plan import BRANCHES, REFERENCE, WRITES, Backtest, add_options, checked, config_in, reporting
from flows.commands.command import Command
from flows.console.arguments import note
from tracewheel.core.errors import DataError, InfrastructureError, InputError
from tracewheel.core.stopping import Stopped, requested, stoppable

if TYPE_CHECKING:
    from flows.console.progress import TerminalReporter
    from tasks.engine.run import Run
    from tasks.records.ticks import Tick
    from tracewheel.backtest.plan import Branch
    from tracewheel.config import RetrainConfig
    from tracewheel.core.store import Entry

Work = Callable[["Run", "TerminalReporter"], dict[str, Any]]


def backtest(options: argparse.Namespace) -> dict[str, Any]:
    """Replay the past, and write what it shows."""
    from flows.setup import prepare_environment, use_threads

    plan = checked(options)
    prepare_environment(str(plan.out), debug=options.debug)
    from tracewheel.dashboard.backtest import shown, write_backtest

    use_threads(plan.config.threads)
    with _stoppable():
        exam = make_exam(plan)
        for branch in plan.branches:
            replay(plan, branch)
        result, costs = judge(plan, exam)
    files = write_backtest(plan.out, result, costs)
    whole = {**result, "costs": costs, "files": files}
    return {**whole, "show": shown(result, costs, files) + "\n"}


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


def make_exam(plan: Backtest) -> Entry:
    """The exam: the logs as screening lets them in day by day, and the tasks that users asked for in the window."""
    from flows.intake import take_in
    from tasks.afterwards.exam import set_exam
    from tasks.records.ticks import lend_states
    from tracewheel.core import clock
    from tracewheel.core.errors import DoubtfulData

    config = config_in(plan, plan.out / REFERENCE)
    before, traces, run = None, None, None
    with reporting(plan.out / REFERENCE) as reporter:
        for moment in [plan.window.begin, *(day.end for day in plan.window.days())]:
            if plan.history.extend(Path(config.ingest.paths[0]), before, moment):
                with clock.at(moment), contextlib.suppress(DoubtfulData):  # all that there is so far is held
                    run = _begin(config, reporter)
                    traces = take_in(run)
                    lend_states(run)
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
    note(f"exam: {exam.result['tasks']} tasks asked for on {exam.result['days']} days")
    return exam


def replay(plan: Backtest, branch: Branch, work: Work | None = None) -> list[Tick]:
    """Replay a branch from where it stands; returns all of its ticks.

    Args:
        work: What a run does once its logs are screened; by default the scheduled flow.
    """
    from tasks.records.ticks import read_ticks

    folder = plan.out / BRANCHES / branch.folder
    config = config_in(plan, folder, branch)
    moments = plan.window.ticks(branch.cadence)
    done = read_ticks(folder)
    with reporting(folder) as reporter:
        for place in range(len(done), len(moments)):
            before = moments[place - 1] if place else None
            new = plan.history.extend(Path(config.ingest.paths[0]), before, moments[place])
            tick = run_tick(config, moments[place], new, reporter, work)
            note(f"{branch.name}  {tick.at[:16].replace('T', ' ')}  {words_of(tick)}")
    return read_ticks(folder)


def run_tick(config: RetrainConfig, moment: datetime, new: int, reporter: TerminalReporter, work: Work | None = None) -> Tick:
    """One scheduled run at a moment of the past, and its record.

    What an input is wrong with ends the tick, as it would have ended the run; anything else ends the backtest, which resumes.
    """
    from tasks.records.ticks import HELD_BACK, NO_LOGS, Tick, add_tick, begin_tick, held_at, lend_states, outcome, serving
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
        if run:
            lend_states(run)
    tick = Tick(at=at, champion=champion, weights=weights, held=held_at(folder, at), new=new, **found)
    add_tick(folder, tick)
    return tick


def _begin(config: RetrainConfig, reporter: TerminalReporter) -> Run:
    from tasks.engine.drivers import DirectDriver
    from tasks.engine.reading import begin_run
    from tasks.records.screening import screened
    from tasks.records.ticks import borrow_state

    run = screened(begin_run(config, reporter, DirectDriver()))
    borrow_state(run)
    return run


def _scheduled(run: Run, reporter: TerminalReporter, work: Work | None) -> None:
    """What the scheduled flow does with a run that has begun."""
    from flows.deploy.ends import ending, skipped
    from flows.retrain import whole
    from tasks.records.decisions import nothing_new

    if reason := nothing_new(run):
        skipped(run, reason)
        return
    ending(run, lambda: work(run, reporter) if work else whole(run, reporter, scheduled=True))


def judge(plan: Backtest, exam: Entry) -> tuple[dict[str, Any], dict[str, Any]]:
    """Let every policy that served sit the exam; returns the result, equal for equal inputs, and what was spent."""
    from tasks.afterwards.exam import blocks_since, costs_of, first_served, sit_exam, stored
    from tasks.engine.drivers import DirectDriver
    from tasks.engine.run import Run
    from tasks.records.ticks import read_ticks
    from tracewheel.backtest.exam import ASKED_FILE
    from tracewheel.backtest.result import UNUSED, BranchRecord, result_of, used_in
    from tracewheel.backtest.serving import FIRST
    from tracewheel.core.files import read_table

    ticks = {branch.name: read_ticks(plan.out / BRANCHES / branch.folder) for branch in plan.branches}
    with reporting(plan.out / REFERENCE) as reporter:
        run = Run.on(config_in(plan, plan.out / REFERENCE), "exam", reporter, DirectDriver())
        scores = {FIRST: sit_exam(run, run.base(), exam, exam.result["blocks"])}
        for digest, tick in first_served(ticks.values()).items():
            entry, blocks = stored(run, tick.weights or ""), blocks_since(exam, tick.moment)
            note(f"exam of the policy {digest[:8]}: {len(blocks)} blocks of tasks")
            policy = run.adapted(digest, entry, version=entry.result["policy_version"])
            scores[digest] = sit_exam(run, policy, exam, blocks)
    records = {
        branch.name: BranchRecord(str(branch.cadence), dict(branch.gate), ticks[branch.name]) for branch in plan.branches
    }
    used = {
        name: [used_in(stored(run, tick.curated).path) if tick.curated else UNUSED for tick in found]
        for name, found in ticks.items()
    }
    result = result_of(plan.window, read_table(exam.path / ASKED_FILE), exam.result, records, used, scores)
    return result, costs_of(run, ticks)


def words_of(tick: Tick) -> str:
    """A tick in a line."""
    gained = tick.figures.get("difference")
    words = tick.end if gained is None else f"{tick.end} ({100 * gained:+.1f} points on held-out tasks)"
    held = f"; {sum(batch['records'] for batch in tick.held)} records held" if tick.held else ""
    return f"{words}{held}" + (f": {tick.figures['why']}" if tick.end == "failed" else "")


COMMAND = Command("backtest", "what scheduled retraining would have done with past logs", add_options, backtest, writes=WRITES)
