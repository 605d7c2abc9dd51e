"""The refund desk: a database of orders, six tools, and a simulated customer."""

from __future__ import annotations

import random
from typing import Any

from tracewheel.config.base import Strict
from tracewheel.core.errors import DataError
from tracewheel.core.types import Task
from tracewheel.environments.base import TEXT_TURN, Observation, function_tool, spread_tasks
from tracewheel.environments.refund_desk.policy import (
    CANCEL,
    CANCELLED,
    CARD,
    DELIVERED,
    EXCHANGE,
    EXCHANGED,
    GIFT,
    OPEN,
    OUTCOMES,
    POLICY,
    REFUND,
    REFUNDED,
    REFUSED,
    VOUCHER,
    Order,
    final_wish,
    in_time,
    payee,
)
from tracewheel.environments.refund_desk.stock import ITEMS
from tracewheel.environments.refund_desk.talk import ASKED, LOST, SAID, brief_of
from tracewheel.environments.refund_desk.tasks import FAMILIES, TIERS, make_task, refund_desk_task
from tracewheel.environments.users import CheckedUser, UserConfig, make_user

Call = tuple[str, dict[str, Any]]
ASK_ORDER, ASK_NAME, ASK_USED, ASK_INSTEAD = "Which order?", "Your name?", "Was it used?", "What would you like instead?"


def solution(task: Task) -> list[Call]:
    """What solves a task: questions (`TEXT_TURN`) and calls, one a turn."""
    return [*lookup(task), *inquiry(task), *act(task), close(task.goal["outcome"])]


def say(text: str) -> Call:
    return TEXT_TURN, {"text": text}


def close(outcome: str) -> Call:
    return "close", {"outcome": outcome}


def lookup(task: Task) -> list[Call]:
    """Find the order: its number is said, asked for, or found by the customer's name."""
    user, order = task.initial_state["user"], task.goal["order"]["id"]
    find = ("find_order", {"order": order})
    if user["number"] == LOST:
        return [say(ASK_NAME), ("orders", {"customer": user["customer"]}), find]
    return [find] if user["number"] == SAID else [say(ASK_ORDER), find]


def inquiry(task: Task) -> list[Call]:
    """Ask what only the customer knows, as far as it matters: nothing about an order that is too old."""
    state, wish = task.initial_state, final_wish(task.initial_state)
    if wish.action == CANCEL or not in_time(wish.action, order_of(task)):
        return []
    questions = [say(ASK_USED)]
    named = state["user"]["change"]  # who changes its mind says for what
    if wish.action == EXCHANGE and task.goal["outcome"] != REFUSED and not named:
        questions.append(say(ASK_INSTEAD))
    return questions


def act(task: Task) -> list[Call]:
    """The call that changes the order, if the policy allows it."""
    return [] if task.goal["outcome"] == REFUSED else [deed(task)]


def deed(task: Task) -> Call:
    """The call that does what the customer wants, allowed or not."""
    wish = final_wish(task.initial_state)
    match wish.action:
        case "refund":
            return REFUND, {"order": wish.order, "to": payee(order_of(task))}
        case "exchange":
            return EXCHANGE, {"order": wish.order, "item": wish.instead}
    return CANCEL, {"order": wish.order}


def order_of(task: Task) -> Order:
    """The order that the customer means, as it is at the start."""
    number = final_wish(task.initial_state).order
    return next(order for order in task.initial_state["orders"] if order["id"] == number)


FIELDS = {"id": str, "customer": str, "item": str, "days": int, "paid": str, "status": str}
WISHES, NUMBERS = (REFUND, EXCHANGE, CANCEL), (SAID, ASKED, LOST)


def check_state(state: Any) -> None:
    """Check `initial_state`.

    Raises:
        DataError: it is incomplete or inconsistent; the message says how.
    """
    orders = state.get("orders") if isinstance(state, dict) else None
    if not isinstance(orders, list) or not orders or not all(_is_order(order) for order in orders):
        raise DataError(f"'initial_state.orders' needs a list of orders, each with {', '.join(FIELDS)}")
    if len({order["id"] for order in orders}) < len(orders):
        raise DataError("'initial_state.orders': two orders have one id")
    user = state.get("user")
    if not isinstance(user, dict):
        raise DataError("'initial_state.user' needs what the customer knows and wants")
    if user.get("wish") not in WISHES or user.get("number") not in NUMBERS:
        raise DataError(f"'initial_state.user' needs 'wish' ({', '.join(WISHES)}) and 'number' ({', '.join(NUMBERS)})")
    if not isinstance(user.get("used"), bool) or type(user.get("style")) is not int:
        raise DataError("'initial_state.user' needs 'used', true or false, and 'style', a whole number")
    if not {"instead", "change"} <= user.keys():
        raise DataError("'initial_state.user' needs 'instead' and 'change', null for none")
    own = [order["item"] for order in orders if order["customer"] == user.get("customer")]
    change = user["change"]
    if change is not None and not isinstance(change, dict):
        raise DataError("'initial_state.user.change' is null or an object")
    for place, item in (("item", user.get("item")), ("change.item", (change or {}).get("item", user.get("item")))):
        if own.count(item) != 1:
            raise DataError(f"'initial_state.user.{place}' needs an item of which the customer has one order")
    wish = (change or {}).get("wish", user["wish"])
    if wish not in WISHES:
        raise DataError(f"'initial_state.user.change.wish' is none of {', '.join(WISHES)}")
    if wish == EXCHANGE and (change or {}).get("instead", user["instead"]) not in ITEMS:
        raise DataError("'initial_state.user.instead' needs an item of the shop's for an exchange")


