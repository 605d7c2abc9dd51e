"""The refund desk: known solutions, near misses that score 0, tools, and a customer who tells only what it is asked."""

import json
import random
import re

import pytest

from tracewheel.core.errors import DataError
from tracewheel.curation.probes import probe_task
from tracewheel.environments import TEXT_TURN, Replier, make_environment
from tracewheel.environments.base import play_calls
from tracewheel.environments.refund_desk import talk
from tracewheel.environments.refund_desk.environment import (
    ASK_NAME,
    ASK_ORDER,
    ASK_USED,
    RefundDeskEnvironment,
    deed,
    order_of,
    say,
    solution,
)
from tracewheel.environments.refund_desk.policy import REFUSED
from tracewheel.environments.refund_desk.tasks import FAMILIES, TIERS, make_task, refund_desk_task
from tracewheel.scoring.verifiers import make_verifier

TASKS = 200
ORDERS = [
    {"id": "K7", "customer": "Ann", "item": "kettle", "days": 12, "paid": "gift", "status": "delivered"},
    {"id": "B3", "customer": "Ann", "item": "lamp", "days": 61, "paid": "card", "status": "open"},
    {"id": "C9", "customer": "Ben", "item": "chair", "days": 3, "paid": "card", "status": "delivered"},
]
USER = {
    "customer": "Ann", "wish": "refund", "item": "kettle", "number": "asked", "used": False, "instead": None, "change": None,
    "style": 0,
}  # fmt: skip
STATE = {"orders": ORDERS, "user": USER}


def a_task(**user):
    return refund_desk_task("I want my money back for the kettle.", {"orders": ORDERS, "user": USER | user})


@pytest.fixture
def desk():
    environment = RefundDeskEnvironment()
    environment.reset(a_task())
    return environment


def tasks(tier, count=TASKS):
    rng = random.Random(f"tests-{tier}")
    return [make_task(FAMILIES[n % len(FAMILIES)], tier, rng) for n in range(count)]


def score(task, calls):
    environment = RefundDeskEnvironment()
    play_calls(environment, task, calls)
    return make_verifier("refund_desk").verify(task, environment.snapshot())[0]


@pytest.mark.parametrize("tier", TIERS)
def test_the_known_solution_solves_every_task_and_nothing_else_does(tier):
    made = tasks(tier)
    refused = 0
    for number, task in enumerate(made):
        assert (task.family, task.tier) == (FAMILIES[number % len(FAMILIES)], tier)
        right, number_of = solution(task), order_of(task)["id"]
        other = next(order["id"] for order in task.initial_state["orders"] if order["id"] != number_of)
        assert score(task, right) == 1.0
        assert score(task, []) == 0.0
        assert score(task, right[:-1]) == 0.0, "a ticket that stays open"
        assert score(task, [("cancel", {"order": other}), *right]) == 0.0, "one change too many"
        moved = [(name, args | {"order": other} if "order" in args else args) for name, args in right]
        if task.goal["outcome"] == REFUSED:
            refused += 1
            assert score(task, [deed(task), right[-1]]) == 0.0, "done, though the policy forbids it"
            assert score(task, [*right[:-1], ("close", {"outcome": "refunded"})]) == 0.0, "refused, but told otherwise"
        else:
            assert score(task, moved) == 0.0, "another order"
            assert score(task, [("close", {"outcome": REFUSED})]) == 0.0, "refused, though the policy allows it"
            assert score(task, [right[-1]]) == 0.0, "told, but not done"
    assert 0.2 < refused / TASKS < 0.45, "to refuse everything is right about a third of the time"


def test_a_gift_card_is_paid_back_as_a_voucher():
    task = a_task()
    assert task.family == "gift"
    right = solution(task)
    assert right[-2] == ("refund", {"order": "K7", "to": "voucher"})
    assert score(task, right) == 1.0
    assert score(task, [*right[:-2], ("refund", {"order": "K7", "to": "card"}), right[-1]]) == 0.0


def test_tools(desk):
    assert desk.step("orders", {"customer": "Ann"}).text == "K7 kettle\nB3 lamp"
    assert desk.step("find_order", {"order": "K7"}).text == "kettle, 12 days, gift, delivered"
    assert desk.step("refund", {"order": "K7", "to": "voucher"}).text == "ok"
    assert desk.step("exchange", {"order": "C9", "item": "radio"}).text == "ok"
    assert desk.step("cancel", {"order": "B3"}).text == "ok"
    assert desk.step("close", {"outcome": "refunded"}).done
    refunded, cancelled, exchanged = desk.snapshot()["orders"]
    assert refunded == ORDERS[0] | {"status": "refunded", "refunded_to": "voucher"}
    assert cancelled == ORDERS[1] | {"status": "cancelled"}
    assert exchanged == ORDERS[2] | {"status": "exchanged", "exchanged_for": "radio"}
    assert desk.snapshot()["ticket"] == "refunded"


