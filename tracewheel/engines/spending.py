"""A budget that many threads spend from and never exceed."""

from __future__ import annotations

import threading
from typing import Protocol

from tracewheel.core.errors import InfrastructureError


class BudgetReached(InfrastructureError):
    """Another request could exceed the budget."""


class Budget(Protocol):
    """What a request reserves before it is sent, and settles after."""

    def reserve(self, at_most: float) -> None:
        """Reserve the most that a request may cost.

        Raises:
            BudgetReached: there is no room.
        """
        ...

    def settle(self, at_most: float, cost: float) -> None:
        """Replace a reservation of `at_most` by the request's cost."""
        ...


class Spending:
    """The amount spent, and the most that open requests may cost.

    Args:
        budget: None for no limit.
        spent: The amount that earlier runs of the same command have spent.
    """

    def __init__(self, budget: float | None, spent: float = 0.0) -> None:
        self._budget, self._spent = budget, spent
        self._reserved, self._requests = 0.0, 0
        self._reached = False
        self._changed = threading.Condition()

    def reserve(self, at_most: float) -> None:
        """Reserve the most that a request may cost; wait while open requests may still turn out cheaper.

        Raises:
            BudgetReached: there is no room. From then on every reservation fails, so that a run stops at one point.
        """
        if self._budget is None:
            return
        with self._changed:
            while not self._reached and self._spent + self._reserved + at_most > self._budget and self._requests:
                self._changed.wait()
            if self._reached or self._spent + at_most + self._reserved > self._budget:
                self._reached = True
                self._changed.notify_all()
                raise BudgetReached(
                    f"the budget of {self._budget:g} is reached: {self._spent:.6g} is spent, "
                    f"and the next request may cost {at_most:.6g}"
                )
            self._reserved += at_most
            self._requests += 1

    def settle(self, at_most: float, cost: float) -> None:
        """Replace a reservation of `at_most` by the request's cost."""
        if self._budget is None:
            return
        with self._changed:
            self._requests -= 1
            self._reserved = self._reserved - at_most if self._requests else 0.0
            self._spent += cost
            self._changed.notify_all()
