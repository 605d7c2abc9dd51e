"""Noise at the order desk: the desk is busy for some calls, and some customers change their mind.

Both are part of a task's `initial_state`, so a replay repeats them. They change nothing about what solves the task:

- `busy`: numbers of calls that fail. 1 is the episode's first call; `done` does not count.
- `first_choice`: the item that the request names, where the goal's item is another. The first refund or cancellation that is
  not busy is not carried out; instead the customer asks for the goal's item.
"""

from __future__ import annotations

import random
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.types import Task
from tracewheel.environments.order_desk.tasks import OPEN, SHIPPED, Order, order_desk_task, wanted

BUSY, FIRST_CHOICE = "busy", "first_choice"
CHOOSING = ("item", "status")  # the families whose request names an item
BUSY_SHARE, BUSY_TWICE_SHARE = 0.35, 0.2  # of all tasks; of the busy ones
LAST_BUSY_CALL = 3
SECOND_THOUGHT_SHARE = 0.4  # of the tasks whose request names an item
ONE_MORE_OPEN_SHARE = 0.5  # of the tasks of family `open` with more than one order that is not open

SECOND_THOUGHTS = (
    "customer: not the {first}, the {second}",
    "customer: the {second}, not the {first}",
    "customer: I meant the {second}",
    "customer: rather the {second}",
)


class Noise:
    """The noise of one episode.

    >>> from tracewheel.environments.order_desk.tasks import order_desk_task
    >>> goal = {"family": "item", "customer": "Mia Kent", "item": "lamp"}
    >>> state = {"orders": [], "busy": [2], "first_choice": "kettle"}
    >>> noise = Noise(order_desk_task("Refund the kettle of Mia Kent.", state, goal))
    >>> [noise.count_call() for _ in range(3)]
    [False, True, False]
    >>> noise.second_thought(), noise.second_thought()
    ('customer: not the kettle, the lamp', '')
    """

    def __init__(self, task: Task | None = None) -> None:
        state = task.initial_state if task else {}
        self._noisy = BUSY in state or FIRST_CHOICE in state
        self._busy = frozenset(state.get(BUSY, ()))
        self._words = _words(task) if task and FIRST_CHOICE in state else ""
        self._calls, self._spoken = 0, False

    def count_call(self) -> bool:
        """Count a call; returns whether it finds the desk busy."""
        self._calls += 1
        return self._calls in self._busy

    def second_thought(self) -> str:
        """What the customer says to the first change; "" if nothing, or if it was said before."""
        words = "" if self._spoken else self._words
        self._spoken = True
        return words

    def snapshot(self) -> dict[str, Any]:
        """`calls`, how many there were, and `spoken`, whether a change was tried; nothing for a task without noise."""
        return {"calls": self._calls, "spoken": self._spoken} if self._noisy else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a snapshot.

        Raises:
            DataError: the task has noise, and the snapshot lacks it.
        """
        if not self._noisy:
            return
        calls, spoken = state.get("calls"), state.get("spoken")
        if type(calls) is not int or type(spoken) is not bool:
            raise DataError("a noisy order desk's snapshot has 'calls', a number, and 'spoken', true or false")
        self._calls, self._spoken = calls, spoken


def with_noise(task: Task) -> Task:
    """A plain task with noise, the same each time; by chance, some stay plain.

    The words of the request stay. In family `open` one more order may be open, though never all of the customer's.
    """
    rng = random.Random(f"noise-{task.id}")
    orders = [dict(order) for order in task.initial_state["orders"]]
    state: dict[str, Any] = {"orders": orders}
    goal = dict(task.goal)
    own = [order for order in orders if order["customer"] == goal["customer"]]
    if task.family in CHOOSING and rng.random() < SECOND_THOUGHT_SHARE:
        second = rng.choice([order for order in own if order["item"] != goal["item"]])
        if task.family == "item":  # what is refunded has shipped
            second["status"] = SHIPPED
        state[FIRST_CHOICE], goal["item"] = goal["item"], second["item"]
    kept = [order for order in own if order["status"] != OPEN]
    if task.family == "open" and len(kept) > 1 and rng.random() < ONE_MORE_OPEN_SHARE:
        rng.choice(kept)["status"] = OPEN
    if rng.random() < BUSY_SHARE:
        needed = 1 + (FIRST_CHOICE in state) + len(wanted(state, goal))
        count = 2 if rng.random() < BUSY_TWICE_SHARE else 1
        state[BUSY] = sorted(rng.sample(range(1, min(LAST_BUSY_CALL, needed) + 1), count))
    return order_desk_task(task.prompt, state, goal)


def noise_of_log(state: dict[str, Any], goal: dict[str, Any], own: list[Order]) -> dict[str, Any]:
    """The noise in a log's `initial_state`; `own` are the customer's orders.

    Raises:
        DataError: it is none.
    """
    noise = {key: state[key] for key in (BUSY, FIRST_CHOICE) if key in state}
    if BUSY in noise:
        busy = noise[BUSY]
        if not isinstance(busy, list) or not all(type(number) is int and number > 0 for number in busy):
            raise DataError(f"'initial_state.{BUSY}' needs a list of numbers of calls, from 1")
    if FIRST_CHOICE in noise:
        if goal["family"] not in CHOOSING:
            raise DataError(f"'initial_state.{FIRST_CHOICE}' is for families {' and '.join(CHOOSING)}, not {goal['family']}")
        if noise[FIRST_CHOICE] not in [order["item"] for order in own]:
            raise DataError(f"'initial_state.{FIRST_CHOICE}' is not among the customer's orders")
        if noise[FIRST_CHOICE] == goal["item"]:
            raise DataError(f"'initial_state.{FIRST_CHOICE}' is the goal's item, so there is no second thought")
    return noise


def _words(task: Task) -> str:
    """What the customer says at a second thought: one wording a task."""
    wording = random.Random(task.fingerprint).choice(SECOND_THOUGHTS)
    return wording.format(first=task.initial_state[FIRST_CHOICE], second=task.goal["item"])
