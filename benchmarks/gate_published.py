"""The gate's statistics beside published implementations: SciPy, statsmodels, online-fdr and gsdesign.

statsmodels, online-fdr and gsdesign are no dependencies, so this runs in an environment of its own, from the root:

    python -m venv /tmp/published
    /tmp/published/bin/pip install numpy scipy pandas statsmodels online-fdr gsdesign pydantic pyyaml filelock pyarrow
    PYTHONPATH=. /tmp/published/bin/python benchmarks/gate_published.py --out benchmarks/results/gate_published.json
"""

from __future__ import annotations

import argparse
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import statsmodels.api as sm
from gsdesign import h1, hupdate
from online_fdr.core.abstract.abstract_spend_func import AbstractSpendFunc
from online_fdr.p_values.spending.alpha_spending import AlphaSpending
from online_fdr.p_values.spending.online_fallback import OnlineFallback
from scipy.optimize import brentq
from scipy.stats import norm, permutation_test
from statsmodels.emplike.descriptive import DescStat
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.meta_analysis import combine_effects
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import normal_sample_size_one_tail

from tracewheel.config import GateConfig
from tracewheel.core.inference import component_sums, holm, likelihood_root, mean_interval, precision, sign_flip_p
from tracewheel.evaluation.candidate import spent
from tracewheel.evaluation.error_budget import Look, budget, level_of
from tracewheel.evaluation.family_harm import family_estimates
from tracewheel.evaluation.power import tasks_needed

SEED, CASES = 13, 40
CONFIG = GateConfig()


def differences(stream: np.random.Generator, tasks: int, gain: float) -> np.ndarray:
    """Differences of half a greedy and half a sampled success of four, as an evaluation gives them."""
    chance = stream.random(tasks) * 0.8
    new = stream.binomial(1, chance + gain) * 0.5 + stream.binomial(4, chance + gain) / 8
    return new - stream.binomial(1, chance) * 0.5 - stream.binomial(4, chance) / 8


def randomisation(stream: np.random.Generator) -> dict[str, Any]:
    """All sign flips of 12 tasks are tried by SciPy; ours computes the distribution."""
    worst = 0.0
    for _ in range(CASES):
        values = differences(stream, 12, 0.2)
        result = permutation_test(
            (values, np.zeros(12)),
            lambda x, y, axis: np.sum(x - y, axis=axis),
            permutation_type="samples",
            alternative="greater",
            n_resamples=np.inf,
            vectorized=True,
        )
        worst = max(worst, abs(float(result.pvalue) - sign_flip_p(values)))
    return {"published": "scipy.stats.permutation_test, all 4,096 sign flips", "cases": CASES, "largest_difference": worst}


def clustered(stream: np.random.Generator) -> dict[str, Any]:
    """Components of four tasks: flips of their sums by SciPy, and the standard error of OLS with cov_type="cluster".

    With one regressor and equal components statsmodels' small-sample factor G / (G - 1) makes its variance CR2. Where the
    design effect is below 1, ours is that of independent tasks; those cases are left out.
    """
    p_values = errors = 0.0
    cases = 0
    labels = np.repeat(np.arange(12), 4)
    for _ in range(CASES):
        values = differences(stream, 48, 0.1) + (1.6 * stream.standard_normal(12)[labels]).round() / 8
        result = permutation_test(
            (component_sums(values, labels), np.zeros(12)),
            lambda x, y, axis: np.sum(x - y, axis=axis),
            permutation_type="samples",
            alternative="greater",
            n_resamples=np.inf,
            vectorized=True,
        )
        p_values = max(p_values, abs(float(result.pvalue) - sign_flip_p(values, labels)))
        fitted = sm.OLS(values, np.ones(48)).fit(cov_type="cluster", cov_kwds={"groups": labels})
        known = precision(values, labels)
        if known.design > 1.0:
            cases += 1
            errors = max(errors, abs(known.error / float(fitted.bse[0]) - 1.0))
    return {
        "published": "scipy.stats.permutation_test of sums; statsmodels OLS(cov_type='cluster')",
        "cases": CASES,
        "largest_difference_of_p": p_values,
        "cases_with_a_design_effect": cases,
        "largest_relative_difference_of_errors": errors,
    }


