"""Methods over seeds: the mixed model against statsmodels, what is said of an interval, and the stored results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.chdir(ROOT)


def test_variances_and_the_error_on_new_tasks_are_those_of_a_mixed_model() -> None:
    """Against `mixedlm` of statsmodels 0.15 by REML, with the variance components `0 + C(seed)` and `0 + C(task)`."""
    from methods import difference_of, variances_of

    stream = np.random.default_rng(3)
    d = 5 + stream.normal(0, 4, (8, 1)) + stream.normal(0, 8, (1, 30)) + stream.normal(0, 15, (8, 30))
    published = {"seed": 45.339, "task": 62.432, "rest": 221.986}
    assert variances_of(d) == pytest.approx(published, rel=1e-3)
    found = difference_of(d / 100, np.zeros_like(d))
    assert found.mean == pytest.approx(5.281517, abs=1e-6) and found.on_new_tasks is not None
    half = (found.on_new_tasks[1] - found.on_new_tasks[0]) / 2
    assert half / 2.94506 == pytest.approx(
        2.2, abs=0.15
    )  # the standard error times a t-quantile with 10 degrees of freedom or so


@pytest.mark.parametrize(
    ("by_seed", "says"),
    [
        ([0.170, 0.161, 0.120], "+15.0 (+8.4 to +21.7)"),
        ([0.028, -0.026, -0.069], "not settled: -14.3 to +9.8; 23 seeds would see 3 points"),
        ([0.001, -0.002, 0.002, 0.000], "alike within 3 points: +0.0 (-0.2 to +0.3)"),
        ([-0.10, -0.11, -0.12], "-11.0 (-13.5 to -8.5)"),
    ],
)
def test_what_the_seeds_tell(by_seed: list[float], says: str) -> None:
    from methods import difference_of

    assert difference_of(by_seed, [0.0] * len(by_seed)).says == says


def test_seeds_needed_have_the_power_they_promise() -> None:
    from methods import seeds_needed
    from scipy import stats

    seeds = seeds_needed(3.0, 4.8)
    assert seeds is not None
    draws = np.random.default_rng(0).normal(3.0, 4.8, (20_000, seeds))
    seen = stats.ttest_1samp(draws, 0.0, axis=1).pvalue < 0.05
    assert 0.79 < seen.mean() < 0.83
    assert seeds_needed(0.01, 5.0) is None


def test_what_cannot_be_paired_is_refused() -> None:
    from methods import compared, difference_of

    with pytest.raises(ValueError, match="two seeds or more"):
        difference_of([0.5], [0.4])
    one = pd.DataFrame({"task_id": ["a"], "greedy": [1.0], "sampled_successes": [1], "sampled_attempts": [2]})
    with pytest.raises(ValueError, match="other tasks"):
        compared([one, one], [one, one.assign(task_id="b")])


def results(greedy: Sequence[float], tasks: str = "abcd") -> pd.DataFrame:
    """Of a seed on four tasks, with one sampled attempt that ended as the greedy one."""
    return pd.DataFrame({"task_id": [*tasks], "greedy": greedy, "sampled_successes": greedy, "sampled_attempts": [1] * 4})


def test_seeds_that_gain_alike_by_luck_are_as_unsure_as_their_episodes() -> None:
    """Both gain 25 points, on another task each: their means agree, so that Student's interval over two seeds has no width."""
    from methods import compared, difference_of
    from scipy import stats

    start = results([0, 0, 0, 1])
    by_luck = compared([results([1, 0, 0, 1]), results([0, 1, 0, 1])], [start, start])
    # rest[s, t] is +-50 on the two tasks that tip: a mean square of 4 * 50^2 / 3 with 3 degrees of freedom
    half = stats.t.isf(0.025, 3) * np.sqrt(4 * 50**2 / 3 / 4 / 2)
    assert by_luck.interval == pytest.approx((25 - half, 25 + half)) and by_luck.says.startswith("not settled: -")
    assert by_luck.seed_spread == pytest.approx(np.sqrt(4 * 50**2 / 3 / 4)) and (by_luck.needed[3.0] or 1001) > 100
    # Tasks of their own: the variance within a seed is 50^2, and so many tasks of luck remain even where the gains are alike.
    own = compared([results([1, 0, 0, 1]), results([0, 1, 0, 1], "efgh")], [start, results([0, 0, 0, 1], "efgh")])
    half = stats.t.isf(0.025, 6) * np.sqrt(50**2 / 4 / 2)
    assert own.interval == pytest.approx((25 - half, 25 + half)) and own.on_new_tasks is None and own.tasks == 4
    unknown = difference_of([0.6, 0.6], [0.5, 0.5])
    assert unknown.says == "not settled: +10.0 on every seed, outcomes by task are not known"


def test_a_method_that_left_the_policy_as_it_was_is_said_to_be_the_same() -> None:
    from methods import compared, method_table

    start = [results([0, 0, 1, 1]), results([0, 1, 1, 1])]
    same = compared(start, start)
    assert same.interval == (0.0, 0.0) and same.same
    assert "| few-shot | +0.0 | the same on every task | +0.0 to +0.0 | – | – | – |" in method_table({"few-shot": same})


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize(("tasks", "attempts"), [(10, 1), (100, 4)])
@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_the_interval_over_seeds_has_the_coverage_it_promises(seeds: int, tasks: int, attempts: int, spread: float) -> None:
    """On tasks of any difficulty: seeds whose policies are equally good, and seeds whose policies differ by 10 points or so."""
    from methods import difference_of

    stream, covered, runs = np.random.default_rng([seeds, tasks, int(10 * spread)]), 0, 1000
    base, gain = stream.uniform(0.25, 0.75, tasks), stream.normal(0.05, 0.05, tasks)
    for _ in range(runs):
        chances = [np.clip(each + stream.normal(0, spread, (seeds, 1)), 0, 1) for each in (base + gain, base)]
        ours, theirs = (0.5 * stream.binomial(1, p) + 0.5 * stream.binomial(attempts, p) / attempts for p in chances)
        low, high = difference_of(ours, theirs).interval
        covered += low <= 100 * gain.mean() <= high
    assert covered / runs >= 0.93


def test_readme_and_docs_say_what_the_stored_results_give() -> None:
    from methods import difference_of
    from smollm2 import stored
    from smollm2_report import over_seeds

    said = "".join(over_seeds(stored("seeds")))
    assert "GRPO minus rejection sampling | -2.2 | not settled: -14.2 to +9.7; 23 seeds would see 3 points" in said
    assert "GRPO minus warm start, verified logs | +15.0 | +15.0 (+8.4 to +21.7)" in said
    runs = [found["run"]["success"] for seed, found in json.loads(Path("benchmarks/results/learning.json").read_text()).items()
            if seed.isdigit()]  # fmt: skip
    demo = difference_of([run["rl"] for run in runs], [run["warm_start_verified"] for run in runs])
    assert demo.says == "+20.8 (+17.0 to +24.6)"
    readme, learner = Path("README.md").read_text(), Path("docs/learner.md").read_text()
    whole = json.loads(Path("benchmarks/results/smollm2_desk_of_42.json").read_text())["gate"]
    gain, low, high = (f"{100 * value:.1f}" for value in (whole["difference"], *whole["interval"]))
    assert "20.8 points" in readme and f"(+17.0 to +24.6 over seeds), and {gain} (+{low} to +{high}, one seed)" in readme
    assert f"at today's harder desk +{gain} on one seed" in learner
    assert "-14 to +10 points; 23 seeds would see 3" in learner and "+15.0 (+8.4 to +21.7)" in learner
    assert len(readme.split()) < 1000
