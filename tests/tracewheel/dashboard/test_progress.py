"""The time that a loop still needs."""

import pytest

from tracewheel.dashboard.measured import Iteration
from tracewheel.dashboard.progress import _progress


def iterations(seconds, ended=1000.0):
    return [Iteration(n, {"rollout": took}, ended, {}, {}) for n, took in enumerate(seconds, 1)]


def test_the_time_left_is_the_iterations_left_by_the_median_less_what_has_passed():
    found = _progress("", iterations([10.0, 12.0, 11.0]), 10, now=1005.0)
    assert (found.done, found.each, found.left, found.late) == (3, 11.0, pytest.approx(7 * 11.0 - 5.0), False)


def test_a_loop_that_should_have_ended_is_late():
    assert _progress("", iterations([10.0]), 2, now=1060.0).late


def test_before_the_first_iteration_nothing_is_measured():
    found = _progress("", [], 4, now=0.0)
    assert (found.share, found.each, found.left) == (0.0, None, None)


def test_a_complete_loop_needs_no_more_time():
    found = _progress("", iterations([10.0, 10.0]), 2, now=9999.0)
    assert (found.left, found.late, found.share) == (0.0, False, 1.0)
