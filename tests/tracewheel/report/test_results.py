"""From a run's files to the report's numbers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tracewheel.core.errors import DataError
from tracewheel.core.inference import mean_interval, wilson_interval
from tracewheel.report.results import results_of


def test_the_table_matches_the_files(run):
    finished = run()
    data = results_of(finished.curated, finished.evaluations, pass_at=(1, 4))
    assert [row.key for row in data.policies] == ["deployed", "base", "warm_start", "warm_start_verified", "rl"]
    greedy = {
        key: pd.read_parquet(paths[0] / "results.parquet").set_index("task_id") for key, paths in finished.evaluations.items()
    }
    row = data.policy("warm_start")
    solved = int(greedy["warm_start"]["greedy"].sum())
    assert (row.greedy.value, row.greedy.n) == (solved / 24, 24)
    assert (row.greedy.low, row.greedy.high) == wilson_interval(solved, 24)
    assert row.sampled.value == pytest.approx(greedy["warm_start"]["sampled_successes"].sum() / 96)
    assert row.pass_at[1].value == pytest.approx(row.sampled.value)
    assert row.pass_at[4].value == pytest.approx((greedy["warm_start"]["sampled_successes"] > 0).mean())
    new, old = (greedy[key].sort_index()["greedy"].to_numpy() for key in ("rl", "warm_start"))
    assert (row.gain.value, row.gain.low, row.gain.high) == pytest.approx(
        (np.mean(new - old), *mean_interval(new - old, new - old, 0.025))
    )
    assert data.policy("rl").gain is None
    assert row.harder.n == 12 and data.n_harder == 12 and data.n_held_out == 24


def test_the_gain_over_the_baseline_matches_the_gate(run):
    finished = run()
    row = results_of(finished.curated, finished.evaluations, pass_at=(1, 4)).policy("warm_start_verified")
    assert row.gain.value == pytest.approx(finished.summary["gate"]["greedy_difference"])


def test_unscored_logs_of_the_deployed_agent_are_left_out(run):
    finished = run()
    deployed = results_of(finished.curated, finished.evaluations, pass_at=(1, 4)).policy("deployed")
    logged = pd.read_parquet(finished.curated / "episodes.parquet")
    held_out = logged[logged["split"] == "held_out"].dropna()
    assert deployed.greedy.value == pytest.approx(held_out.groupby("task_id")["success"].mean().mean())
    assert deployed.sampled is None


def test_unscored_episodes_are_counted_and_not_in_the_rate(run):
    def respond(key, item):
        return replace(item, stop_reason="infrastructure_failed") if key == "rl" and item.id.endswith("0-0") else item

    finished = run(respond)
    row = results_of(finished.curated, finished.evaluations, pass_at=(1, 4)).policy("rl")
    greedy = pd.read_parquet(finished.evaluations["rl"][0] / "results.parquet")["greedy"]
    assert row.greedy.unscored == greedy.isna().sum() and row.greedy.n == greedy.notna().sum()


def test_groups_cover_tiers_and_families_of_both_splits(run):
    finished = run()
    groups = results_of(finished.curated, finished.evaluations, pass_at=(1, 4)).groups
    assert [group.name for group in groups["By tier"]] == ["Tier 2", "Tier 3", "Tier 4", "Tier 5"]
    assert [group.n for group in groups["By tier"]] == [8, 8, 8, 12]
    assert [group.name for group in groups["By family, held-out"]] == ["content", "list", "pattern", "prefix"]
    assert all(set(group.rates) == {"deployed", *finished.evaluations} for group in groups["By tier"])


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
    ],
)
def test_invalid_files_are_data_errors(run, spoil, said):
    finished = run()
    spoil(finished)
    with pytest.raises(DataError, match=said):
        results_of(finished.curated, finished.evaluations, pass_at=(1, 4))


def _rewrite(path, change):
    change(pd.read_parquet(path)).to_parquet(path)
