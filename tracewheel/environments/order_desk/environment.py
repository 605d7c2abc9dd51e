"""The order desk: a list of orders that an agent reads, cancels and refunds with four tools."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from tracewheel.config.base import Strict
from tracewheel.core.errors import DataError
from tracewheel.core.types import Task
from tracewheel.environments.base import Observation, function_tool, spread_tasks
from tracewheel.environments.order_desk.noise import BUSY, FIRST_CHOICE, Noise, noise_of_log, with_noise
from tracewheel.environments.order_desk.stock import DESKS, desk_of
from tracewheel.environments.order_desk.tasks import (
    CANCEL,
    CANCELLED,
    FAMILIES,
    OPEN,
    REFUND,
    REFUNDED,
    SHIPPED,
    Order,
    make_task,
    order_desk_task,
    wanted,
)

Call = tuple[str, dict[str, Any]]
DONE: Call = ("done", {})


def solution(task: Task) -> list[Call]:
    """The calls that solve a task in the most direct way, one call a turn."""
    return through_busy(task, direct(task))


def direct(task: Task) -> list[Call]:
    """The solution at a desk that is never busy."""
    changes = wanted(task.initial_state, task.goal)
    return [*start(task), *(change(task, number, action) for number, action in changes.items()), DONE]


def start(task: Task) -> list[Call]:
    """The look at the orders, and the attempt that makes a customer with a second thought tell it."""
    if FIRST_CHOICE not in task.initial_state:
        return [look(task)]
    own = [order for order in task.initial_state["orders"] if order["customer"] == task.goal["customer"]]
    first = next(order for order in own if order["item"] == task.initial_state[FIRST_CHOICE])
    return [look(task), change(task, first["id"], fitting(first))]


def through_busy(task: Task, calls: Iterable[Call]) -> list[Call]:
    """The calls, each one that finds the desk busy made again until it does not."""
    busy, made = task.initial_state.get(BUSY, ()), list[Call]()
    for call in calls:
        while call != DONE and len(made) + 1 in busy:
            made.append(call)
        made.append(call)
    return made


def look(task: Task) -> Call:
    return "orders", {"customer": task.goal["customer"]}


def change(task: Task, number: str, action: str) -> Call:
    """The call that cancels an order, or refunds it in full."""
    if action == CANCEL:
        return "cancel", {"order": number}
    amount = next(order["amount"] for order in task.initial_state["orders"] if order["id"] == number)
    return "refund", {"order": number, "amount": amount}


def fitting(order: Order) -> str:
    """The action that an order takes."""
    return CANCEL if order["status"] == OPEN else REFUND


def near_misses(task: Task) -> dict[str, list[Call]]:
    """Calls that almost solve the task, by what is wrong with them."""
    changes = wanted(task.initial_state, task.goal)
    right = [change(task, number, action) for number, action in changes.items()]
    others = [order for order in task.initial_state["orders"] if order["id"] not in changes]

    def tried(*calls: Call) -> list[Call]:
        return through_busy(task, [*start(task), *calls, DONE])

    def deed(order: Order) -> Call:
        return change(task, order["id"], fitting(order))

    found = {"told_only": tried(), "half_done": tried(*right[:-1])}
    for order in others:
        whose = "own" if order["customer"] == task.goal["customer"] else "another_customers"
        found[f"extra_change_{whose}"] = tried(*right, deed(order))
        found[f"wrong_place_{whose}"] = tried(*right[:-1], deed(order))
    tool, args = right[-1]
    if tool == REFUND:
        found["wrong_type"] = tried(*right[:-1], (tool, args | {"amount": str(args["amount"])}))
        found["not_a_whole_number"] = tried(*right[:-1], (tool, args | {"amount": float(args["amount"])}))
        found["too_little"] = tried(*right[:-1], (tool, args | {"amount": args["amount"] - 1}))
        found["too_much"] = tried(*right[:-1], (tool, args | {"amount": args["amount"] + 1}))
    else:
        found["wrong_type"] = tried(*right[:-1], (tool, {"order": [args["order"]]}))
    found["wrong_case"] = tried(*right[:-1], (tool, args | {"order": args["order"].lower()}))
    if FIRST_CHOICE in task.initial_state:
        found["kept_first_choice"] = tried(start(task)[-1])
    solved, busy = solution(task), min(task.initial_state.get(BUSY, ()), default=0)
    if 0 < busy < len(solved):
        found["gave_up_when_busy"] = [*solved[:busy], DONE]
    return found


SYSTEM_PROMPT = "You work at an order desk."
ECHO_LIMIT = 32
FIELDS = {"id": str, "customer": str, "item": str, "amount": int, "status": str}
TYPES = {"string": str, "integer": int}


def _tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    return function_tool(name, description, {key: {"type": kind} for key, kind in parameters.items()})


TOOLS = [
    _tool("orders", "List a customer's orders.", customer="string"),
    _tool("refund", "Pay back a shipped order.", order="string", amount="integer"),
    _tool("cancel", "Cancel an open order.", order="string"),
    _tool("done", "End the work."),
]
PARAMETERS = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in TOOLS}


class OrderDeskArgs(Strict):
    """Whether the tasks that are made have noise; those of a log have what it says."""

    noisy: bool = False


class OrderDeskEnvironment:
    """Orders of some customers; `orders` lists one as `- kettle K7 24 open`: item, number, amount, status.

    >>> from tracewheel.environments.order_desk.tasks import order_desk_task
    >>> order = {"id": "K7", "customer": "Mia Kent", "item": "kettle", "amount": 24, "status": "open"}
    >>> goal = {"family": "open", "customer": "Mia Kent"}
    >>> desk = OrderDeskEnvironment()
    >>> desk.reset(order_desk_task("Cancel all open orders of Mia Kent.", {"orders": [order]}, goal))
    >>> desk.step("orders", {"customer": "Mia Kent"}).text
    '- kettle K7 24 open'

    State: `{"orders": [{"id", "customer", "item", "amount", "status"}], "finished": bool}`; a refunded order also has
    `refunded`, the amount. A call that fails changes nothing; its observation says why. A task may have noise
    (`tracewheel.environments.order_desk.noise`); its state has `calls` and `spoken`, too.
    """

    kind = "order_desk"
    tool_threads = 0  # calls take no time
    verifiers = ("order_desk",)
    system_prompt = SYSTEM_PROMPT
    Args = OrderDeskArgs
    families = FAMILIES
    tiers = (2, 3, 4, 5)

    def __init__(self, args: OrderDeskArgs | None = None) -> None:
        self._noisy = (args or OrderDeskArgs()).noisy
        self._orders: list[Order] = []
        self._finished = False
        self._noise = Noise()

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        state, goal = logged.get("initial_state"), logged.get("goal")
        orders = state.get("orders") if isinstance(state, dict) else None
        if not isinstance(orders, list) or not orders or not all(_is_order(order) for order in orders):
            raise DataError(f"'initial_state.orders' needs a list of orders, each with {', '.join(FIELDS)}")
        if len({order["id"] for order in orders}) < len(orders):
            raise DataError("'initial_state.orders': two orders have one id")
        if not isinstance(goal, dict) or goal.get("family") not in FAMILIES:
            raise DataError(f"'goal.family' needs one of {', '.join(FAMILIES)}")
        own = [order for order in orders if order["customer"] == goal.get("customer")]
        if not own:
            raise DataError("'goal.customer' has no order")
        if goal["family"] in ("item", "status") and goal.get("item") not in [order["item"] for order in own]:
            raise DataError("'goal.item' is not among the customer's orders")
        return order_desk_task(prompt, {"orders": orders, **noise_of_log(logged["initial_state"], goal, own)}, goal)

    def make_tasks(self, n: int, seed: int) -> list[Task]:
        """Tasks of all families, of any desk; in tier n the customer has n orders."""

        def make(family: str, tier: int, rng: random.Random) -> Task:
            return self._make(family, tier, rng.randrange(DESKS), rng)

        return spread_tasks(make, self.families, self.tiers, n, seed)

    def variants(self, task: Task, n: int, seed: int) -> list[Task]:
        """Tasks of the same family and desk, of the same tier or the one below; none for a customer of no known desk."""
        rng, desk = random.Random(f"variants-{task.id}-{seed}"), desk_of(task.goal["customer"])
        if desk is None:
            return []
        return [self._make(task.family, rng.randint(max(2, task.tier - 1), task.tier), desk, rng) for _ in range(n)]

    def _make(self, family: str, tier: int, desk: int, rng: random.Random) -> Task:
        task = make_task(family, tier, desk, rng)
        return with_noise(task) if self._noisy else task

    def solution(self, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
        """The calls that solve the task in the most direct way."""
        return solution(task)

    def near_misses(self, task: Task) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Calls that almost solve the task."""
        return near_misses(task)

    def outcome(self, task: Task, state: dict[str, Any]) -> Any:
        """The orders by their numbers; whether the work was ended does not count."""
        return {order["id"]: order for order in state["orders"]}

    def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    def reset(self, task: Task) -> None:
        self._orders = [dict(order) for order in task.initial_state["orders"]]
        self._finished, self._noise = False, Noise(task)

    def restore(self, task: Task, state: dict[str, Any]) -> None:
        orders = state.get("orders")
        if not isinstance(orders, list) or not all(isinstance(order, dict) for order in orders):
            raise DataError("an order desk's snapshot has 'orders', a list")
        noise = Noise(task)
        noise.restore(state)
        self._orders, self._finished = [dict(order) for order in orders], state.get("finished") is True
        self._noise = noise

    def snapshot(self) -> dict[str, Any]:
        return {"orders": [dict(order) for order in self._orders], "finished": self._finished, **self._noise.snapshot()}

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        if tool != "done" and self._noise.count_call():
            return _error("busy, try again")
        parameters = PARAMETERS.get(tool)
        if parameters is None:
            return _error(f"no tool named {tool[:ECHO_LIMIT]}")
        if args.keys() != parameters.keys():
            return _error(f"arguments must be {', '.join(parameters) or 'none'}")
        for name, schema in parameters.items():
            if type(args[name]) is not TYPES[schema["type"]]:
                return _error(f"{name} must be {'text' if schema['type'] == 'string' else 'a whole number'}")
        if tool in (REFUND, CANCEL) and (words := self._noise.second_thought()):
            return Observation(words)
        match tool:
            case "orders":
                return self._list(**args)
            case "refund":
                return self._refund(**args)
            case "cancel":
                return self._cancel(**args)
        self._finished = True
        return Observation("done", done=True)

    def _list(self, customer: str) -> Observation:
        lines = [
            f"- {order['item']} {order['id']} {order['amount']} {order['status']}"
            for order in self._orders
            if order["customer"] == customer
        ]
        return Observation("\n".join(lines)) if lines else _error(f"no orders of {customer[:ECHO_LIMIT]}")

    def _refund(self, order: str, amount: int) -> Observation:
        found = self._find(order)
        if found is None:
            return _error(f"no order {order[:ECHO_LIMIT]}")
        if found["status"] != SHIPPED:
            return _error(f"{order} is {found['status']}")
        if not 0 < amount <= found["amount"]:
            return _error(f"{order} cost {found['amount']}")
        found |= {"status": REFUNDED, "refunded": amount}
        return Observation("ok")

    def _cancel(self, order: str) -> Observation:
        found = self._find(order)
        if found is None:
            return _error(f"no order {order[:ECHO_LIMIT]}")
        if found["status"] != OPEN:
            return _error(f"{order} is {found['status']}")
        found["status"] = CANCELLED
        return Observation("ok")

    def _find(self, order: str) -> Order | None:
        return next((one for one in self._orders if one["id"] == order), None)


def _is_order(order: Any) -> bool:
    if not isinstance(order, dict) or not all(type(order.get(name)) is kind for name, kind in FIELDS.items()):
        return False
    return order["status"] in (OPEN, SHIPPED) and order["amount"] > 0


def _error(text: str) -> Observation:
    return Observation(f"error: {text}", error=True)
