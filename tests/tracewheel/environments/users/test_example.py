"""The example of a user simulator, as a profile's arguments name it."""

import random

from tracewheel.core.kinds import kind_text
from tracewheel.environments import Replier, make_environment
from tracewheel.environments.refund_desk.environment import ASK_NAME, ASK_ORDER
from tracewheel.environments.refund_desk.tasks import make_task


def test_the_forgetful_customer_has_to_be_asked_again():
    kind = kind_text("refund_desk", {"user": {"kind": "examples.user_simulator:ForgetfulUser", "args": {"every": 2}}})
    desk = make_environment(kind)
    assert isinstance(desk, Replier)
    task = make_task("refund", 2, random.Random(0))
    desk.reset(task)
    number = task.goal["order"]["id"]
    assert number in desk.reply(ASK_ORDER).text
    confused = desk.reply(ASK_NAME)
    assert confused.text == "Wait, what was the question?" and not confused.done and not confused.fault
    assert task.initial_state["user"]["customer"] in desk.reply(ASK_NAME).text
