"""Sequential evaluation: its levels beside a published table, its answers, and its error rates by simulation."""

import importlib.util
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from tracewheel.evaluation.sequential import SequentialDesign, in_parts, look_levels

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "sequential_evaluation.py"


@pytest.mark.parametrize(
    ("looks", "bounds"),
    [
        (1, [1.9600]),
        (2, [2.9626, 1.9686]),
        (4, [4.3326, 2.9631, 2.3590, 2.0141]),
        (5, [4.8769, 3.3569, 2.6803, 2.2898, 2.0310]),
    ],
)
def test_the_bounds_are_those_of_the_published_tables(looks, bounds):
    """Lan and DeMets's O'Brien-Fleming type function at a one-sided level of 0.025, as in Reboussin et al. (2000)."""
    levels = SequentialDesign.of(0.025, looks).levels
    assert [-NormalDist().inv_cdf(level) for level in levels] == pytest.approx(bounds, abs=2e-4)


def test_the_level_of_a_year_of_gates_is_spent_too_and_a_spent_budget_promotes_nothing():
    stream = np.random.default_rng(3)
    for level in (0.01, 0.001):
        levels = look_levels(level, (0.5, 1.0))
        walk = stream.standard_normal((400_000, 2)).cumsum(axis=1) / np.sqrt([1, 2])
        bounds = [-NormalDist().inv_cdf(value) for value in levels]
        assert (walk > bounds).any(axis=1).mean() == pytest.approx(level, rel=0.15)
    assert SequentialDesign.of(0.0, 3).levels == (0.0, 0.0, 0.0)
    assert SequentialDesign.of(0.0, 3).answer(np.ones(50), 2) == "not_better"
    with pytest.raises(ValueError, match="at least one look"):
        SequentialDesign.of(0.025, 0)


def test_a_clear_answer_ends_the_comparison_and_an_unclear_one_does_not():
    design, stream = SequentialDesign.of(0.025, 4), np.random.default_rng(0)
    unclear = stream.choice([-1.0, 0.0, 1.0], p=[0.08, 0.80, 0.12], size=50)
    assert design.answer(np.repeat([1.0, 0.0], [40, 10]), 0) == "better"
    assert design.answer(np.repeat([-1.0, 0.0, 1.0], [20, 25, 5]), 0) == "not_better"
    assert design.answer(unclear, 0) == "continue"
    assert design.answer(np.zeros(50), 0) == "continue", "nothing differs yet"
    assert design.answer(np.zeros(200), 3) == "not_better"
    assert design.answer(np.zeros(0), 0) == "continue", "nothing of the first part was scored"


def test_parts_are_a_fixed_random_order_of_the_tasks():
    names = [f"task-{number}" for number in range(23)]
    parts = in_parts(names, 4)
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert {len(part) for part in parts} == {5, 6}
    assert in_parts(reversed(names), 4) == parts
    assert [name for part in parts for name in part] != names


def test_errors_are_those_of_one_look_with_fewer_episodes():
    """The benchmark's simulation, shorter: 600 comparisons."""
    spec = importlib.util.spec_from_file_location("sequential_evaluation", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    none, large = (script.simulate(gain, level=0.025, looks=5, runs=600) for gain in (0.0, 0.3))
    assert none["promoted_sequential"] <= 0.025 + 3 * (0.025 * 0.975 / 600) ** 0.5
    assert none["episodes_played"] < 0.7
    assert large["promoted_sequential"] == large["promoted_fixed"] == 1.0
    assert large["episodes_played"] < 0.5