def _is_order(order: Any) -> bool:
    if not isinstance(order, dict) or not all(type(order.get(name)) is kind for name, kind in FIELDS.items()):
        return False
    return order["status"] in (OPEN, DELIVERED) and order["paid"] in (CARD, GIFT) and order["days"] > 0


def near_misses(task: Task) -> dict[str, list[Call]]:
    """Questions and calls that almost solve the task, by what is wrong with them."""
    outcome, number = task.goal["outcome"], task.goal["order"]["id"]
    talk, done = [*lookup(task), *inquiry(task)], act(task)
    found = {
        "left_open": [*talk, *done],
        "told_wrongly": [*talk, *done, close(next(other for other in OUTCOMES if other != outcome))],
        "closed_too_early": [*talk, close(outcome), *done] if done else [*talk, deed(task), close(outcome)],
    }
    for order in task.initial_state["orders"]:
        if order["id"] == number:
            continue
        whose = "own" if order["customer"] == task.initial_state["user"]["customer"] else "another_customers"
        found[f"extra_change_{whose}"] = [*talk, *done, ("cancel", {"order": order["id"]}), close(outcome)]
        if done:
            found[f"wrong_place_{whose}"] = [*talk, _with(deed(task), order=order["id"]), close(outcome)]
    if outcome == REFUSED:
        return found | {"done_though_forbidden": [*talk, deed(task), close(outcome)]}
    found["refused_though_allowed"] = [*talk, close(REFUSED)]
    found["told_not_done"] = [*talk, close(outcome)]
    found["wrong_type"] = [*talk, _with(deed(task), order=[number]), close(outcome)]
    if deed(task)[0] == REFUND:
        other = CARD if deed(task)[1]["to"] == VOUCHER else VOUCHER
        found["wrong_way"] = [*talk, _with(deed(task), to=other), close(outcome)]
    if deed(task)[0] == EXCHANGE:
        item = next(item for item in ITEMS if item != deed(task)[1]["item"])
        found["wrong_item"] = [*talk, _with(deed(task), item=item), close(outcome)]
    return found


def _with(call: Call, **args: Any) -> Call:
    return call[0], call[1] | args


ECHO_LIMIT = 32


def _tool(name: str, description: str, **parameters: dict[str, Any]) -> dict[str, Any]:
    return function_tool(name, description, {key: {"type": "string", **more} for key, more in parameters.items()})


TOOLS = [
    _tool("orders", "List a customer's orders.", customer={}),
    _tool("find_order", "Item, age in days, payment and status of an order.", order={}),
    _tool("refund", "Pay back a delivered order.", order={}, to={"enum": [CARD, VOUCHER]}),
    _tool("exchange", "Send another item for a delivered order.", order={}, item={}),
    _tool("cancel", "Cancel an order.", order={}),
    _tool("close", "Close the ticket with what you did.", outcome={"enum": list(OUTCOMES)}),
]
PARAMETERS = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in TOOLS}


class RefundDeskArgs(Strict):
    """Who the customer is played by."""

    user: UserConfig = UserConfig()


