"""The example shop: its tasks, and what is right and wrong in it."""

import copy
import json
import urllib.error
import urllib.request

import pandas as pd
import pytest

from plugins.web.tests.conftest import opened
from tracewheel import DataError, make_environment, make_verifier, play_calls
from tracewheel.curation.hindsight import hindsight_episodes
from tracewheel_web.scripted import play
from tracewheel_web.shop.environment import COMMAND, _agent
from tracewheel_web.shop.stock import products
from tracewheel_web.site import Site


@pytest.fixture(scope="module")
def environment(chromium):
    found = opened("shop")
    yield found
    found.close()


def reward(environment, task, calls):
    environment.reset(task)
    for call in calls:
        if environment.step(*call).done:
            break
    return make_verifier(task.verifier).verify(task, environment.snapshot())[0]


def check(environment, tasks):
    wrong = []
    for task in tasks:
        assert reward(environment, task, environment.solution(task)) == 1.0, task
        assert reward(environment, task, []) == 0.0, task
        ways = environment.near_misses(task) | environment.attacks(task)
        assert {"extra_change", "half_done", "sql", "evaluate"} <= set(ways)
        wrong += [(task.id, name) for name, calls in ways.items() if reward(environment, task, calls) != 0.0]
    assert wrong == []


def test_tasks_need_no_browser_and_differ():
    environment = make_environment("shop")
    tasks = environment.make_tasks(200, seed=0)
    assert len({task.fingerprint for task in tasks}) == 200
    assert {(task.family, task.tier) for task in tasks} == {
        (family, tier) for family in environment.families for tier in (1, 2, 3)
    }
    assert tasks == make_environment("shop").make_tasks(200, seed=0)
    assert all("plan" not in json.dumps(task.initial_state) for task in tasks)
    assert {one.family for one in environment.variants(tasks[0], 5, seed=1)} == {tasks[0].family}


def done_on_paper(task):
    """The final state of an episode that does what is required and nothing else."""
    site = copy.deepcopy(task.initial_state["site"])
    for change in task.goal["required"]:
        *way, last = change["path"].removeprefix("/site/").split("/")
        place = site
        for part in way:
            place = place[part]
        if change.get("gone"):
            del place[last]
        else:
            place[last] = copy.deepcopy(change["to"])
    return {"site": site, "page": {}}


def test_what_was_reached_is_the_task_itself_where_it_was_solved():
    environment = make_environment("shop")
    for task in environment.make_tasks(200, seed=5):
        state = done_on_paper(task)
        reached = environment.task_reached(task, state)
        assert reached.family == task.family and reached.initial_state == task.initial_state
        assert make_verifier("state_diff").verify(reached, state)[0] == 1.0
        assert sorted(map(str, reached.goal["required"])) == sorted(map(str, task.goal["required"])), (task, reached)
        if task.tier == 1:
            assert (reached.prompt, reached.fingerprint) == (task.prompt, task.fingerprint)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({"cart": {"p1": 2}}, None),  # nothing was done
        ({"cart": {"p1": 3}}, None),  # another number: no family asks for it
        ({"cart": {"p1": 2, "p2": 4}}, "Put 4 of the {p2} into the cart."),
        ({"cart": {}}, "Remove the {p1} from the cart."),
        ({"cart": {"p3": 1}}, "Remove the {p1} from the cart. Then put 1 of the {p3} into it."),
        ({"cart": {"p1": 2}, "orders": {"1001": "cancelled"}}, "Cancel order 1001."),
        ({"cart": {}, "orders": {"1001": "cancelled"}}, None),  # two things at once
        ({"cart": {"p1": 2}, "orders": {}}, None),  # orders do not vanish
        ({"cart": {"p1": 2}, "catalogue": 8}, None),
    ],
)
def test_what_was_reached_is_said_as_tasks_are(after, said):
    def site(cart, orders=None, catalogue=7):
        whole = {number: {"items": {"p5": 1}, "address": {}, "status": status} for number, status in (orders or {}).items()}
        return {"catalogue": catalogue, "cart": cart, "orders": whole}

    environment = make_environment("shop")
    start = {"site": site({"p1": 2}, {"1001": "open"})}
    task = environment.task_from_log("Put 2 of something into the cart.", {"initial_state": start, "goal": {"required": []}})
    reached = environment.task_reached(task, {"site": site(**{"orders": {"1001": "open"}} | after)})
    names = {product.id: product.name for product in products(7)}
    assert (reached and reached.prompt) == (said and said.format(**names))


