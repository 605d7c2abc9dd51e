"""Limits by the minute, with many threads and a minute of half a second."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tracewheel.core.errors import InfrastructureError
from tracewheel.engines.rate_limit import RateLimiter

PERIOD = 0.5


def most_in_a_period(sent, value):
    """The largest sum of a value over the requests within any period that begins with one."""
    return max(sum(value(other) for other in sent if one.at <= other.at < one.at + PERIOD) for one in sent)


def test_any_period_has_at_most_the_allowed_requests():
    limiter = RateLimiter(requests=7, period=PERIOD)
    with ThreadPoolExecutor(16) as pool:
        sent = list(pool.map(lambda _: limiter.acquire(1), range(24)))
    assert most_in_a_period(sent, lambda one: 1) == 7
    taken = max(one.at for one in sent) - min(one.at for one in sent)
    assert 3 * PERIOD <= taken < 5 * PERIOD, "and no fewer"


def test_any_period_has_at_most_the_allowed_tokens_and_a_larger_request_goes_alone():
    limiter = RateLimiter(tokens=100, period=PERIOD)
    with ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(limiter.acquire, [30, 40, 30, 20, 300, 60, 40]))
    (large,) = [one for one in sent if one.tokens == 300]
    others = [one for one in sent if one is not large]
    assert most_in_a_period(others, lambda one: one.tokens) <= 100
    assert all(abs(one.at - large.at) >= PERIOD for one in others)


def test_correcting_a_high_estimate_makes_room():
    limiter = RateLimiter(tokens=100, period=30.0)
    guess = limiter.acquire(90)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(limiter.acquire, 80)
        time.sleep(0.1)
        assert not waiting.done()
        limiter.settle(guess, 20)
        waiting.result(timeout=5)


def test_a_pause_holds_for_all_threads_and_the_longest_counts():
    limiter = RateLimiter()
    limiter.pause(0.4)
    limiter.pause(0.1)
    started = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        sent = list(pool.map(limiter.acquire, [1] * 4))
    assert all(one.at - started >= 0.38 for one in sent)


def test_closing_fails_waiting_requests():
    limiter = RateLimiter(requests=1, period=60.0)
    limiter.acquire(1)
    failed = threading.Event()

    def wait():
        with pytest.raises(InfrastructureError, match="client is closed"):
            limiter.acquire(1)
        failed.set()

    thread = threading.Thread(target=wait)
    thread.start()
    limiter.close()
    assert failed.wait(5)
    thread.join()
