"""The guard: collapses raise the alarm, healthy runs and harder tasks do not; which candidate the loop goes back to."""

import math
import random

import pytest

from tracewheel.sampling.guard import Alarm, IterationFigures, Signal, TaskCounts, best_before, judge

WELL = {"entropy": 0.04, "kl": 0.02, "grad_norm": 0.1}


def played(number, success, *, tasks=range(16), group=8, malformed=0.0, seed=0, **metrics):
    """An iteration whose tasks succeed with a rate, or each with its own."""
    rng = random.Random(f"{seed}-{number}")
    rate = success if callable(success) else lambda task: success
    counts = {}
    for task in tasks:
        wins = sum(rng.random() < rate(task) for _ in range(group))
        counts[f"t{task}"] = TaskCounts(wins, group, sum(rng.random() < malformed for _ in range(group)), group)
    return IterationFigures(number, counts, WELL | metrics)


def first_alarm(history, best=0, **options):
    for end in range(1, len(history) + 1):
        if alarm := judge(history[:end], best=best, **options):
            return end, alarm
    return None


@pytest.mark.parametrize("seed", range(5))
def test_the_published_collapse_is_found_by_its_fourth_iteration(seed):
    course = [played(number, rate, seed=seed) for number, rate in enumerate((0.22, 0.14, 0.06, 0.02), start=1)]
    at, alarm = first_alarm(course)
    assert at in (3, 4)
    assert [signal.name for signal in alarm.signals] == ["success"]
    assert alarm.signals[0].value < 0.1 < alarm.signals[0].expected


def test_a_lost_format_is_found_at_once_although_success_was_low_anyway():
    course = [played(1, 0.1), played(2, 0.1), played(3, 0.1, malformed=0.5)]
    at, alarm = first_alarm(course)
    assert (at, alarm.since, [signal.name for signal in alarm.signals]) == (3, 3, ["malformed"])


def test_harder_tasks_are_no_alarm():
    # Success falls from 0.9 to 0.1 because other tasks are drawn: none of them is played worse than before.
    def rate(task):
        return 0.9 if task < 12 else 0.1

    easy, hard = [*range(12), 12, 13], [0, 1, *range(12, 24)]
    course = [played(number, rate, tasks=easy if number < 5 else hard, seed=7) for number in range(1, 10)]
    assert course[4].success < 0.4 < 0.7 < course[3].success
    assert first_alarm(course, families={f"t{task}": "list" for task in range(24)}) is None


def test_untried_tasks_are_compared_with_the_first_episodes_of_others_of_their_family():
    families = {f"t{task}": "a" if task % 2 else "b" for task in range(200)}
    course = [played(number, 0.6, tasks=range(20 * number, 20 * number + 20)) for number in range(1, 5)]
    assert first_alarm(course, families=families) is None
    fallen = [*course, played(5, 0.1, tasks=range(100, 120))]
    assert first_alarm(fallen, families=families)[0] == 5
    assert first_alarm(fallen) is None, "without families there is nothing to compare with"


def test_one_doubtful_iteration_is_forgiven_and_two_in_a_row_are_not():
    course = [played(number, 0.5) for number in range(1, 5)]
    dip = [*course, played(5, 0.5, grad_norm=1.5), played(6, 0.5), played(7, 0.5, grad_norm=1.5)]
    assert first_alarm(dip) is None
    at, alarm = first_alarm([*dip, played(8, 0.5, grad_norm=1.5)])
    assert (at, alarm.since) == (8, 7)
    assert alarm.signals == (Signal("grad_norm", 1.5, 0.1, "doubtful", 8),)


@pytest.mark.parametrize(
    ("metrics", "success", "named"),
    [
        ({"entropy": 0.5}, 0.5, "entropy"),
        ({"entropy": 1e-5}, 0.5, "entropy"),
        ({"entropy": 1e-5}, 0.97, None),  # it has learnt its tasks
        ({"kl": 38.8}, 0.5, "kl"),
        ({"kl": 0.09}, 0.5, None),  # four times the others, but little
        ({"kl": 1e-6}, 0.5, None),
        ({"grad_norm": 50.0}, 0.5, "grad_norm"),
        ({"grad_norm": math.nan}, 0.5, "grad_norm"),
        ({"grad_norm": 0.0}, 0.5, None),
    ],
)
def test_bands_of_the_updates_metrics(metrics, success, named):
    course = [played(number, success) for number in range(1, 7)]
    alarm = judge([*course, played(7, success, **metrics)], best=0)
    assert [signal.name for signal in alarm.signals] == [named] if named else alarm is None


def test_a_first_update_far_from_the_reference_needs_no_history():
    assert judge([played(1, 0.3, kl=38.8)], best=0).since == 1
    assert judge([played(1, 0.3, kl=38.8)], best=0).sentence == "kl 38.8"
    assert judge([played(1, 0.3, kl=math.inf)], best=0).sentence == "kl is not finite"
    assert judge([played(1, 0.3, kl=0.5)], best=0) is None
    assert judge([IterationFigures(1)], best=0) is None, "nothing was measured"


def test_a_slow_decline_is_measured_against_the_best_candidate():
    course = [played(number, 0.9 - 0.03 * max(0, number - 4)) for number in range(1, 25)]
    at, _ = first_alarm(course, best=4)
    assert at < 24
    assert 0.9 - 0.03 * (at - 4) > 0.4


@pytest.mark.parametrize(
    ("since", "lag", "to"), [(1, 0, 0), (2, 0, 0), (4, 0, 2), (6, 0, 4), (8, 0, 4), (6, 1, 2), (8, 3, 2), (3, 5, 0)]
)
def test_the_loop_goes_back_to_the_best_candidate_that_is_not_in_doubt(since, lag, to):
    rates = {0: 0.4, 2: 0.5, 4: 0.6, 6: 0.6}
    assert best_before(Alarm(since, ()), rates, lag) == to
    assert best_before(Alarm(since, ()), dict.fromkeys(rates), lag) == 0, "nothing is ranked"
