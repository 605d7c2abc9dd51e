"""When a trigger starts a run, by the history that Prefect has of its deployment, and a real run that new traces start."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from prefect.states import Cancelled, Completed, Crashed, Failed, Running, Scheduled

from flows.deploy.triggers import FIRST_RETRY_SECONDS, History, is_past

NOW = datetime(2026, 11, 23, 9, tzinfo=UTC)


def flow_run(state, minutes_ago):
    began = NOW - timedelta(minutes=minutes_ago)
    started = None if state.is_scheduled() else began
    return SimpleNamespace(state=state, start_time=started, end_time=began + timedelta(minutes=1) if state.is_final() else None)


def test_a_run_that_completed_has_taken_in_what_came_before_it_began():
    history = History.of([flow_run(Completed(name="Skipped"), 10), flow_run(Completed(), 100)])
    assert (history.busy, history.taken_in, history.next_try) == (False, NOW - timedelta(minutes=10), None)
    assert History.of([]) == History(False, None, None)


@pytest.mark.parametrize("state", [Running(), Scheduled(), Running(name="Waiting")])
def test_no_second_run_is_started_beside_one(state):
    assert History.of([flow_run(state, 1), flow_run(Completed(), 10)]).busy


def test_a_run_that_failed_has_taken_in_nothing_and_the_next_try_waits_longer_each_time():
    once = History.of([flow_run(Failed(), 10), flow_run(Completed(), 100)])
    assert once.taken_in == NOW - timedelta(minutes=100)
    assert once.next_try == NOW - timedelta(minutes=9) + timedelta(seconds=FIRST_RETRY_SECONDS)
    twice = History.of([flow_run(Crashed(), 10), flow_run(Cancelled(), 12), flow_run(Failed(), 20), flow_run(Completed(), 100)])
    assert twice.next_try - once.next_try == timedelta(seconds=FIRST_RETRY_SECONDS)
    many = History.of([flow_run(Failed(), minutes) for minutes in range(10, 30)])
    assert many.next_try == NOW - timedelta(minutes=9) + timedelta(hours=1)


def test_a_time_that_has_come():
    assert is_past(None) and is_past(datetime.now(UTC))
    assert not is_past(datetime.now(UTC) + timedelta(minutes=1))