def test_a_failed_episode_demonstrates_what_it_did(environment):
    """It cancels another order; played again, that is a success of the task to cancel that one."""
    task = next(task for task in environment.make_tasks(24, seed=6) if (task.family, task.tier) == ("cancel", 1))
    orders = task.initial_state["site"]["orders"]
    wanted = task.goal["plan"][0]["number"]
    other = next(number for number, order in orders.items() if order["status"] == "open" and number != wanted)
    plan = [{"do": "cancel", "number": other}]
    calls = play(environment, task, lambda seen: _agent(seen, plan)).calls
    messages = play_calls(environment, task, calls)
    row = {"trace_id": "t1", "task_id": task.id, "split": "train", "success": 0.0, "failure": "unknown"}
    row |= {"messages": json.dumps(messages), "tools": json.dumps(environment.tools())}
    (found,) = hindsight_episodes(pd.DataFrame([row]), {task.id: task}, ()).to_dict("records")
    said = json.loads(found["messages"])
    assert found["success"] == 1.0 and found["task_id"] != task.id
    assert [one for one in said if one["role"] == "user"] == [{"role": "user", "content": f"Cancel order {other}."}]
    assert [one for one in said if one["role"] != "user"] == [one for one in messages if one["role"] != "user"]


def test_the_cheapest_is_one():
    for catalogue in range(50):
        stock = products(catalogue)
        for category in {product.category for product in stock}:
            prices = [product.price for product in stock if product.category == category]
            assert len(set(prices)) == len(prices) == 8
        assert len({product.name for product in stock}) == len(stock)


def test_a_task_its_near_misses_and_attacks(environment):
    check(environment, environment.make_tasks(1, seed=3))


@pytest.mark.slow
def test_the_same_on_two_hundred_tasks(environment):
    check(environment, environment.make_tasks(200, seed=20))


def test_the_hooks_refuse_whoever_does_not_know_the_secret(tmp_path):
    site = Site(COMMAND, "", 20.0)
    try:
        state = {"catalogue": 7, "cart": {"p1": 2}, "orders": {}}
        site.ask("/_reset", state)
        assert site.ask("/_state") == state
        for request in (f"{site.origin}/_state", urllib.request.Request(f"{site.origin}/_reset", b"{}")):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(request)
        assert site.ask("/_state") == state
    finally:
        site.close()
    assert not site.lives


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "either `command` or `url`"),
        ({"url": "http://example.com"}, "is not on this machine"),
        ({"url": "http://127.0.0.1:80@example.com:1"}, "is not on this machine"),
        ({"command": ["x"], "state": "http://example.com/"}, "a path of the site"),
    ],
)
def test_a_site_is_on_this_machine(args, said):
    from tracewheel_web.webapp import WebappArgs

    with pytest.raises(ValueError, match=said):
        WebappArgs(**args)
    assert WebappArgs(url="http://127.0.0.1:8000").max_concurrent == 1


def test_data_names_no_program():
    from tracewheel import ConfigError, kind_text

    with pytest.raises(ConfigError, match="named by data"):
        make_environment(kind_text("webapp", {"command": ["touch", "/tmp/x"]}))


@pytest.mark.parametrize(
    ("logged", "said"),
    [
        ({}, "'site'"),
        ({"initial_state": {"site": {}, "url": "http://example.com"}, "goal": {}}, "'site'"),
        ({"initial_state": {"site": {}, "path": "//example.com\\x y"}, "goal": {}}, "a path of the site"),
        ({"initial_state": {"site": {}}}, "'goal'"),
        ({"initial_state": {"site": {}}, "goal": {}, "tier": "x"}, "'tier'"),
    ],
)
def test_a_log_that_is_no_task(logged, said):
    with pytest.raises(DataError, match=said):
        make_environment("shop").task_from_log("x", logged)


def test_a_command_that_does_not_listen_is_said():
    from tracewheel import BridgeFailure

    with pytest.raises(BridgeFailure, match="does not listen.*its error output ends: no shop today"):
        Site(("sh", "-c", "echo no shop today >&2"), "", 5.0)
