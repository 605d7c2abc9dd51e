"""Headers that say when an endpoint takes another request, as servers write them."""

import time
from email.utils import formatdate

import pytest

from tracewheel.engines.rate_limit import duration, exhausted_for, retry_after

NOW = "Sun, 22 Nov 2026 08:49:37 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": " 3 "}, 3.0),
        ({"retry-after-ms": "120", "retry-after": "1"}, 0.12),
        ({"retry-after": "Sun, 22 Nov 2026 08:50:07 GMT", "date": NOW}, 30.0),
        ({"retry-after": "Sunday, 22-Nov-26 08:49:40 GMT", "date": NOW}, 3.0),
        ({"retry-after": "Sun, 22 Nov 2026 08:49:00 GMT", "date": NOW}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": ""}, None),
    ],
)
def test_seconds_to_wait(headers, seconds):
    assert retry_after(headers) == seconds


def test_a_date_without_the_servers_time_is_compared_with_our_clock():
    assert retry_after({"retry-after": formatdate(time.time() + 90, usegmt=True)}) == pytest.approx(90, abs=2)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20ms", 0.02), ("6m0s", 360.0), ("1h2m3.5s", 3723.5), ("1.5", 1.5), ("2d", 172800.0), ("soon", None), ("5 min", None),
     ("", None), (None, None)],
)  # fmt: skip
def test_durations(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0.0),
        ({"remaining-requests": "1", "reset-requests": "9s"}, 0.0),
        ({"remaining-requests": "0", "reset-requests": "9s"}, 9.0),
        ({"remaining-requests": "0"}, 0.0),
        ({"remaining-tokens": "499", "reset-tokens": "1s", "limit-tokens": "9000"}, 1.0),
        ({"remaining-tokens": "500", "reset-tokens": "1s", "limit-tokens": "9000"}, 0.0),
        # A limit below the request's tokens: it never has more room than after its reset.
        ({"remaining-tokens": "400", "reset-tokens": "1s", "limit-tokens": "400"}, 0.0),
        ({"remaining-requests": "0", "reset-requests": "2s", "remaining-tokens": "0", "reset-tokens": "5s"}, 5.0),
    ],
)
def test_an_exhausted_limit(headers, seconds):
    assert exhausted_for({f"x-ratelimit-{name}": value for name, value in headers.items()}, 500) == seconds
