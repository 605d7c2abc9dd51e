"""A budget that threads spend from: never exceeded, and not given up while open requests may turn out cheaper."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tracewheel.engines.chat_reply import BudgetReached, Spending


def test_many_threads_never_exceed_the_budget():
    """A hundred requests that reserve 1 and cost 0.5 on average, on a budget of 20."""
    spending, lock, costs = Spending(20.0), threading.Lock(), []

    def ask(number):
        rng = random.Random(number)
        try:
            spending.reserve(1.0)
        except BudgetReached:
            return False
        time.sleep(0.001 * rng.random())
        cost = rng.random()
        with lock:
            costs.append(cost)
        spending.settle(1.0, cost)
        return True

    with ThreadPoolExecutor(12) as pool:
        done = list(pool.map(ask, range(100)))
    assert 19.0 - 1e-9 <= sum(costs) <= 20.0, "it is used up to the last reservation that fits"
    assert 0 < done.count(True) < 100


def test_a_reservation_waits_for_open_requests_before_it_fails():
    spending = Spending(1.0)
    spending.reserve(0.9)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(spending.reserve, 0.5)
        time.sleep(0.1)
        assert not second.done()
        spending.settle(0.9, 0.2)
        second.result(timeout=5)
    with pytest.raises(BudgetReached, match=r"the budget of 1 is reached: 0\.7 is spent, and the next request may cost 0\.4"):
        spending.settle(0.5, 0.5)
        spending.reserve(0.4)
    with pytest.raises(BudgetReached):
        spending.reserve(0.0001)  # once reached, always reached


def test_earlier_runs_count_towards_the_budget():
    with pytest.raises(BudgetReached, match="3 is spent"):
        Spending(3.1, spent=3.0).reserve(0.2)


def test_without_a_budget_every_reservation_succeeds():
    spending = Spending(None)
    for _ in range(3):
        assert spending.reserve(1e9) is None, "at once, although none is settled"
