"""What a rubric may ask of judges beside verifiers that decide by facts."""

import pytest
from pydantic import ValidationError

from tracewheel.config import RubricConfig

TASK = {"kind": "task"}


def judge(**more):
    return {"kind": "judge", **more}


@pytest.mark.parametrize(
    ("mode", "verifiers"),
    [
        ("weighted", [judge(), judge(weight=3.0)]),
        ("weighted", [TASK, judge()]),
        ("weighted", [{**TASK, "only": ["code"]}, judge(only=["essays"], weight=9.0)]),
        ("outcome_first", [TASK, judge(role="shaping")]),
        ("outcome_first", [judge(), {"kind": "length", "role": "shaping", "weight": 0.5}]),
    ],
)
def test_a_judge_may_decide_alone_and_shape_beside_facts(mode, verifiers):
    assert RubricConfig.model_validate({"mode": mode, "verifiers": verifiers})


@pytest.mark.parametrize(
    ("mode", "verifiers", "says"),
    [
        ("weighted", [judge(), TASK], "a judge comes first and would decide success: put 'task' first"),
        ("weighted", [TASK, judge(weight=1.5)], "judges weigh 1.5, and 'task', which decides success, 1"),
        ("weighted", [TASK, judge(weight=0.6), {"kind": "relative_judge", "weight": 0.6}], "judges weigh 1.2"),
        ("weighted", [TASK, judge(weight=9.0, only=["code"])], "for 'code' judges weigh 9"),
        ("outcome_first", [TASK, judge()], "set its role to 'shaping'"),
        ("outcome_first", [judge(), {**TASK, "role": "shaping"}], "set its role to 'shaping'"),
        ("outcome_first", [{"kind": "state_diff"}, {"kind": "relative_judge"}], "set its role to 'shaping'"),
    ],
)
def test_a_judge_overrides_no_verifier_of_facts(mode, verifiers, says):
    with pytest.raises(ValidationError, match=says):
        RubricConfig.model_validate({"mode": mode, "verifiers": verifiers})