@pytest.mark.parametrize(
    ("tool", "args", "says"),
    [
        ("find", {}, "no tool named find"),
        ("orders", {}, "arguments must be customer"),
        ("find_order", {"order": 7}, "arguments must be order, each a text"),
        ("orders", {"customer": "Nobody"}, "no orders of Nobody"),
        ("cancel", {"order": "Z9"}, "no order Z9"),
        ("refund", {"order": "K7", "to": "cash"}, "to must be one of card, voucher"),
        ("exchange", {"order": "K7", "item": "moon"}, "no item moon"),
        ("close", {"outcome": "done"}, "outcome must be one of"),
    ],
)
def test_a_call_that_fails_changes_nothing(desk, tool, args, says):
    before = desk.snapshot()
    observation = desk.step(tool, args)
    assert observation.error and says in observation.text and not observation.done
    assert desk.snapshot() == before


def test_an_order_is_changed_once(desk):
    desk.step("cancel", {"order": "B3"})
    assert desk.step("refund", {"order": "B3", "to": "card"}).text == "error: B3 is cancelled"


def test_the_customer_says_what_it_is_asked_and_no_more(desk):
    assert isinstance(desk, Replier) and desk.repeatable
    assert "K7" in desk.reply("Certainly. Could you tell me your order number?").text
    assert desk.reply(ASK_NAME).text in ("Ann.", "I am Ann.")
    assert desk.reply("Has it been used or opened?").text in talk.UNUSED
    nudge = desk.reply("I am looking into it.")
    assert not nudge.done and not re.search("K7|Ann|used", nudge.text)
    assert desk.reply("I am still looking into it.").done, "it loses patience"


def test_the_customer_does_not_answer_the_same_question_for_ever(desk):
    assert [desk.reply(ASK_ORDER).done for _ in range(3)] == [False, False, True]


def test_what_was_not_asked_for_is_nowhere_in_the_context():
    """The brief is in the task; the agent sees it only in the customer's answers."""
    for task in tasks(2, 40):
        environment = RefundDeskEnvironment()
        messages = play_calls(
            environment, task, [("find_order", {"order": task.initial_state["orders"][0]["id"]}), say(ASK_ORDER)]
        )
        seen = json.dumps([messages, environment.tools(), environment.snapshot()])
        brief = talk.brief_of(task.initial_state, task.prompt)
        assert brief.instruction not in seen and "instruction" not in seen
        said = " ".join(message["content"] for message in messages if message["role"] == "user")
        assert not any(saying in said for saying in (*talk.USED, *talk.UNUSED))
        assert '"user":' not in seen.replace('"role": "user"', "")


def test_a_change_of_mind_counts():
    task = a_task(change={"wish": "exchange", "instead": "radio"})
    assert task.tier == max(TIERS)
    environment = RefundDeskEnvironment()
    environment.reset(task)
    assert "radio" in environment.reply(ASK_ORDER).text
    assert task.goal["outcome"] == "exchanged" and task.goal["order"]["exchanged_for"] == "radio"
    late = a_task(item="lamp", wish="cancel", change={"item": "kettle"})
    assert late.goal == {"outcome": REFUSED, "action": "cancel", "order": ORDERS[0]}


def test_a_lost_number_is_never_said():
    environment = RefundDeskEnvironment()
    environment.reset(a_task(number="lost"))
    assert environment.reply(ASK_ORDER).text == talk.ORDER_LOST[0]


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({}, "'initial_state.orders' needs a list"),
        ({"orders": ORDERS[:1] * 2, "user": USER}, "two orders have one id"),
        ({"orders": [ORDERS[0] | {"days": "12"}], "user": USER}, "each with id"),
        ({"orders": ORDERS}, "'initial_state.user'"),
        ({"orders": ORDERS, "user": USER | {"wish": "sue"}}, "'wish'"),
        ({"orders": ORDERS, "user": USER | {"used": "no"}}, "'used', true or false"),
        ({"orders": ORDERS, "user": USER | {"item": "chair"}}, "'initial_state.user.item' needs an item"),
        ({"orders": ORDERS, "user": USER | {"change": {"item": "chair"}}}, "change.item"),
        ({"orders": ORDERS, "user": USER | {"wish": "exchange"}}, "instead"),
    ],
)
def test_a_bad_starting_point_is_named(state, says):
    with pytest.raises(DataError, match=says):
        RefundDeskEnvironment().task_from_log("Hello.", {"initial_state": state})


def test_a_logged_goal_must_follow_from_the_state():
    task = a_task()
    logged = {"initial_state": STATE, "goal": task.goal}
    assert RefundDeskEnvironment().task_from_log(task.prompt, logged) == task
    with pytest.raises(DataError, match="'goal' is not what the policy makes"):
        RefundDeskEnvironment().task_from_log(task.prompt, logged | {"goal": {**task.goal, "outcome": REFUSED}})


def test_tasks_are_fit_and_variants_are_no_harder():
    environment = make_environment("refund_desk")
    for task in tasks(3, 8):
        assert probe_task(task).valid
        variants = environment.variants(task, 4, 1)
        assert variants == environment.variants(task, 4, 1)
        assert {one.family for one in variants} == {task.family} and all(one.tier in (2, 3) for one in variants)


def test_the_solution_asks_only_what_matters():
    asks = {args["text"] for name, args in solution(a_task()) if name == TEXT_TURN}
    assert asks == {ASK_ORDER, ASK_USED}
    assert solution(a_task(wish="cancel", number="said")) == [("find_order", {"order": "K7"}), ("close", {"outcome": REFUSED})]
