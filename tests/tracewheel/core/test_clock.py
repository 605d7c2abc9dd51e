"""The clock that stands still at a moment of the past, and who may look at another one."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from tracewheel.core import clock

ROOT = Path(__file__).parents[3]
# What a person does, and what watches files and a server as they are now: nothing that a backtest replays.
OF_THE_PRESENT = {
    "flows/deploy/triggers.py",
    "flows/deploy/turns.py",
    "tasks/afterwards/reproduction.py",
    "tracewheel/core/clock.py",
    "tracewheel/operations/arrivals.py",
}


def test_the_clock_stands_still_at_a_moment_and_goes_on_after_it():
    moment = datetime(2026, 10, 3, 2, tzinfo=timezone(timedelta(hours=2)))
    with clock.at(moment):
        assert clock.now() == moment and clock.written() == "2026-10-03T00:00:00+00:00"
        with pytest.raises(ZeroDivisionError), clock.at(moment + timedelta(days=1)):
            assert clock.milliseconds() == 1000 * int((moment + timedelta(days=1)).timestamp())
            raise ZeroDivisionError
        assert clock.now() == moment
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(minutes=1)
    with pytest.raises(ValueError, match="needs a zone"), clock.at(datetime(2026, 10, 3)):
        pass


def test_decisions_and_records_ask_no_other_clock():
    """Otherwise a backtest would decide by today."""
    files = [path for folder in ("flows", "tasks", "tracewheel") for path in (ROOT / folder).rglob("*.py")]
    own = {path.relative_to(ROOT).as_posix() for path in files if "datetime.now(" in path.read_text()}
    assert own <= OF_THE_PRESENT
