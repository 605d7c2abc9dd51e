"""What a backtest replays: the days, the moments of the scheduled runs, and the branches that are compared."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tracewheel import ConfigError

CADENCE = re.compile(r"([1-9]\d{0,3})([hdw])")
HOURS = {"h": 1, "d": 24, "w": 168}


@dataclass(frozen=True)
class Window:
    """The days from `first` to `last`, both included, as the clock of a time zone has them."""

    first: date
    last: date
    zone: str

    @classmethod
    def of(cls, first: str, last: str, zone: str) -> Window:
        """A window by two dates as text.

        Raises:
            ConfigError: a date or the zone is wrong, or the window ends before it begins.
        """
        try:
            ZoneInfo(zone)
            window = cls(date.fromisoformat(first), date.fromisoformat(last), zone)
        except ZoneInfoNotFoundError as error:
            raise ConfigError(f"--timezone {zone}: no such time zone; give an IANA name such as Europe/Berlin") from error
        except ValueError as error:
            raise ConfigError(f"--from {first} --to {last}: write dates as 2026-10-01 ({error})") from error
        if window.last < window.first:
            raise ConfigError(f"--from {first} --to {last}: the window ends before it begins")
        return window

    @property
    def begin(self) -> datetime:
        return self._midnight(self.first)

    @property
    def end(self) -> datetime:
        return self._midnight(self.last + timedelta(days=1))

    def ticks(self, cadence: str) -> list[datetime]:
        """The moments of the scheduled runs, the first at the begin of the window. Days stay at midnight when clocks change.

        Raises:
            ConfigError: the cadence is wrong, or longer than the window.
        """
        match = CADENCE.fullmatch(cadence)
        if not match:
            raise ConfigError(f"--cadence {cadence}: expected hours, days or weeks, as in 12h, 1d or 2w")
        hours, days = int(match[1]) * HOURS[match[2]], (self.last - self.first).days + 1
        if hours > 24 * days:
            raise ConfigError(f"--cadence {cadence}: longer than the window, which has {days} days")
        found: list[datetime] = []
        for number in itertools.count():
            moment = self.begin + timedelta(hours=number * hours)
            if hours % 24 == 0:
                moment = self._midnight(self.first + timedelta(days=number * hours // 24))
            if moment >= self.end:
                break
            found.append(moment)
        return found

    def _midnight(self, day: date) -> datetime:
        return datetime.combine(day, time(), ZoneInfo(self.zone)).astimezone(UTC)


@dataclass(frozen=True)
class Branch:
    """One cadence with one choice of settings, as `gate.confidence=0.95`; replayed in a work folder of its own."""

    cadence: str
    settings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return " ".join([self.cadence, *self.settings])

    @property
    def folder(self) -> str:
        return re.sub(r"[^A-Za-z0-9.=_-]", "-", self.name)


def branches_of(cadences: str, compared: Sequence[str]) -> list[Branch]:
    """Each cadence with each choice of the settings.

    Args:
        cadences: As in `1d,3d`.
        compared: Settings with their values, as in `gate.confidence=0.8,0.95`.

    Raises:
        ConfigError: a setting has no value, or a branch is named twice.
    """
    choices: list[list[str]] = []
    for option in compared:
        name, separator, values = option.partition("=")
        if not separator or not values:
            raise ConfigError(f"--compare {option}: expected a setting with values, as in gate.confidence=0.8,0.95")
        choices.append([f"{name}={value}" for value in values.split(",")])
    found = [Branch(cadence, choice) for choice in itertools.product(*choices) for cadence in cadences.split(",")]
    if len({branch.folder for branch in found}) < len(found):
        raise ConfigError(f"--cadence {cadences} --compare {' '.join(compared)}: names a branch twice")
    return found