class RefundDeskEnvironment:
    """Orders, a ticket, and a customer who says what it is asked.

    >>> import random
    >>> from tracewheel.environments.refund_desk.tasks import make_task
    >>> desk = RefundDeskEnvironment()
    >>> desk.reset(make_task("refund", 1, random.Random(0)))
    >>> desk.step("close", {"outcome": "refused"}).done
    True

    State: `{"orders": [{"id", "customer", "item", "days", "paid", "status"}], "ticket": str, "talk": [[said, answer]]}`; an
    order that is refunded or exchanged also has `refunded_to` or `exchanged_for`. The tools do not enforce the policy: that is
    the agent's work. A call that fails changes nothing; its observation says why. The customer's brief is in the task's
    `initial_state` and never in a snapshot: `talk`, what the agent said and the customer answered, is all that the customer
    needs to go on.
    """

    kind = "refund_desk"
    tool_threads = 0  # calls take no time
    verifiers = ("refund_desk",)
    system_prompt = POLICY
    Args = RefundDeskArgs
    families = FAMILIES
    tiers = TIERS

    def __init__(self, args: RefundDeskArgs | None = None) -> None:
        self._user = CheckedUser(make_user((args or RefundDeskArgs()).user))
        self._orders: list[Order] = []
        self._ticket = OPEN

    @property
    def repeatable(self) -> bool:
        """Whether the customer answers the same another time."""
        return self._user.repeatable

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        state = logged.get("initial_state")
        check_state(state)
        task = refund_desk_task(prompt, state)  # type: ignore[arg-type]  # checked above
        if logged.get("goal") not in (None, task.goal):
            raise DataError("'goal' is not what the policy makes of 'initial_state'; leave it out, or mend it")
        return task

    def make_tasks(self, n: int, seed: int) -> list[Task]:
        """Tasks of all families and tiers."""
        return spread_tasks(make_task, self.families, self.tiers, n, seed)

    def variants(self, task: Task, n: int, seed: int) -> list[Task]:
        """Tasks of the same family, of the same tier or the one below."""
        rng = random.Random(f"variants-{task.id}-{seed}")
        return [make_task(task.family, rng.randint(max(1, task.tier - 1), task.tier), rng) for _ in range(n)]

    def solution(self, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
        """The questions and calls that solve the task in the most direct way."""
        return solution(task)

    def near_misses(self, task: Task) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Questions and calls that almost solve the task."""
        return near_misses(task)

    def outcome(self, task: Task, state: dict[str, Any]) -> Any:
        """The orders by their numbers, and the ticket; what was said does not count."""
        return [{order["id"]: order for order in state["orders"]}, state["ticket"]]

    def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    def reset(self, task: Task) -> None:
        self._orders = [dict(order) for order in task.initial_state["orders"]]
        self._ticket = OPEN
        self._user.begin(brief_of(task.initial_state, task.prompt))

    def snapshot(self) -> dict[str, Any]:
        return {"orders": [dict(order) for order in self._orders], "ticket": self._ticket, "talk": self._user.talk()}

    def restore(self, task: Task, state: dict[str, Any]) -> None:
        orders, ticket, talk = state.get("orders"), state.get("ticket"), state.get("talk")
        if not isinstance(orders, list) or not all(isinstance(order, dict) for order in orders) or not isinstance(ticket, str):
            raise DataError("a refund desk's snapshot has 'orders', a list, and 'ticket', a text")
        if not isinstance(talk, list) or not all(_is_texts(turn) and len(turn) == 2 for turn in talk):
            raise DataError("a refund desk's snapshot has 'talk', a list of what the agent said with the customer's answer")
        self._user.resume(brief_of(task.initial_state, task.prompt), talk)
        self._orders, self._ticket = [dict(order) for order in orders], ticket

    def reply(self, text: str) -> Observation:
        """The customer's answer; its goodbye ends the episode."""
        return self._user.answer(text)

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        parameters = PARAMETERS.get(tool)
        if parameters is None:
            return _error(f"no tool named {tool[:ECHO_LIMIT]}")
        if args.keys() != parameters.keys() or not all(isinstance(value, str) for value in args.values()):
            return _error(f"arguments must be {', '.join(parameters)}, each a text")
        for name, schema in parameters.items():
            if args[name] not in schema.get("enum", [args[name]]):
                return _error(f"{name} must be one of {', '.join(schema['enum'])}")
        match tool:
            case "orders":
                return self._list(args["customer"])
            case "close":
                self._ticket = args["outcome"]
                return Observation("closed", done=True)
        order = next((order for order in self._orders if order["id"] == args["order"]), None)
        return self._act(tool, order, args) if order else _error(f"no order {args['order'][:ECHO_LIMIT]}")

    def _list(self, customer: str) -> Observation:
        own = [order for order in self._orders if order["customer"].lower() == customer.lower()]
        if not own:
            return _error(f"no orders of {customer[:ECHO_LIMIT]}")
        return Observation("\n".join(f"{order['id']} {order['item']}" for order in own))

    def _act(self, tool: str, order: Order, args: dict[str, Any]) -> Observation:
        if tool == "find_order":
            return Observation(f"{order['item']}, {order['days']} days, {order['paid']}, {order['status']}")
        if order["status"] not in (OPEN, DELIVERED):
            return _error(f"{order['id']} is {order['status']}")
        match tool:
            case "refund":
                order |= {"status": REFUNDED, "refunded_to": args["to"]}
            case "exchange":
                if args["item"] not in ITEMS:
                    return _error(f"no item {args['item'][:ECHO_LIMIT]}")
                order |= {"status": EXCHANGED, "exchanged_for": args["item"]}
            case "cancel":
                order["status"] = CANCELLED
        return Observation("ok")


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _error(text: str) -> Observation:
    return Observation(f"error: {text}", error=True)