def exact_mcnemar(stream: np.random.Generator) -> dict[str, Any]:
    """With greedy episodes alone the test is McNemar's, one-sided: half of the two-sided p-value."""
    worst = 0.0
    for _ in range(CASES):
        lost, more = int(stream.integers(0, 20)), int(stream.integers(1, 20))
        gained = lost + more
        values = np.array([1.0] * gained + [-1.0] * lost + [0.0] * 50)
        published = float(mcnemar([[50, lost], [gained, 0]], exact=True).pvalue) / 2
        worst = max(worst, abs(published - sign_flip_p(values)) / published)
    return {"published": "statsmodels mcnemar(exact=True) / 2", "cases": CASES, "largest_relative_difference": worst}


def likelihood(stream: np.random.Generator) -> dict[str, Any]:
    worst, ends = 0.0, 0.0
    for _ in range(CASES):
        values = differences(stream, 200, 0.05)
        published = float(DescStat(values).test_mean(0.0, result_object=False)[0])
        worst = max(worst, abs(published - likelihood_root(values, 0.0) ** 2) / max(published, 1e-6))
        low, high = DescStat(values).ci_mean(sig=0.05)
        ours = mean_interval(values, values, 0.025)
        ends = max(ends, abs(ours.low - low), abs(ours.high - high))
    return {
        "published": "statsmodels DescStat.test_mean and ci_mean (95%)",
        "cases": CASES,
        "largest_relative_difference": worst,
        "largest_difference_of_ends": ends,
    }


def holm_steps(stream: np.random.Generator) -> dict[str, Any]:
    different = 0
    for _ in range(CASES):
        p_values = np.sort(stream.random(20)) ** 4
        stream.shuffle(p_values)
        published = multipletests(p_values, alpha=0.05, method="holm")[0].tolist()
        different += published != holm(p_values.tolist(), 0.05)
    return {"published": "statsmodels multipletests(method='holm')", "cases": CASES, "different_decisions": different}


def shrinkage(stream: np.random.Generator) -> dict[str, Any]:
    """The variance between families of statsmodels' DerSimonian-Laird gives the same shrunken means."""
    worst = 0.0
    for _ in range(CASES):
        names = np.array([f"family {number % 8}" for number in range(160)], dtype=object)
        values = differences(stream, 160, 0.05) + 0.1 * (names == "family 0")
        groups = [values[names == name] for name in sorted(set(names))]
        means, sizes = np.array([group.mean() for group in groups]), np.array([len(group) for group in groups])
        within = sum(((group - group.mean()) ** 2).sum() for group in groups) / (len(values) - len(groups))
        published = combine_effects(means, within / sizes, method_re="chi2")
        between = max(0.0, float(published.tau2))
        weights = 1.0 / (between + within / sizes)
        common = float((weights * means).sum() / weights.sum())
        expected = common + between * weights * (means - common)
        ours = family_estimates(values, names, 0.95)
        worst = max(worst, float(np.abs(expected - [ours[name].shrunken for name in sorted(ours)]).max()))
    return {"published": "statsmodels combine_effects(method_re='chi2')", "cases": CASES, "largest_difference": worst}


def power() -> dict[str, Any]:
    rows = []
    for gain, spread, level in ((0.05, 0.3, 0.025), (0.05, 0.3, 5e-5), (0.1, 0.28, 5e-5), (0.1, 0.4, 0.003)):
        published = float(normal_sample_size_one_tail(gain, 0.8, level, std_null=spread))
        rows.append(
            {"gain": gain, "spread": spread, "level": level, "published": published, "ours": tasks_needed(gain, spread, level)}
        )
    return {"published": "statsmodels normal_sample_size_one_tail", "rows": rows}


class GateSpending(AbstractSpendFunc):
    """The gate's levels as a spending function of online-fdr."""

    def __init__(self) -> None:
        super().__init__(k=None)
        self.levels: list[float] = []

    def spend(self, index: int, alpha: float) -> float:
        while len(self.levels) <= index:
            self.levels.append(level_of(CONFIG, Look(len(self.levels) + 1, sum(self.levels[-364:]))))
        return self.levels[index]


