"""A candidate's evidence over nights: what its looks spend, and what becomes of it."""

import pandas as pd
import pytest
from scipy.stats import norm

from tracewheel.config import GateConfig
from tracewheel.core.types import Task
from tracewheel.evaluation.candidate import NIGHTS, cannot_wait, confirm, fresh_tasks, passes_screen, spent, waits
from tracewheel.evaluation.error_budget import (
    CONFIRMATION,
    NIGHT,
    Look,
    budget,
    cost_of_the_plan,
    level_of,
    names_candidates,
    promise_in_words,
)
from tracewheel.evaluation.gate import decide


def test_the_spending_is_the_published_one():
    """The first bound of five looks at one-sided 2.5% is 4.8769 (Lan and DeMets' program); the second's increment 3.357."""
    assert norm.isf(spent(0.025, 0.2)) == pytest.approx(4.8769, abs=1e-4)
    assert norm.isf(spent(0.025, 0.4) - spent(0.025, 0.2)) == pytest.approx(3.357, abs=1e-3)
    assert spent(0.025, 1.0) == pytest.approx(0.025) == spent(0.025, 1.5) and spent(0.025, 0.0) == 0.0 == spent(0.0, 1.0)


@pytest.fixture
def night(tmp_path):
    """Writes evaluations of a night: of `tasks` tasks the candidate solves `ours`, the champion `theirs`, the easiest first."""

    def write(number, ours, theirs, tasks=40):
        folders = []
        for name, solved in (("ours", ours), ("theirs", theirs)):
            folders.append(tmp_path / f"{name}-{number}")
            folders[-1].mkdir()
            ids = [f"task-{number}-{place}" for place in range(tasks)]
            greedy = [float(place < solved) for place in range(tasks)]
            pd.DataFrame({"task_id": ids, "family": "one", "greedy": greedy}).to_parquet(folders[-1] / "results.parquet")
        return tuple(folders)

    return write


def look(nights, before=0.0, level=0.01, planned=200):
    return confirm(GateConfig(), nights, level=level, before=before, planned=planned, baseline_name="champion")


def test_evidence_of_all_nights_is_judged_together_and_the_looks_spend_the_level(night):
    nights, used, states = [], 0.0, []
    for number in range(1, 4):
        nights.append(night(number, 26, 20))
        found = look(nights, used)
        assert found["spent"] == pytest.approx(spent(0.01, number * 40 / 200)) and found["tasks"] == 40 * number
        assert found["level"] == pytest.approx(found["spent"] - used) and found["difference"] == pytest.approx(0.15)
        assert (found["difference"] > found["boundary"]) == (found["state"] == "promoted")
        used = found["spent"]
        states.append(found["state"])
    assert states == ["waiting", "waiting", "promoted"]


def test_the_fifth_night_spends_what_is_left_and_is_the_last(night):
    nights = [night(number, 21, 20) for number in range(NIGHTS)]
    found = look(nights, before=0.002, planned=10_000)
    assert found["level"] == pytest.approx(0.008) and found["state"] == "dropped" and "not proven in 5 nights" in found["why"]


def test_one_that_is_not_better_is_dropped_at_once(night):
    assert look([night(1, 20, 20)])["state"] == "dropped" == look([night(2, 19, 20)])["state"]


def test_the_screen_asks_for_some_evidence_and_for_nothing_but_evidence():
    rows = pd.DataFrame({"task_id": range(200), "family": "one", "greedy": [float(place < 100) for place in range(200)]})

    def gate(solved, **more):
        better = rows.assign(greedy=[float(place < solved) for place in range(200)])
        return decide(GateConfig(), better, rows, look=Look(100, 0.001, NIGHT), **more).to_record()

    assert [passes_screen(gate(solved)) for solved in (100, 104, 106)] == [False, False, True]
    verdict = waits(gate(106), instead=False)
    assert (verdict["verdict"], verdict["cause"]) == ("refused", "waits") and "+3.0 points" in verdict["says"]
    assert cannot_wait(gate(106))["cause"] == "no_budget"


