"""The order desk: tools, errors, tasks, and logs that replay whatever the order of their keys."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewheel.core.errors import DataError
from tracewheel.curation.probes import probe_task
from tracewheel.environments import make_environment
from tracewheel.environments.base import play_calls
from tracewheel.environments.order_desk.environment import TOOLS, OrderDeskEnvironment, solution
from tracewheel.environments.order_desk.stock import DESKS, UNSEEN, customers_of, desk_of, items_of
from tracewheel.environments.order_desk.tasks import FAMILIES, make_task, order_desk_task
from tracewheel.environments.order_desk.wording import PARAPHRASES, REQUESTS, is_paraphrase, request

ORDERS = [
    {"id": "K7", "customer": "Mia Kent", "item": "kettle", "amount": 24, "status": "open"},
    {"id": "B3", "customer": "Mia Kent", "item": "lamp", "amount": 61, "status": "shipped"},
    {"id": "Q9", "customer": "Tom Cole", "item": "chair", "amount": 90, "status": "open"},
]
GOAL = {"family": "status", "customer": "Mia Kent", "item": "lamp"}
SEEDS = st.integers(0, 10_000)


@pytest.fixture
def desk():
    environment = OrderDeskEnvironment()
    environment.reset(order_desk_task("Take back the lamp.", {"orders": ORDERS}, GOAL))
    return environment


def random_task(seed):
    rng = random.Random(seed)
    return make_task(rng.choice(FAMILIES), rng.randint(2, 5), rng.randrange(DESKS), rng)


def test_list_cancel_refund_done(desk):
    listed = desk.step("orders", {"customer": "Mia Kent"})
    assert listed.text == "- kettle K7 24 open\n- lamp B3 61 shipped"
    assert desk.step("cancel", {"order": "K7"}).text == "ok"
    assert desk.step("refund", {"order": "B3", "amount": 61}).text == "ok"
    assert desk.step("done", {}).done
    after = [{**ORDERS[0], "status": "cancelled"}, {**ORDERS[1], "status": "refunded", "refunded": 61}, ORDERS[2]]
    assert desk.snapshot() == {"orders": after, "finished": True}


@pytest.mark.parametrize(
    ("tool", "args", "says"),
    [
        ("find", {}, "no tool named find"),
        ("orders", {}, "arguments must be customer"),
        ("done", {"now": True}, "arguments must be none"),
        ("cancel", {"order": 7}, "order must be text"),
        ("refund", {"order": "B3", "amount": "61"}, "amount must be a whole number"),
        ("refund", {"order": "B3", "amount": True}, "amount must be a whole number"),
        ("orders", {"customer": "Nobody"}, "no orders of Nobody"),
        ("cancel", {"order": "Z9"}, "no order Z9"),
        ("cancel", {"order": "B3"}, "B3 is shipped"),
        ("refund", {"order": "K7", "amount": 24}, "K7 is open"),
        ("refund", {"order": "B3", "amount": 62}, "B3 cost 61"),
        ("refund", {"order": "B3", "amount": 0}, "B3 cost 61"),
    ],
)
def test_a_call_that_fails_says_why_and_changes_nothing(desk, tool, args, says):
    before = desk.snapshot()
    reply = desk.step(tool, args)
    assert reply.error and reply.text == f"error: {says}"
    assert desk.snapshot() == before


def test_what_is_refunded_cannot_be_refunded_again(desk):
    desk.step("refund", {"order": "B3", "amount": 61})
    assert desk.step("refund", {"order": "B3", "amount": 61}).text == "error: B3 is refunded"


def test_episodes_do_not_share_state(desk):
    desk.step("cancel", {"order": "K7"})
    assert ORDERS[0]["status"] == "open"
    desk.reset(order_desk_task("again", {"orders": ORDERS}, GOAL))
    assert desk.snapshot()["orders"] == ORDERS


@settings(max_examples=40)
@given(SEEDS)
def test_every_task_is_valid_and_its_solution_solves_it(seed):
    assert probe_task(random_task(seed)).valid


@given(SEEDS)
def test_a_task_from_a_log_is_the_task_whatever_the_order_of_keys(seed):
    task = random_task(seed)
    logged = json.loads(json.dumps({"goal": task.goal, "initial_state": task.initial_state}, sort_keys=True))
    again = make_environment("order_desk").task_from_log(task.prompt, logged)
    assert again == task
    first, second = (play_calls(OrderDeskEnvironment(), one, solution(one)) for one in (task, again))
    assert first == second


@given(SEEDS)
def test_variants_stay_at_the_desk_and_get_no_harder(seed):
    task = random_task(seed)
    environment = OrderDeskEnvironment()
    variants = environment.variants(task, 3, seed)
    assert variants == environment.variants(task, 3, seed) and len(variants) == 3
    for variant in variants:
        assert variant.family == task.family and variant.tier <= task.tier
        assert desk_of(variant.goal["customer"]) == desk_of(task.goal["customer"])


@given(SEEDS)
def test_only_later_desks_use_the_paraphrases(seed):
    task = random_task(seed)
    assert "(" not in task.prompt and "{" not in task.prompt and task.goal["customer"] in task.prompt
    assert task.goal.get("item", "") in task.prompt
    if is_paraphrase(task.prompt):
        assert desk_of(task.goal["customer"]) >= UNSEEN


@given(SEEDS)
def test_a_paraphrase_is_told_from_a_request(seed):
    rng = random.Random(seed)
    for family in FAMILIES:
        assert is_paraphrase(request(PARAPHRASES[family], "Mia Kent", "kettle", rng))
        assert not is_paraphrase(request(REQUESTS[family], "Mia Kent", "kettle", rng))


def test_desks_share_no_item_and_no_name():
    items = [items_of(desk) for desk in range(DESKS)]
    names = [set(" ".join(customers_of(desk)).split()) for desk in range(DESKS)]
    for words, large, small in ((items, 15, 6), (names, 20, 8)):
        assert list(map(len, words)) == [large] * UNSEEN + [small] * (DESKS - UNSEEN)
        assert sum(map(len, words)) == len(set().union(*words))


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"initial_state": {}}, "initial_state.orders"),
        ({"initial_state": {"orders": [{**ORDERS[0], "amount": "24"}]}}, "amount"),
        ({"initial_state": {"orders": [ORDERS[0], ORDERS[0]]}}, "one id"),
        ({"goal": {**GOAL, "family": "all"}}, "goal.family"),
        ({"goal": {**GOAL, "customer": "Nobody"}}, "goal.customer"),
        ({"goal": {**GOAL, "item": "chair"}}, "goal.item"),
    ],
)
def test_an_unusable_log_says_what_is_missing(change, names):
    with pytest.raises(DataError, match=names):
        OrderDeskEnvironment().task_from_log("x", {"initial_state": {"orders": ORDERS}, "goal": GOAL} | change)


def test_the_tools_are_those_that_the_environment_takes(desk):
    for tool in TOOLS:
        assert "no tool named" not in desk.step(tool["function"]["name"], {}).text
