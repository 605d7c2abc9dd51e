"""The noisy order desk: busy calls, second thoughts, and tasks with both."""

import doctest
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.core.errors import DataError
from tracewheel.core.kinds import kind_text
from tracewheel.environments import make_environment
from tracewheel.environments.base import play_calls
from tracewheel.environments.order_desk import noise, wording
from tracewheel.environments.order_desk.environment import OrderDeskEnvironment, near_misses, solution
from tracewheel.environments.order_desk.noise import BUSY, CHOOSING, FIRST_CHOICE, with_noise
from tracewheel.environments.order_desk.tasks import OPEN, SHIPPED, order_desk_task, wanted

ORDERS = [
    {"id": "K7", "customer": "Mia Kent", "item": "kettle", "amount": 24, "status": "open"},
    {"id": "B3", "customer": "Mia Kent", "item": "lamp", "amount": 61, "status": "shipped"},
    {"id": "Q9", "customer": "Tom Cole", "item": "chair", "amount": 90, "status": "open"},
]
GOAL = {"family": "status", "customer": "Mia Kent", "item": "lamp"}
BUSY_REPLY = "error: busy, try again"
LOOK, CANCEL, REFUND = (
    ("orders", {"customer": "Mia Kent"}),
    ("cancel", {"order": "K7"}),
    ("refund", {"order": "B3", "amount": 61}),
)
NOISY = kind_text("order_desk", {"noisy": True})


def desk_with(**named):
    environment = OrderDeskEnvironment()
    environment.reset(task_with(**named))
    return environment


def task_with(**named):
    return order_desk_task("Take back the kettle of Mia Kent.", {"orders": ORDERS, **named}, GOAL)


@pytest.fixture(scope="module")
def tasks():
    return make_environment(NOISY).make_tasks(600, 3)


def test_a_busy_call_fails_and_changes_nothing():
    desk = desk_with(busy=[1, 3])
    replies = [desk.step(*call) for call in (REFUND, ("find", {}), REFUND, REFUND)]
    assert [reply.text for reply in replies] == [BUSY_REPLY, "error: no tool named find", BUSY_REPLY, "ok"]
    assert [reply.error for reply in replies] == [True, True, True, False]
    assert desk.snapshot()["calls"] == 4


def test_the_work_can_be_ended_at_a_busy_desk():
    assert desk_with(busy=[1]).step("done", {}).done


def test_a_customer_has_one_second_thought():
    desk = desk_with(first_choice="kettle")
    assert not desk.step(*LOOK).error
    assert desk.step("cancel", {}).error and not desk.snapshot()["spoken"]
    reply = desk.step(*CANCEL)
    assert reply.text.startswith("customer: ") and "lamp" in reply.text and not reply.error
    assert desk.snapshot()["orders"] == ORDERS
    assert desk.step(*CANCEL).text == "ok"


def test_a_customer_waits_while_the_desk_is_busy():
    desk = desk_with(busy=[1], first_choice="kettle")
    assert desk.step(*CANCEL).text == BUSY_REPLY and not desk.snapshot()["spoken"]
    assert desk.step(*CANCEL).text.startswith("customer: ")


def test_a_snapshot_holds_the_noise_and_a_plain_one_none():
    desk, again = desk_with(busy=[1, 3], first_choice="kettle"), OrderDeskEnvironment()
    assert desk.step(*CANCEL).text == BUSY_REPLY
    assert desk.step(*CANCEL).text.startswith("customer: ")
    again.restore(task_with(busy=[1, 3], first_choice="kettle"), json.loads(json.dumps(desk.snapshot())))
    assert again.snapshot() == desk.snapshot() == {"orders": ORDERS, "finished": False, "calls": 2, "spoken": True}
    assert [again.step(*call).text for call in (REFUND, REFUND)] == [BUSY_REPLY, "ok"]
    assert desk_with().snapshot() == {"orders": ORDERS, "finished": False}


@pytest.mark.parametrize("lacking", [{"spoken": True}, {"calls": "2", "spoken": True}, {"calls": 2}, {"calls": 2, "spoken": 1}])
def test_a_snapshot_without_its_noise_is_refused(lacking):
    with pytest.raises(DataError, match="noisy"):
        OrderDeskEnvironment().restore(task_with(busy=[1]), {"orders": ORDERS, "finished": False, **lacking})


