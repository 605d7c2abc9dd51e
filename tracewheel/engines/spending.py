"""A budget that many threads spend from, and that is never passed."""

from __future__ import annotations

import threading

from tracewheel.core.errors import InfrastructureError


class BudgetReached(InfrastructureError):
    """Another request could pass the budget."""


class Spending:
    """What was spent, and what requests under way may yet cost at most.

    Args:
        budget: None for no limit.
        spent: What earlier runs of the same command have spent.
    """

    def __init__(self, budget: float | None, spent: float = 0.0) -> None:
        self._budget, self._spent = budget, spent
        self._under_way, self._requests = 0.0, 0
        self._reached = False
        self._changed = threading.Condition()

    def reserve(self, at_most: float) -> None:
        """Put aside what a request may cost; wait when there is only room once others turn out cheaper.

        Raises:
            BudgetReached: there is no room for it. From then on there is none for any, so that a run stops at one point.
        """
        if self._budget is None:
            return
        with self._changed:
            while not self._reached and self._spent + self._under_way + at_most > self._budget and self._requests:
                self._changed.wait()
            if self._reached or self._spent + at_most + self._under_way > self._budget:
                self._reached = True
                self._changed.notify_all()
                raise BudgetReached(
                    f"the budget of {self._budget:g} is reached: {self._spent:.6g} is spent, "
                    f"and the next request may cost {at_most:.6g}"
                )
            self._under_way += at_most
            self._requests += 1

    def settle(self, at_most: float, cost: float) -> None:
        """A request that had put `at_most` aside has cost so much."""
        if self._budget is None:
            return
        with self._changed:
            self._requests -= 1
            self._under_way = self._under_way - at_most if self._requests else 0.0
            self._spent += cost
            self._changed.notify_all()
