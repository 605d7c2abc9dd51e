"""What a backtest replays: days, the moments of the scheduled runs, and the settings of the gate that are compared."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml

from tracewheel.config import GateConfig
from tracewheel.core.errors import ConfigError

CADENCE = re.compile(r"(\d{1,4})([hdw])")
HOURS = {"h": 1, "d": 24, "w": 168}


@dataclass(frozen=True)
class Day:
    """A day of the window: `begin` up to `end`, which is the next day's begin."""

    date: date
    begin: datetime
    end: datetime


@dataclass(frozen=True)
class Window:
    """The days from `first` to `last`, both included, as the clock of a time zone has them."""

    first: date
    last: date
    zone: str = "UTC"

    @classmethod
    def of(cls, first: str, last: str, zone: str) -> Window:
        """A window by two dates as text.

        Raises:
            ConfigError: a date or the zone is wrong, or the window ends before it begins.
        """
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ConfigError(f"--timezone {zone}: no such time zone; give an IANA name such as Europe/Berlin") from error
        window = cls(_date(first, "--from"), _date(last, "--to"), zone)
        if window.last < window.first:
            raise ConfigError(f"--from {first} --to {last}: the window ends before it begins")
        return window

    @property
    def begin(self) -> datetime:
        return self._midnight(self.first)

    @property
    def end(self) -> datetime:
        return self._midnight(self.last + timedelta(days=1))

    def days(self) -> list[Day]:
        """The days in order."""
        count = (self.last - self.first).days + 1
        dates = [self.first + timedelta(days=number) for number in range(count)]
        return [Day(day, self._midnight(day), self._midnight(day + timedelta(days=1))) for day in dates]

    def ticks(self, cadence: Cadence) -> list[datetime]:
        """The moments of the scheduled runs: the first at the begin of the window. A run reads what is older than its moment.

        Days and weeks are of the calendar, so that a run stays at midnight when the clocks change.

        Raises:
            ConfigError: the cadence is longer than the window.
        """
        if cadence.hours > 24 * len(self.days()):
            raise ConfigError(f"--cadence {cadence}: longer than the window, which has {len(self.days())} days")
        found: list[datetime] = []
        for number in itertools.count():
            hours = number * cadence.hours
            if cadence.hours % 24:
                moment = self.begin + timedelta(hours=hours)
            else:
                moment = self._midnight(self.first + timedelta(days=hours // 24))
            if moment >= self.end:
                return found
            found.append(moment)
        raise AssertionError  # itertools.count does not end

    def _midnight(self, day: date) -> datetime:
        return datetime.combine(day, time(), ZoneInfo(self.zone)).astimezone(UTC)


@dataclass(frozen=True)
class Cadence:
    """How often a run is scheduled, as in `12h`, `1d` or `2w`."""

    text: str
    hours: int

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Branch:
    """A cadence with settings of the gate; `gate` is empty for the profile's own."""

    cadence: Cadence
    gate: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """Names the branch in files and tables."""
        return " ".join([str(self.cadence), *(f"{name}={value}" for name, value in self.gate)])

    @property
    def folder(self) -> str:
        return re.sub(r"[^\w.=-]+", "-", self.name)


def parse_cadences(text: str) -> list[Cadence]:
    """The cadences of a list such as `1d,3d,7d`.

    Raises:
        ConfigError: one cannot be read, or is named twice.
    """
    found = []
    for part in text.split(","):
        match = CADENCE.fullmatch(part.strip())
        if not match or not int(match[1]):
            raise ConfigError(f"--cadence {text}: '{part}' is none; give numbers of hours, days or weeks, as in 12h,1d,2w")
        found.append(Cadence(part.strip(), int(match[1]) * HOURS[match[2]]))
    if len({cadence.hours for cadence in found}) < len(found):
        raise ConfigError(f"--cadence {text}: names one cadence twice")
    return found


def parse_gates(options: Sequence[str], gate: GateConfig) -> list[tuple[tuple[str, Any], ...]]:
    """Settings of the gate to compare: every combination of the values of `name=value,value`; one empty one without any.

    Args:
        options: Such as `confidence=0.8,0.95`.
        gate: The profile's gate.

    Raises:
        ConfigError: a setting or a value is wrong.
    """
    choices: list[list[tuple[str, Any]]] = []
    for option in options:
        name, separator, values = option.partition("=")
        if name not in GateConfig.model_fields or not separator:
            known = ", ".join(GateConfig.model_fields)
            raise ConfigError(f"--gate {option}: expected NAME=VALUE,VALUE with a setting of the gate ({known})")
        choices.append([(name, yaml.safe_load(value)) for value in values.split(",")])
    found = [tuple(choice) for choice in itertools.product(*choices)]
    for settings in found:
        gate_with(gate, settings)
    if len(set(found)) < len(found) or len({name for name, _ in found[0]}) < len(found[0]):
        raise ConfigError(f"--gate {' '.join(options)}: names one gate twice")
    return found


def gate_with(gate: GateConfig, settings: Sequence[tuple[str, Any]]) -> GateConfig:
    """A gate with other settings.

    Raises:
        ConfigError: a value is wrong.
    """
    from pydantic import ValidationError

    try:
        return GateConfig.model_validate(gate.model_dump() | dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"--gate {'.'.join(map(str, first['loc']))}={first['input']}: {first['msg']}") from error


def _date(text: str, option: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text}: not a date; write it as 2026-10-01") from error
