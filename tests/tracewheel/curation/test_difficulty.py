"""Difficulty: posteriors by hand, decay from run to run, tiers, the held-out tier."""

import math

import numpy as np
import pandas
import pytest

from tracewheel.config import SamplerConfig
from tracewheel.core.errors import DataError
from tracewheel.curation.difficulty import (
    KeptPassCounts,
    PassCounts,
    beta_below,
    check_held_out_tier,
    held_out_tier,
    pass_rate_ends,
    pass_rates,
    pass_tier,
)
from tracewheel.sampling.sampler import TaskSampler


def episodes(**outcomes):
    rows = [(task_id, success) for task_id, successes in outcomes.items() for success in successes]
    return pandas.DataFrame(rows, columns=["task_id", "success"]).assign(id=[f"trace{number}" for number in range(len(rows))])


def kept(counts, *pairs):
    return KeptPassCounts.of(PassCounts(counts), pandas.DataFrame(list(pairs), columns=["trace_id", "task_id"]))


def test_rates_by_hand_without_unscored_episodes():
    nan = float("nan")
    rates, after = pass_rates(episodes(a=[1.0, 0.0, 0.0, nan], b=[nan, nan], c=[1.0, 1.0]))
    rates = rates.set_index("task_id")
    assert rates.loc["a", ["attempts", "successes"]].tolist() == [3, 1]
    assert rates.loc["a", "pass_rate"] == pytest.approx(1 / 3)
    assert rates.loc["a", "posterior"] == pytest.approx(2 / 5)
    assert rates.loc["b", ["attempts", "successes"]].tolist() == [0, 0]
    assert math.isnan(rates.loc["b", "pass_rate"])
    assert rates.loc["b", ["posterior", "low", "high"]].tolist() == [0.5, 0.0, 1.0]
    assert beta_below(2.5, 0.5, rates.loc["c", "low"]) == pytest.approx(0.05) and rates.loc["c", "high"] == 1.0
    assert rates["pass_tier"].to_dict() == {"a": 4, "b": 3, "c": 2}
    assert after.counts == {"a": (1.0, 2.0), "c": (2.0, 0.0)}
    assert after.counted["trace_id"].tolist() == ["trace0", "trace1", "trace2", "trace6", "trace7"], "scored ones alone"


def test_earlier_counts_are_decayed_and_kept_for_tasks_not_seen_again():
    earlier = kept({"a": (4.0, 0.0), "gone": (0.0, 2.0), "faint": (0.01, 0.005)})
    rates, after = pass_rates(episodes(a=[0.0]), earlier)
    assert after.counts == {"a": (2.0, 1.0), "gone": (0.0, 1.0)}
    assert rates["task_id"].tolist() == ["a"]
    assert rates.loc[0, ["attempts", "pass_rate"]].tolist() == [1, pytest.approx(2 / 3)]
    assert PassCounts.from_json(after.counts.to_json()) == after.counts
    assert earlier.counts["a"] == (4.0, 0.0)


def test_a_trace_counts_once_for_a_task():
    """Worked by hand: 3 of 4 solved before, half of it kept; one of the two traces read now was counted before."""
    earlier = kept({"a": (3.0, 1.0)}, ("trace0", "a"), ("elsewhere", "a"))
    rates, after = pass_rates(episodes(a=[1.0, 0.0]), earlier)
    assert after.counts == {"a": (1.5, 1.5)}
    row = rates.iloc[0]
    assert row[["attempts", "successes", "pass_rate", "posterior"]].tolist() == [2, 1, 0.5, pytest.approx(2.5 / 5)]
    assert after.counted.to_numpy().tolist() == [["elsewhere", "a"], ["trace0", "a"], ["trace1", "a"]]
    rates, third = pass_rates(episodes(a=[1.0, 0.0]), after)
    assert third.counts == {"a": (0.75, 0.75)} and third.counted.equals(after.counted)
    _, renamed = pass_rates(episodes(b=[1.0]), earlier)
    assert renamed.counts == {"a": (1.5, 0.5), "b": (1.0, 0.0)}, "the same trace is another task now"


def test_an_outcome_counts_once_it_is_known():
    _, first = pass_rates(episodes(a=[float("nan"), 1.0]))
    _, second = pass_rates(episodes(a=[0.0, 1.0]), first)
    assert second.counts == {"a": (0.5, 1.0)}


