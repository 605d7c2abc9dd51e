"""Candidates: challengers that are not proven yet, with their evidence night by night beside the boundary."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.dashboard.curves import Curve
from tracewheel.dashboard.library import RUN_ID, Library, Place
from tracewheel.dashboard.view import Ask, Crumb, address, page
from tracewheel.evaluation.candidate import planned_looks
from tracewheel.evaluation.wording import policy_words

LEDGER_FILE, WAITING = "gates.json", "waiting"
MARGIN = 0.1  # of the range of the figures, around a chart


@dataclass(frozen=True)
class Night:
    """What the fresh tasks up to a night show, as shares.

    Attributes:
        run: The run that played it.
        tasks: So far, as all that follows.
        difference: Candidate minus the policy to beat.
        boundary: The difference that would have been promoted; None where none would.
    """

    run: str
    at: str
    tasks: int
    difference: float | None
    interval: tuple[float, float] | None
    boundary: float | None
    level: float | None


@dataclass(frozen=True)
class Confirmation:
    """A candidate of a work folder.

    Attributes:
        run: The run that made it.
        state: `waiting`, `promoted`, `dropped`, `replaced` or `ended`; `why` is a sentence.
        planned: Fresh tasks at which its level is wholly spent.
        level: Of the whole confirmation.
    """

    place: str
    run: str
    baseline: str
    began: str
    state: str
    why: str
    planned: int
    level: float
    nights: Sequence[Night]

    @property
    def ahead(self) -> list[tuple[int, float | None]]:
        """Fresh tasks and boundary of the nights to come, at the spread between tasks of the last night, while it waits."""
        last = self.nights[-1] if self.nights else None
        if self.state != WAITING or self.planned < 1 or not 0.0 < self.level < 1.0 or last is None:
            return []
        if not last.boundary or last.tasks < 1 or not 0.0 < (last.level or 0.0) < 0.5:
            return []
        spread = last.boundary * math.sqrt(last.tasks) / -NormalDist().inv_cdf(last.level or 0.0)
        counts = [max(1, night.tasks) for night in self.nights]
        looks = planned_looks(self.level, self.planned, spread, counts)[len(counts) :]
        return [
            (round((spread / error) ** 2), -NormalDist().inv_cdf(level) * error if 0.0 < level < 0.5 else None)
            for error, level in looks
        ]

    @property
    def curve(self) -> Curve | None:
        """Its difference with intervals and the boundary, in points, over the fresh tasks; None before the first night."""
        shown = [night for night in self.nights if night.difference is not None]
        if not shown:
            return None
        ours, limit = "difference so far", "promoted from here"
        limits = [(tasks, _points(edge)) for tasks, edge in [*((one.tasks, one.boundary) for one in shown), *self.ahead]]
        known = [value for _, value in limits if value is not None]
        known += [100 * night.difference for night in shown if night.difference is not None]
        low, high = min(0.0, *known), max(0.0, *known)
        edge = MARGIN * (high - low) or 1.0
        return Curve(
            f"Candidate of run {self.run}",
            {
                ours: [(night.tasks, _points(night.difference)) for night in shown],
                **({limit: limits} if any(value is not None for _, value in limits) else {}),
            },
            f"points over {policy_words(self.baseline)}, on fresh tasks",
            (low - edge, high + edge),
            bands={ours: [(one.tasks, 100 * one.interval[0], 100 * one.interval[1]) for one in shown if one.interval]},
            axis="fresh tasks",
            links={night.tasks: address("runs", self.place, night.run) for night in shown if night.run},
        )

    def is_of(self, run_id: str) -> bool:
        """Whether a run made it or played it."""
        return run_id in (self.run, *(night.run for night in self.nights))


def confirmations_of(place: Place) -> list[Confirmation]:
    """The candidates of a work folder, the newest first; none where its ledger cannot be read."""
    path = place.path / LEDGER_FILE
    try:
        lines = read_json(path) if path.is_file() else []
    except DataError:
        return []
    return [*_read(place, lines)][::-1] if isinstance(lines, list) else []


def confirmation_of(place: Place, run_id: str) -> Confirmation | None:
    """The candidate that a run made or played last."""
    return next((one for one in confirmations_of(place) if one.is_of(run_id)), None)


def waiting(library: Library) -> list[Confirmation]:
    """The candidates that wait, of all folders."""
    return [one for place in library.places.values() for one in confirmations_of(place) if one.state == WAITING]


@page("/candidates", "candidates.html")
def candidates(ask: Ask) -> dict[str, Any]:
    """All candidates of all folders."""
    found = [one for place in ask.desk.library.places.values() for one in confirmations_of(place)]
    return {"crumbs": [Crumb("Candidates")], "candidates": sorted(found, key=lambda one: one.began, reverse=True)}


def _read(place: Place, lines: Sequence[Any]) -> Iterator[Confirmation]:
    for line in lines:
        candidate = line.get("candidate") if isinstance(line, dict) else None
        if not isinstance(candidate, dict):
            continue
        nights = [_night(one) for one in candidate.get("nights") or () if isinstance(one, dict)]
        known = {name: str(line.get(name) or "") for name in ("baseline", "began", "why")}
        state, planned = str(line.get("verdict") or WAITING), _whole(candidate.get("planned"))
        level = _share(line.get("level")) or 0.0
        yield Confirmation(place.name, state=state, planned=planned, level=level, run=_run(line), nights=nights, **known)


def _night(values: Mapping[str, Any]) -> Night:
    ends = values.get("interval")
    both = [_share(end) for end in ends] if isinstance(ends, list) and len(ends) == 2 else []
    low, high = both if both and None not in both else (None, None)
    return Night(
        _run(values),
        str(values.get("at") or ""),
        _whole(values.get("tasks")),
        _share(values.get("difference")),
        (low, high) if low is not None and high is not None else None,
        _share(values.get("boundary")),
        _share(values.get("level")),
    )


def _run(values: Mapping[str, Any]) -> str:
    """The id of a run, for an address; "" where it is none."""
    found = str(values.get("run") or "")
    return found if RUN_ID.fullmatch(found) else ""


def _share(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _points(share: float | None) -> float | None:
    return None if share is None else 100 * share
