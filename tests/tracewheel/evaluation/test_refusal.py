"""A refusal has one cause, and says what to do about it."""

import json

import numpy as np
import pandas as pd
import pytest

from tracewheel.config import GateConfig
from tracewheel.evaluation.error_budget import Look
from tracewheel.evaluation.gate import decide, held_to_fidelity
from tracewheel.evaluation.refusal import CAUSES
from tracewheel.evaluation.wording import in_words

ONE, NONE = [1.0] * 40, [0.0] * 40
HALF = [1.0, 0.0] * 20
BETTER = [1.0] * 24 + [0.0] * 16


def results(greedy, families=("pattern", "list")):
    rows = [(f"task-{i}", families[i % len(families)], value) for i, value in enumerate(greedy)]
    return pd.DataFrame(rows, columns=["task_id", "family", "greedy"])


def refused(new, old, *, families=("pattern", "list"), gates_per_year=52, **more):
    config = GateConfig(gates_per_year=gates_per_year)
    verdict = decide(config, results(new, families), results(old, families), baseline="warm start", **more)
    assert verdict.verdict == "refused"
    return verdict


# Cause: challenger, baseline, and more; a part of what is said, and of what to do.
CASES = {
    "no_budget": (ONE, NONE, {"look": Look(2, 1.0)}, "planned for 52", "gates_per_year"),
    "unscored": ([np.nan] * 30 + [1.0] * 10, HALF, {}, "30 episodes", "stop reasons"),
    "nothing_learnt": (HALF, HALF, {"trained": False}, "the challenger is the starting policy", "tracewheel doctor"),
    "never_succeeds": (NONE, NONE, {}, "solves none of 40 tasks, nor does warm start", "Episodes"),
    "harmed": (
        [0.0, *[1.0] * 4] * 8,
        [1.0, *[0.0] * 4] * 8,
        {"families": list("abcde")},
        "worse in family a",
        "tasks of that kind",
    ),
    "not_better": (HALF, HALF, {}, "the same tasks as warm start", "learning curve"),
    "too_few_tasks": (BETTER, HALF, {}, "+10.0 points on 40 tasks against warm start, which may be chance", "held_out_tasks"),
    "false_accepts": (ONE, BETTER, {"false_accepts": 0.9}, "graders that let failures pass", "tracewheel audit"),
}


@pytest.mark.parametrize("cause", CASES)
def test_a_refusal_names_its_cause_and_what_to_do(cause):
    new, old, more, says, advice = CASES[cause]
    verdict = refused(new, old, **more)
    assert verdict.cause == cause
    assert says in verdict.says and advice in verdict.advice
    record = json.loads(json.dumps(verdict.to_record()))
    said = in_words(record)
    assert verdict.says.lower() in said[0].lower() and said[-1] == f"To do: {verdict.advice}." and len(said) in (2, 4)


def test_every_cause_has_a_case():
    verdict = decide(GateConfig(), results(ONE), results(NONE))
    assert verdict.promoted and verdict.cause is None
    unfaithful = held_to_fidelity(GateConfig(), verdict, 0.5)
    unseen = refused([1.0] * 38 + [np.nan, np.nan], [0.0] * 40, families=["seen"] * 38 + ["lost"] * 2)
    assert {*CASES, unfaithful.cause, unseen.cause} == set(CAUSES) - {"waits"} - ({"other"} - {unseen.cause})


def test_fewer_tasks_than_the_gate_asks_for_is_too_few_tasks():
    assert refused([1.0] * 10, [0.0] * 10).cause == "too_few_tasks"


def test_a_loss_is_said_in_points():
    assert "-25.0 points on 20 tasks against warm start" in refused([0.0, 1.0, 0.0, 1.0] * 5, [1.0, 1.0, 0.0, 1.0] * 5).says


def test_a_gain_that_missing_episodes_hide_is_unscored():
    verdict = refused([1.0] * 12 + [np.nan] * 8 + [0.0] * 20, [0.0] * 12 + [1.0] * 8 + [0.0] * 20)
    assert verdict.cause == "unscored" and "but not certainly: 8 episodes" in verdict.says


def test_one_task_has_no_spread_of_its_own():
    config = GateConfig(min_pairs=1)
    verdict = decide(config, results([1.0]), results([0.0]))
    assert verdict.cause == "too_few_tasks"
