"""The result of a backtest as JSON types, equal for equal logs, profile and code: no seconds are in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tracewheel.backtest.figures import area_of, compare, daily
from tracewheel.backtest.plan import Window
from tracewheel.backtest.promotions import false_promotions, judge_promotions
from tracewheel.backtest.serving import FIRST, Served, serve, with_scores
from tracewheel.core.files import read_table
from tracewheel.curation.curated_folder import TASKS_FILE, TRAIN, VALIDATION
from tracewheel.curation.split_record import SplitRecord

if TYPE_CHECKING:
    import pandas

ENDS = ("promoted", "refused", "skipped", "held", "failed", "no logs")
Used = tuple[frozenset[str], frozenset[str]]
UNUSED: Used = (frozenset(), frozenset())


class Tick(Protocol):
    """A scheduled run that is over; `tasks.records.ticks.Tick`."""

    @property
    def at(self) -> str: ...
    @property
    def end(self) -> str: ...
    @property
    def run(self) -> str | None: ...
    @property
    def figures(self) -> dict[str, Any]: ...
    @property
    def champion(self) -> str | None: ...
    @property
    def held(self) -> list[dict[str, Any]]: ...
    @property
    def new(self) -> int: ...


@dataclass(frozen=True)
class BranchRecord:
    """A branch: its cadence, the settings of its gate that differ from the profile's, and its ticks."""

    cadence: str
    gate: Mapping[str, Any]
    ticks: Sequence[Tick]


def used_in(curated: Path) -> Used:
    """What a run on a curation trained or selected on: fingerprints of tasks, and identities of their components.

    The identities are those of all earlier curations, too.
    """
    tasks = read_table(curated / TASKS_FILE, ["fingerprint", "split"])
    record = SplitRecord.of_curated(curated)
    related = frozenset(key for key, state in record.states.items() if state.trained or state.selected)
    return frozenset(tasks.loc[tasks["split"].isin([TRAIN, VALIDATION]), "fingerprint"]), related


def served_by(ticks: Sequence[Tick], used: Sequence[Used]) -> list[Served]:
    """What served from when on: a record for each tick."""
    found: list[Served] = []
    policy, tasks, related = FIRST, frozenset[str](), frozenset[str]()
    for tick, (own, components) in zip(ticks, used, strict=True):
        policy = tick.champion or policy
        tasks, related = tasks | own, related | components
        found.append(Served(datetime.fromisoformat(tick.at), policy, tasks, related))
    return found


def result_of(
    window: Window,
    asked: pandas.DataFrame,
    exam: Mapping[str, Any],
    branches: Mapping[str, BranchRecord],
    used: Mapping[str, Sequence[Used]],
    scores: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    """The result.

    Args:
        window: The days.
        asked: The exam (`exam.ASKED_FILE`).
        exam: What `make_exam` returned.
        branches: By name.
        used: Branch to what the run of each tick trained or selected on.
        scores: Policy to task id to greedy success.
    """
    fair, strict, judged = {}, {}, {}
    for name, branch in branches.items():
        served = served_by(branch.ticks, used[name])
        rows = with_scores(serve(asked, served), scores)
        fair[name] = rows[~rows["used"]]
        strict[name] = rows[~rows["used"] & ~rows["related"]]
        known, related = int(rows["used"].sum()), int((rows["related"] & ~rows["used"]).sum())
        promotions = judge_promotions(asked, [Served(window.begin, FIRST), *served], scores)
        judged[name] = {
            "cadence": branch.cadence,
            "gate": dict(branch.gate),
            "points": area_of(fair[name]).to_record(),
            "points_unrelated": area_of(strict[name]).to_record(),
            "over_first_champion": _over_first(rows, served, scores),
            "asked": {"all": len(rows), "used_before": known, "related_to_used": related},
            "runs": {end: sum(tick.end == end for tick in branch.ticks) for end in ENDS},
            "held": _held(branch.ticks),
            "false_promotions": false_promotions(promotions),
            "promotions": [one.to_record() for one in promotions],
            "days": daily(fair[name]),
            "ticks": [_tick(tick) for tick in branch.ticks],
        }
    return {
        "window": {"from": str(window.first), "to": str(window.last), "zone": window.zone, "days": len(window.days())},
        "exam": dict(exam),
        "branches": judged,
        "comparison": {"all": compare(fair), "unrelated": compare(strict)},
    }


def _over_first(
    rows: pandas.DataFrame, served: Sequence[Served], scores: Mapping[str, Mapping[str, float]]
) -> dict[str, Any] | None:
    """The area over the first champion, which a team that trains once and never again would have; None without one."""
    first = next((one for one in served if one.policy != FIRST), None)
    if first is None:
        return None
    later = rows[(rows["at"] >= round(first.since.timestamp() * 1_000_000)) & ~rows["used"]]
    return area_of(later.assign(first=later["task_id"].map(scores[first.policy]))).to_record()


def _held(ticks: Sequence[Tick]) -> dict[str, Any]:
    """Ticks with a batch that was held, its records, and the days that it is of: all since the tick before.

    What was logged before the first tick is no day of the window.
    """
    held = [(place, tick) for place, tick in enumerate(ticks) if tick.held]
    moments = [datetime.fromisoformat(tick.at) for tick in ticks]
    return {
        "ticks": [tick.at for _, tick in held],
        "records": sum(batch["records"] for _, tick in held for batch in tick.held),
        "days": sum((moments[place] - moments[place - 1]) / timedelta(days=1) for place, _ in held if place),
    }


def _tick(tick: Tick) -> dict[str, Any]:
    return {
        "at": tick.at,
        "end": tick.end,
        "run": tick.run,
        "new": tick.new,
        "champion": tick.champion,
        "held": tick.held,
        "figures": tick.figures,
    }
