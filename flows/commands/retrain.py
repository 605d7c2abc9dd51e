"""`tracewheel retrain`: the whole loop, from traces to a promoted adapter."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.commands import doctor
from flows.commands.champion.promote import refuse_or
from flows.commands.command import Command
from flows.console.arguments import leak_option, note, profile_of, profile_options, profile_words
from tracewheel.core.errors import ConfigError


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the plan: stages, what is stored, sizes, estimated time")
    parser.add_argument("--fresh", action="store_true", help="begin on the logs as they are now, even if a run is incomplete")
    parser.add_argument(
        "--as-of",
        metavar="MOMENT",
        help="what a scheduled run would have done at a moment of the past, as in 2026-10-02T00:00:00Z, on logs that end there",
    )
    leak_option(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run the flow, or plan it.

    Raises:
        GateRefused: the gate did not promote the challenger.
        UnhealthyRun: a check of `doctor.stop_on` found something severe.
    """
    config = profile_of(options, prefect=True)
    from tasks.engine.reading import begin_run
    from tasks.engine.run import Run
    from tasks.records.template import checked_template

    checked_template(Run.unread(config))  # what is missing is found before anything is started
    if options.dry_run:
        from flows.commands.dry_run import make_plan, show_plan

        plan = make_plan(begin_run(config, fresh=options.fresh))
        return {**plan, "show": lambda: show_plan(plan)}
    if options.as_of:
        return _as_of(options)
    from flows.deploy.server import LocalServer
    from tracewheel.core.stopping import stoppable

    with stoppable(grace=0), LocalServer(Path(config.work_dir)) as server:
        from flows.retrain import retrain  # takes as long as the server

        server.wait()
        with stoppable(), _stop_told():  # no signal in the midst of Prefect's engine, which would call the run crashed
            summary = _through_prefect(retrain, options)
    return _shown(options, summary)


def _as_of(options: argparse.Namespace) -> dict[str, Any]:
    """The scheduled run of a moment of the past, without Prefect's server: decisions and records have that moment's time.

    Raises:
        ConfigError: the moment is no time with a zone.
        GateRefused: the gate did not promote the challenger.
    """
    from datetime import datetime

    from tracewheel.core import clock
    from tracewheel.core.stopping import stoppable

    try:
        moment = datetime.fromisoformat(options.as_of)
        if moment.tzinfo is None:
            raise ValueError("it has no zone")
    except ValueError as error:
        raise ConfigError(f"--as-of {options.as_of}: write it as 2026-10-02T00:00:00Z ({error})") from error
    with stoppable(), clock.at(moment), _stop_told():
        result = _alone(options, scheduled=True)
    return _shown(options, result) if "gate" in result else {**result, "show": f"skipped: {result['skipped']}\n"}


@contextlib.contextmanager
def _stop_told() -> Iterator[None]:
    """Say why a flow was stopped.

    Raises:
        Stopped: it was.
    """
    from prefect.exceptions import Abort, TerminationSignal

    from tracewheel.core.stopping import Stopped, requested

    try:
        yield
    except (Abort, TerminationSignal) as stop:  # the second where a signal meets Prefect's own handler, at the start
        if request := requested():
            raise Stopped(request, str(stop)) from None
        raise


def _shown(options: argparse.Namespace, summary: dict[str, Any]) -> dict[str, Any]:
    from flows.console.summary import show_summary

    profile = profile_words(options)
    return refuse_or(summary["gate"], {**summary, "show": lambda: show_summary(summary, profile)})


def _alone(options: argparse.Namespace, *, scheduled: bool = False) -> dict[str, Any]:
    """The run without Prefect's server."""
    from flows.retrain import run_alone
    from tasks.engine.drivers import DirectDriver

    given = (options.config, options.overrides, options.run_dir)
    return run_alone(*given, DirectDriver(), scheduled=scheduled, fresh=options.fresh)


def _through_prefect(flow: Any, options: argparse.Namespace) -> Any:
    """The flow's summary. Where Prefect's server is away, the same run without it: what is stored is not made again."""
    from tasks.engine.drivers import is_prefect_away

    try:
        return flow(options.config, options.overrides, options.run_dir, fresh=options.fresh)
    except Exception as error:
        if not is_prefect_away(error):
            raise
        note("Prefect's server does not answer: the run goes on without it")
        return _alone(options)


# Its card is of what stopped a run: findings of the doctor.
COMMAND = Command("retrain", "the whole loop, from traces to a promoted adapter", add_options, run, doctor.card)