def test_kept_counts_are_read_as_they_were_written(tmp_path):
    written = kept({"b": (0.5, 2.0), "a": (1.0, 0.0)}, ("t2", "b"), ("t1", "a"), ("t2", "b"))
    written.write(tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    read = KeptPassCounts.read(tmp_path)
    assert read.counts == written.counts and read.counted.to_numpy().tolist() == [["t1", "a"], ["t2", "b"]]
    read.write(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
    kept({}).write(tmp_path)
    assert pandas.read_parquet(tmp_path / "counted.parquet").columns.tolist() == ["trace_id", "task_id"]
    assert KeptPassCounts.read(tmp_path).counted.empty


def test_a_folder_without_counted_traces_has_counted_none(tmp_path):
    (tmp_path / "evidence.json").write_text('{"a": [2, 2]}')
    _, after = pass_rates(episodes(a=[1.0]), KeptPassCounts.read(tmp_path))
    assert after.counts == {"a": (2.0, 1.0)}


def test_invalid_kept_counts_are_an_error_that_names_the_file(tmp_path):
    with pytest.raises(DataError, match=r"evidence\.json: no such file"):
        KeptPassCounts.read(tmp_path)
    (tmp_path / "evidence.json").write_text("[1]")
    with pytest.raises(DataError, match=r"evidence\.json: a mapping of task ids"):
        KeptPassCounts.read(tmp_path)
    (tmp_path / "evidence.json").write_text("{}")
    pandas.DataFrame({"trace_id": ["t"]}).to_parquet(tmp_path / "counted.parquet")
    with pytest.raises(DataError, match=r"counted\.parquet: no column 'task_id'"):
        KeptPassCounts.read(tmp_path)
    (tmp_path / "counted.parquet").write_bytes(b"x")
    with pytest.raises(DataError, match=r"counted\.parquet: not a Parquet file"):
        KeptPassCounts.read(tmp_path)


def test_the_sampler_keeps_the_same_counts():
    sampler = TaskSampler(SamplerConfig(), ["a"], seed=0)
    sampler.observe("a", 3, 1)
    sampler.decay()
    _, after = pass_rates(episodes(a=[]), kept({"a": (3.0, 1.0)}))
    assert sampler.to_state()["evidence"] == after.counts.to_json()
    assert sampler.posterior("a") == after.counts.posterior("a")


def test_ends_by_hand():
    low, high = pass_rate_ends(3, 4)
    assert beta_below(3.5, 4.5, low) == pytest.approx(0.05) and beta_below(3.5, 4.5, high) == pytest.approx(0.95)
    assert pass_rate_ends(0, 0) == (0.0, 1.0)
    assert pass_rate_ends(0.5, 0) == (pytest.approx(1 - 0.95**2), 1.0)  # Beta(1, 1/2): below x with 1 - sqrt(1 - x)


@pytest.mark.parametrize("tries", [1, 3, 9])
def test_the_interval_holds_where_tasks_are_always_or_never_solved(tries):
    rates = np.random.default_rng(tries).beta(0.1, 0.1, 2000)
    solved = np.random.default_rng(tries + 1).binomial(tries, rates)
    ends = [pass_rate_ends(own, tries - own) for own in solved]
    assert np.mean([low <= rate <= high for rate, (low, high) in zip(rates, ends, strict=True)]) > 0.9


def test_tiers_rise_as_pass_rates_fall():
    assert [pass_tier(rate) for rate in (1.0, 0.81, 0.8, 0.6, 0.5, 0.3, 0.2, 0.0)] == [1, 1, 2, 3, 3, 4, 5, 5]


def test_the_harder_tasks_are_one_tier_above_the_hardest_trained():
    assert held_out_tier([1, 4, 2]) == 5
    tasks = pandas.DataFrame({"split": ["train", "train", "held_out", "harder"], "tier": [2, 4, 4, 5]})
    check_held_out_tier(tasks)
    check_held_out_tier(tasks[tasks["split"] != "harder"])
    with pytest.raises(DataError, match="harder_tier to 6"):
        check_held_out_tier(tasks.assign(tier=[2, 5, 4, 5]))
    with pytest.raises(DataError, match="of tier 5, and one above the hardest trained on would be 4"):
        check_held_out_tier(tasks.assign(tier=[2, 3, 4, 5]))
    check_held_out_tier(tasks.assign(tier=[1, 2, 2, 5]))  # an environment without tiers 3 and 4
    with pytest.raises(DataError, match="no training tasks"):
        held_out_tier([])