@pytest.mark.parametrize(
    ("named", "goal", "says"),
    [
        ({"busy": 1}, GOAL, "busy"),
        ({"busy": ["1"]}, GOAL, "busy"),
        ({"busy": [True]}, GOAL, "busy"),
        ({"busy": [0]}, GOAL, "from 1"),
        ({"first_choice": "chair"}, GOAL, "not among the customer's orders"),
        ({"first_choice": ["kettle"]}, GOAL, "not among the customer's orders"),
        ({"first_choice": "lamp"}, GOAL, "is the goal's item"),
        ({"first_choice": "kettle"}, {"family": "open", "customer": "Mia Kent"}, "not open"),
    ],
)
def test_unusable_noise_in_a_log_says_why(named, goal, says):
    with pytest.raises(DataError, match=f"initial_state.*{says}"):
        OrderDeskEnvironment().task_from_log("x", {"initial_state": {"orders": ORDERS, **named}, "goal": goal})


@given(st.integers(0, 10_000))
def test_a_noisy_task_from_a_log_is_the_task_whatever_the_order_of_keys(seed):
    (task,) = make_environment(NOISY).make_tasks(1, seed)
    logged = json.loads(json.dumps({"goal": task.goal, "initial_state": task.initial_state}, sort_keys=True))
    again = make_environment(NOISY).task_from_log(task.prompt, logged)
    assert again == task
    first, second = (play_calls(OrderDeskEnvironment(), one, solution(one)) for one in (task, again))
    assert first == second


def test_how_often_tasks_have_which_noise(tasks):
    def share(found):
        return sum(found) / len(found)

    assert 0.3 < share([BUSY in task.initial_state for task in tasks]) < 0.4
    assert 0.1 < share([len(task.initial_state[BUSY]) == 2 for task in tasks if BUSY in task.initial_state]) < 0.3
    assert 0.33 < share([FIRST_CHOICE in task.initial_state for task in tasks if task.family in CHOOSING]) < 0.47
    assert not any(FIRST_CHOICE in task.initial_state for task in tasks if task.family not in CHOOSING)
    cancelled = [(task.tier, len(wanted(task.initial_state, task.goal))) for task in tasks if task.family == "open"]
    assert {count for _, count in cancelled} == {1, 2, 3} and all(count < tier for tier, count in cancelled)


def test_the_request_names_the_first_choice_and_both_items_fit_the_family(tasks):
    for task in tasks:
        if first := task.initial_state.get(FIRST_CHOICE):
            own = {order["item"]: order for order in task.initial_state["orders"] if order["customer"] == task.goal["customer"]}
            assert f" {first}" in task.prompt and task.goal["item"] not in task.prompt.split()
            allowed = {SHIPPED} if task.family == "item" else {OPEN, SHIPPED}
            assert {own[first]["status"], own[task.goal["item"]]["status"]} <= allowed


def test_the_solver_meets_all_noise_of_a_made_task(tasks):
    for task in tasks:
        messages = play_calls(OrderDeskEnvironment(), task, solution(task))
        replies = [message["content"] for message in messages if message["role"] == "tool"]
        assert replies.count(BUSY_REPLY) == len(task.initial_state.get(BUSY, []))
        assert sum(reply.startswith("customer: ") for reply in replies) == (FIRST_CHOICE in task.initial_state)


@pytest.mark.parametrize("module", [noise, wording])
def test_the_docstrings_are_true(module):
    found = doctest.testmod(module)
    assert found.attempted and not found.failed


def test_near_misses_give_up_and_keep_the_first_choice():
    assert {"kept_first_choice", "gave_up_when_busy"} <= near_misses(task_with(busy=[1], first_choice="kettle")).keys()
    assert not {"kept_first_choice", "gave_up_when_busy"} & near_misses(task_with()).keys()
    assert "gave_up_when_busy" not in near_misses(task_with(busy=[9]))  # the work is done before


def test_noise_is_repeatable_and_variants_are_noisy(tasks):
    (plain,) = OrderDeskEnvironment().make_tasks(1, 0)
    assert with_noise(plain) == with_noise(plain)
    variants = [variant for task in tasks[:20] for variant in make_environment(NOISY).variants(task, 5, 0)]
    assert any(BUSY in variant.initial_state for variant in variants)
    assert {variant.environment for variant in variants} == {NOISY}
