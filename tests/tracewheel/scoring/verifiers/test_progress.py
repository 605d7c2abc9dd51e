"""Partial credit: what an unfinished episode is worth, and what it is not."""

import pytest

from tracewheel.config import RubricConfig
from tracewheel.core.types import Task, Trajectory
from tracewheel.environments.order_desk.tasks import order_desk_task
from tracewheel.scoring.rubric import Rubric
from tracewheel.scoring.verifiers import make_verifier
from tracewheel.scoring.verifiers.base import ProgressVerifier

ORDERS = [
    {"id": "K7", "customer": "Mia Kent", "item": "kettle", "amount": 24, "status": "open"},
    {"id": "C4", "customer": "Mia Kent", "item": "chair", "amount": 12, "status": "open"},
    {"id": "Q9", "customer": "Tom Cole", "item": "desk", "amount": 90, "status": "open"},
]
TASK = order_desk_task("Cancel all open orders.", {"orders": ORDERS}, {"family": "open", "customer": "Mia Kent"})
RUBRIC = RubricConfig.model_validate(
    {
        "verifiers": [{"kind": "task"}, {"kind": "progress"}],
        "objectives": [{"kind": "part", "name": "progress", "part": "progress"}],
    }
)


def after(*cancelled):
    return {"orders": [{**order, "status": "cancelled"} if order["id"] in cancelled else order for order in ORDERS]}


@pytest.mark.parametrize(
    ("cancelled", "progress"), [((), 0.0), (("K7",), 0.5), (("K7", "C4"), 1.0), (("K7", "Q9"), 0.0), (("K7", "C4", "Q9"), 0.0)]
)
def test_the_reward_is_the_progress_and_the_task_s_verifier_decides_success(cancelled, progress):
    verifier = ProgressVerifier({"order_desk": make_verifier("order_desk")})
    assert verifier.verify(TASK, after(*cancelled)) == (progress, {})
    turns = [{"start": 0, "end": 1, "calls": 1, "malformed": 0, "policy_version": 0}]
    played = Trajectory("t", TASK.id, "g", 0, 0, 0, 1.0, [1], [1], [-0.1], turns, after(*cancelled), [], "finished")
    score = Rubric(RUBRIC, [TASK]).score(TASK, played)
    assert (score.total, score.breakdown["success"]) == (progress, float(progress == 1.0))


def test_a_verifier_without_progress_gives_none():
    task = Task("t", "refund_desk", "refund", 1, "x", {}, {}, "refund_desk", "t")
    with pytest.raises(TypeError, match="'?refund_desk'? measures no progress"):
        ProgressVerifier({"refund_desk": make_verifier("refund_desk")}).verify(task, {})


def test_it_takes_no_arguments():
    with pytest.raises(ValueError, match="verifier 'progress' takes no args"):
        RubricConfig.model_validate({"verifiers": [{"kind": "task"}, {"kind": "progress", "args": {"of": "order_desk"}}]})
