"""Days, moments of scheduled runs, and what of the options is refused."""

from datetime import UTC, datetime

import pytest

from tracewheel.backtest.plan import Window, gate_with, parse_cadences, parse_gates
from tracewheel.config import GateConfig
from tracewheel.core.errors import ConfigError


def test_ticks_begin_with_the_window_and_end_before_its_end():
    window = Window.of("2026-10-02", "2026-10-08", "UTC")
    daily, third, half = (window.ticks(cadence) for cadence in parse_cadences("1d,3d,12h"))
    assert daily == [datetime(2026, 10, day, tzinfo=UTC) for day in range(2, 9)]
    assert third == daily[::3]
    assert half[:2] == [daily[0], datetime(2026, 10, 2, 12, tzinfo=UTC)] and len(half) == 14
    assert window.ticks(parse_cadences("1w")[0]) == daily[:1]


def test_a_daily_run_stays_at_midnight_when_the_clocks_change():
    window = Window.of("2026-10-24", "2026-10-26", "Europe/Berlin")
    ticks = window.ticks(parse_cadences("1d")[0])
    assert [tick.hour for tick in ticks] == [22, 22, 23], "summer time ends in the night to 25 October"
    assert [(day.end - day.begin).total_seconds() / 3600 for day in window.days()] == [24, 25, 24]


@pytest.mark.parametrize(
    ("first", "last", "zone", "says"),
    [
        ("2026-10-08", "2026-10-02", "UTC", "ends before it begins"),
        ("08.10.2026", "2026-10-09", "UTC", "--from 08.10.2026: not a date"),
        ("2026-10-08", "2026-10-09", "Mars/Base", "no such time zone"),
    ],
)
def test_a_wrong_window_is_refused(first, last, zone, says):
    with pytest.raises(ConfigError, match=says):
        Window.of(first, last, zone)


def test_a_wrong_cadence_is_refused():
    with pytest.raises(ConfigError, match="longer than the window, which has 3 days"):
        Window.of("2026-10-02", "2026-10-04", "UTC").ticks(parse_cadences("4d")[0])
    for text, says in (("1d,x", "'x' is none"), ("0d", "'0d' is none"), ("24h,1d", "names one cadence twice")):
        with pytest.raises(ConfigError, match=says):
            parse_cadences(text)


def test_gates_are_every_combination_and_checked_like_a_profile():
    assert parse_gates([], GateConfig()) == [()]
    found = parse_gates(["confidence=0.8,0.95", "gates_per_year=12,30"], GateConfig())
    assert len(found) == 4 and found[1] == (("confidence", 0.8), ("gates_per_year", 30))
    assert gate_with(GateConfig(), found[1]).gates_per_year == 30
    for option, says in (("confidence=2", "confidence=2"), ("certainty=1", "a setting of the gate"), ("looks", "NAME=VALUE")):
        with pytest.raises(ConfigError, match=says):
            parse_gates([option], GateConfig())
    with pytest.raises(ConfigError, match="one gate twice"):
        parse_gates(["confidence=0.8,0.8"], GateConfig())
