"""Screens of wheels: they look at what a start finds new in its logs, before a run begins on it."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from tasks.engine.reading import begin_run
from tasks.engine.run import Run
from tasks.records.telling import tell_held
from tracewheel.config.base import Strict
from tracewheel.config.wheel_sections import SCREENS
from tracewheel.core import clock
from tracewheel.core.errors import DoubtfulData
from tracewheel.operations.batches import held_batches, held_slices


class Screen(Protocol):
    """What an entry point of the group `tracewheel.screens` names; its name is a section of the profile, which may be left out.

    Attributes:
        Settings: The section's model.
    """

    Settings: type[Strict]

    def screen(self, run: Run, now: datetime) -> list[str]:
        """Look at the slices of `run.snapshot` that no batch of the work folder has; returns sentences for the console.

        They are noted as a batch with a decision (`tracewheel/operations/batches.py`). Those of a held batch are left out of
        the run that begins then.
        """
        ...


def screened(run: Run, *, fresh: bool = False, tell: bool = False) -> Run:
    """The run, or, where its new slices are held, the run without them.

    Args:
        run: The run. One that is made again reads what was let in once.
        fresh: Whether it was begun on the logs as they are now, whatever earlier run is incomplete.
        tell: Whether `schedule.notify` is told of a batch that is held: nobody watches the run.

    Raises:
        DoubtfulData: without the batches that are held nothing is left to read.
    """
    if run.record.made_again:
        return run
    says = [sentence for name in SCREENS for sentence in SCREENS[name]().screen(run, clock.now())]
    for sentence in says:
        run.reporter.say(sentence)
    held = held_slices(run.config.work_dir)
    if any(sha256 in held for _, _, sha256 in run.snapshot.contents):
        if tell:
            tell_held(run.config, "; ".join(says))
        run = begin_run(run.config, run.reporter, run.driver, fresh=fresh)
    if held and not run.snapshot.contents:
        batches = held_batches(run.config.work_dir)
        raise DoubtfulData(
            "\n  ".join(
                [
                    f"all that there is to learn from is held ({len(batches)} batches); see it with `tracewheel batches CONFIG "
                    "--show ID`, and let it in with --release ID --why TEXT:",
                    *(f"batch {it.id}: {it.records['read']} records of {it.shown()}: {it.why}" for it in batches),
                ]
            )
        )
    return run