def spending(stream: np.random.Generator, years: int = 2000) -> dict[str, Any]:
    """The same null and non-null p-values through online-fdr's procedures for the familywise error, and through our levels.

    `false`: share of null years with a rejection. `found`: share of true gains found within two nights, z-value 5 each, begun
    on the night named.
    """
    alpha = budget(CONFIG)
    levels = [level_of(CONFIG, Look(number, 0.0)) for number in range(1, 366)]
    published_levels, different = AlphaSpending(alpha, GateSpending()), 0
    p_values = stream.random(365) ** 6
    for number, p_value in enumerate(p_values):
        ours = p_value <= level_of(CONFIG, Look(number + 1, sum(levels[max(0, number - 364) : number])))
        different += published_levels.test_one(float(p_value)) != ours
    fallback = OnlineFallback(alpha)
    fallback_levels = []
    for _ in range(365):
        fallback.test_one(1.0)
        fallback_levels.append(float(fallback.last_test_level or 0.0))
    uniform = [alpha / 365] * 365
    null = stream.random((years, 365))
    rows = {}
    for name, used in (("gate", levels), ("online-fdr Bonferroni", uniform), ("online-fdr OnlineFallback", fallback_levels)):
        found = {}
        for night in (1, 100, 300):
            gains = norm.sf(stream.normal(4.5, 1.0, (20_000, 2)))
            found[str(night)] = float((gains <= np.array(used[night - 1 : night + 1])).any(axis=1).mean())
        rows[name] = {"sum_of_levels": sum(used), "false": float((null <= np.array(used)).any(axis=1).mean()), "found": found}
    return {
        "published": "online-fdr AlphaSpending with our levels: different decisions",
        "different": different,
        "years": years,
    } | rows


def exits(bounds: list[float], shares: list[float]) -> list[float]:
    """The probability that a Brownian motion without drift first crosses each bound, by gsdesign's recursion."""
    found, grid = [], None
    for place, (bound, share) in enumerate(zip(bounds, shares, strict=True)):
        if grid is None:
            found.append(float(norm.sf(bound)))
            grid = h1(info=share, b=bound)
            continue
        before = shares[place - 1]
        found.append(float(hupdate(18, 0.0, share, bound, np.inf, 0.0, before, grid)[2].sum()))
        grid = hupdate(18, 0.0, share, -np.inf, bound, 0.0, before, grid)
    return found


def excess(bound: float, before: list[float], shares: list[float], increment: float) -> float:
    """How much more than its increment a look spends with this bound."""
    return exits([*before, bound], shares)[-1] - increment


def confirmation() -> dict[str, Any]:
    """The spending of a candidate's confirmation.

    With `spent` and the exact recursion, the bounds of five equal looks at one-sided 2.5% are those published for the spending
    function of O'Brien and Fleming's type (ldBounds of the R package ldbounds, after Lan and DeMets' program). Ours give each
    look its increment as a level of its own, which needs no joint distribution, and so crosses with less than the whole level.
    """
    shares, published = [0.2, 0.4, 0.6, 0.8, 1.0], [4.8769, 3.3569, 2.6803, 2.2898, 2.0310]
    rows = []
    for level in (0.025, 0.0025, 0.0005):
        increments = np.diff([0.0, *(spent(level, share) for share in shares)])
        exact: list[float] = []
        for place, increment in enumerate(increments):
            exact.append(brentq(excess, 0.5, 9.0, args=(exact, shares[: place + 1], increment), xtol=1e-9))
        ours = [float(norm.isf(increment)) for increment in increments]
        rows.append({"level": level, "exact": exact, "ours": ours, "crosses": sum(exits(ours, shares))})
    worst = max(abs(one - other) for one, other in zip(rows[0]["exact"], published, strict=True))
    return {"published": "gsdesign h1 and hupdate; ldbounds", "largest_difference": worst, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    stream = np.random.default_rng(SEED)
    found = {
        "seed": SEED,
        "versions": {name: version(name) for name in ("numpy", "scipy", "statsmodels", "online-fdr", "gsdesign")},
        "randomisation": randomisation(stream),
        "mcnemar": exact_mcnemar(stream),
        "clustered": clustered(np.random.default_rng(SEED)),
        "likelihood": likelihood(stream),
        "holm": holm_steps(stream),
        "shrinkage": shrinkage(stream),
        "power": power(),
        "spending": spending(stream),
        "confirmation": confirmation(),
    }
    text = json.dumps(found, indent=2, default=float) + "\n"
    if options.out:
        options.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