def test_a_promise_for_a_night_has_one_level_and_names_no_candidate():
    for promise, level in (("nightly", 0.025), ("expected_loss", 0.18)):
        config = GateConfig(promise=promise)
        assert level_of(config, Look(300, 1.0)) == pytest.approx(level) and not names_candidates(config)
    assert "2.5% of nights" in promise_in_words(GateConfig(promise="nightly"))
    assert names_candidates(GateConfig()) and not names_candidates(GateConfig(gates_per_year=1))


def test_the_expected_loss_of_a_promotion_at_the_level_is_below_a_tenth_of_its_gain():
    z = norm.isf(0.18)
    assert (norm.pdf(z) - z * norm.sf(z)) / (norm.pdf(z) + z * norm.cdf(z)) < 0.1


def test_a_year_of_looks_and_confirmations_shares_the_budget():
    config = GateConfig()
    nights = sum(level_of(config, Look(number, 0.0, NIGHT)) for number in range(1, 366))
    confirmed = sum(level_of(config, Look(number, 0.0, CONFIRMATION)) for number in range(1, 38))
    assert nights + confirmed == pytest.approx(budget(config), rel=1e-3)


def test_a_plan_that_costs_the_promotion_is_named():
    config = GateConfig()
    even = level_of(config, Look(200, 1e-9, NIGHT))
    assert "with 52 the same evidence" in cost_of_the_plan(config, Look(200, 1e-9, NIGHT), 2 * even)
    assert (
        cost_of_the_plan(config, Look(200, 1e-9, NIGHT), 0.2)
        == ""
        == cost_of_the_plan(GateConfig(promise="nightly"), Look(), 0.02)
    )


def curation(folder, held_out, reserve, users):
    """A folder that `curate` wrote: task to component of both sets, and the users of all tasks."""
    folder.mkdir()
    for name, split, tasks in (("tasks", "held_out", held_out), ("reserve", "reserve", reserve)):
        rows = [Task(one, "e", "f", 1, "p", {}, {}, "v", one).to_record() | {"component": tasks[one]} for one in tasks]
        pd.DataFrame(rows).assign(split=split).to_parquet(folder / f"{name}.parquet")
    pd.DataFrame(users, columns=["task_id", "user"]).assign(session=None).to_parquet(folder / "outcomes.parquet")
    return folder


def played(folder, tasks):
    """An evaluation of tasks with their components; None where it is of an earlier version."""
    folder.mkdir()
    table = pd.DataFrame({"task_id": list(tasks), "family": "f", "greedy": 1.0, "component": list(tasks.values())})
    table.dropna(axis=1).to_parquet(folder / "results.parquet")
    return folder


def test_what_hangs_together_with_a_task_of_the_screen_is_not_fresh(tmp_path):
    """By the component's name, by one of its tasks, by a user whose component has another name since; nights by task only."""
    reserve = {"named": "b", "after": "x9", "of_user": "aa", "night": "z", "beside_night": "z", "fresh": "fresh", "new": "n"}
    curated = curation(tmp_path / "now", {"n": "n"}, reserve, [("left", "ann"), ("of_user", "ann"), ("fresh", "bob")])
    screens = [played(tmp_path / "one", {"a": "b", "x9": "x9", "left": "left"})]
    nights = [played(tmp_path / "two", {"night": "night"})]
    found, together = fresh_tasks(curated, screens, nights)
    assert found == ["beside_night", "fresh", "new"]
    assert together["night"] == together["beside_night"] != together["fresh"]
    earlier = [played(tmp_path / "earlier", {"a": None, "new": None})]
    assert fresh_tasks(curated, earlier)[0] == ["named", "after", "of_user", "night", "beside_night", "fresh"]


def test_nights_are_judged_by_what_is_known_of_all_of_them(night):
    """Tasks of one user on two nights count together."""
    nights = [night(1, 26, 20), night(2, 26, 20)]
    users = {f"task-{number}-{place}": f"user-{place}" for number in (1, 2) for place in range(40)}
    alone = look(nights)["p_value"]
    found = confirm(GateConfig(), nights, level=0.01, before=0.0, planned=200, baseline_name="champion", together=users)
    assert found["p_value"] == pytest.approx(2**-6) and alone == pytest.approx(2**-12)
