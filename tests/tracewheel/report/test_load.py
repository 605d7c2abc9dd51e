"""From a run's files to the report's numbers."""

from dataclasses import replace

import pandas as pd
import pytest

from tracewheel.config import AimsConfig
from tracewheel.core.errors import DataError
from tracewheel.core.statistics import paired_difference, wilson_interval
from tracewheel.report import load_report_data
from tracewheel.report.examples import change_of, choose_examples
from tracewheel.report.report_data import Episode


def test_the_table_matches_the_files(run):
    finished = run()
    data = load_report_data(finished.results)
    assert [row.key for row in data.policies] == ["deployed", "base", "warm_start", "warm_start_verified", "rl"]
    greedy = {
        key: pd.read_parquet(paths[0] / "results.parquet").set_index("task_id") for key, paths in finished.evaluations.items()
    }
    row = data.policy("warm_start")
    solved = int(greedy["warm_start"]["greedy"].sum())
    assert (row.greedy.value, row.greedy.n) == (solved / 24, 24)
    assert (row.greedy.low, row.greedy.high) == wilson_interval(solved, 24)
    assert row.sampled.value == pytest.approx(greedy["warm_start"]["sampled_successes"].sum() / 96)
    assert row.pass_at[1] == pytest.approx(row.sampled.value)
    assert row.pass_at[4] == pytest.approx((greedy["warm_start"]["sampled_successes"] > 0).mean())
    new, old = (greedy[key].sort_index()["greedy"].to_numpy() for key in ("rl", "warm_start"))
    difference, interval = paired_difference(new, old, seed=0)
    assert (row.gain.value, row.gain.low, row.gain.high) == (difference, *interval)
    assert data.policy("rl").gain is None
    assert row.harder.n == 12 and data.n_harder == 12 and data.n_held_out == 24


def test_the_gain_over_the_baseline_matches_the_gate(run):
    finished = run()
    row = load_report_data(finished.results).policy("warm_start_verified")
    assert row.gain.value == pytest.approx(finished.summary["gate"]["greedy_difference"])


def test_unscored_logs_of_the_deployed_agent_are_left_out(run):
    finished = run()
    deployed = load_report_data(finished.results).policy("deployed")
    logged = pd.read_parquet(finished.curated / "episodes.parquet")
    held_out = logged[logged["split"] == "held_out"].dropna()
    assert deployed.greedy.value == pytest.approx(held_out.groupby("task_id")["success"].mean().mean())
    assert deployed.sampled is None


def test_unscored_episodes_are_counted_and_not_in_the_rate(run):
    def respond(key, item):
        return replace(item, stop_reason="infrastructure_failed") if key == "rl" and item.id.endswith("0-0") else item

    finished = run(respond)
    row = load_report_data(finished.results).policy("rl")
    greedy = pd.read_parquet(finished.evaluations["rl"][0] / "results.parquet")["greedy"]
    assert row.greedy.unscored == greedy.isna().sum() and row.greedy.n == greedy.notna().sum()


def test_groups_cover_tiers_and_families_of_both_splits(run):
    finished = run()
    groups = load_report_data(finished.results).groups
    assert [group.name for group in groups["By tier"]] == ["Tier 2", "Tier 3", "Tier 4", "Tier 5"]
    assert [group.n for group in groups["By tier"]] == [8, 8, 8, 12]
    assert [group.name for group in groups["By family, held-out"]] == ["content", "list", "pattern", "prefix"]
    assert all(set(group.rates) == {"deployed", *finished.evaluations} for group in groups["By tier"])


def test_only_measured_curves_are_drawn(run):
    finished = run()
    curves = {curve.title: curve for curve in load_report_data(finished.results).curves}
    assert set(curves["Validation success"].series) == {"greedy", "sampled"}
    assert curves["Validation success"].marked == 8
    assert set(curves["Harder tier over iterations"].series) == {"harder greedy"}
    assert dict(curves["KL"].series["KL"])[4] is None, "a gap, not a zero"
    assert "Turns" not in curves and "Clipped share" not in curves


def test_the_aim_for_the_harder_tier_comes_from_the_profile(run):
    finished = run()
    aiming = finished.results.config.model_copy(update={"aims": AimsConfig(harder=0.99)})
    data = load_report_data(replace(finished.results, config=aiming))
    assert not data.aims[0].met and data.aims[0].reached == data.policy("rl").harder
    assert load_report_data(finished.results).aims == [], "the profile sets no aim"


@pytest.mark.parametrize(
    "spoil, said",
    [
        (lambda f: (f.curated / "tasks.parquet").unlink(), "no such file"),
        (lambda f: (f.evaluations["rl"][0] / "results.parquet").unlink(), "no such file"),
        (lambda f: _rewrite(f.curated / "tasks.parquet", lambda t: t.drop(columns="split")), "no column split"),
        (lambda f: _rewrite(f.curated / "tasks.parquet", lambda t: t.iloc[1:]), "tasks were not curated"),
        (
            lambda f: _rewrite(f.evaluations["rl"][0] / "results.parquet", lambda t: t.drop(columns="greedy")),
            "no column greedy",
        ),
        (lambda f: _rewrite(f.evaluations["rl"][1] / "greedy" / "scores.parquet", lambda t: t.iloc[1:]), "no score of"),
    ],
)
def test_invalid_files_are_data_errors(run, spoil, said):
    finished = run()
    spoil(finished)
    with pytest.raises(DataError, match=said):
        load_report_data(finished.results)


def _rewrite(path, change):
    change(pd.read_parquet(path)).to_parquet(path)


def scored(success):
    return Episode([], "finished", "scored", success, {"success": success}, {})


UNSCORED = Episode([], "infrastructure_failed", "infrastructure_failed", None, {}, {})


def test_changes_between_two_policies():
    assert change_of(scored(0.0), scored(1.0)) == "gained"
    assert change_of(scored(1.0), scored(0.0)) == "lost"
    assert change_of(scored(1.0), scored(1.0)) == "solved"
    assert change_of(scored(0.0), scored(0.0)) == "failed"
    assert change_of(scored(1.0), UNSCORED) == change_of(UNSCORED, UNSCORED) == "unscored"


def test_examples_include_rare_losses():
    ids = [f"task-{i}" for i in range(40)]
    columns = {"split": "held_out", "family": "list", "tier": 2, "prompt": "p", "initial_state": "{}"}
    tasks = pd.DataFrame([{"task_id": task_id, **columns} for task_id in ids])
    before = {task_id: scored(float(i == 0)) for i, task_id in enumerate(ids)}
    after = {task_id: scored(float(0 < i < 35)) for i, task_id in enumerate(ids)}
    del after["task-39"]
    chosen = choose_examples(tasks, {"warm_start": before, "rl": after}, "warm_start", "rl", limit=10)
    outcomes = [item.outcome for item in chosen]
    assert len(chosen) == 10 and outcomes.count("lost") == 1 and outcomes.count("failed") == 4
    assert choose_examples(tasks, {"rl": after}, "warm_start", "rl", limit=10) == []
    pinned = ids[20:29]
    chosen = choose_examples(tasks, {"warm_start": before, "rl": after}, "warm_start", "rl", limit=10, pinned=pinned)
    assert {item.task_id for item in chosen} >= set(pinned) and len(chosen) == 10
