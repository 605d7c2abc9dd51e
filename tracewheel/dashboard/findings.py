"""The doctor's findings of a run, each with the episodes that it is about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.dashboard.episodes import Episodes
from tracewheel.dashboard.measured import read_small
from tracewheel.dashboard.run_rows import FINDINGS_FILE
from tracewheel.dashboard.sources import Source
from tracewheel.report.doctor.finding import Finding, worst_first

TRAJECTORY = re.compile(r"[0-9a-f]{16,64}")
MOST = 200


@dataclass(frozen=True)
class Shown:
    """A finding, its figures in words, and where its examples are.

    Attributes:
        episodes: For each list of examples its name, and the trajectories' ids with the source that holds them.
        entries: For each iteration that it concerns, a stored result with its rollouts.
    """

    finding: Finding
    figures: dict[str, Any]
    episodes: list[tuple[str, list[tuple[str, Source]]]]
    entries: list[tuple[int, str]]


def findings_of(run: FinishedRun, sources: list[Source]) -> list[Shown]:
    """The findings of a run, the worst first; none where the doctor has not looked."""
    records = read_small(run.record.path / FINDINGS_FILE).get("findings") or []
    found = []
    for record in records:
        try:
            found.append(Finding.from_record(record))
        except (TypeError, KeyError):  # of another version
            continue
    named = {one for finding in found for _, ids in _lists(finding) for one in ids}
    where = _places(sources, sorted(named)[:MOST])
    by_iteration = {one.iteration: one.entry for one in reversed(sources) if one.kind == "rollout"}
    return [
        Shown(
            finding=finding,
            figures={name: value for name, value in finding.evidence.items() if not _is_list_of_ids(value)},
            episodes=[
                (name, [(one, where[one]) for one in ids if one in where])
                for name, ids in _lists(finding)
                if any(one in where for one in ids)
            ],
            entries=[(number, by_iteration[number]) for number in finding.iterations if number in by_iteration],
        )
        for finding in worst_first(found)
    ]


def _lists(finding: Finding) -> Iterator[tuple[str, list[str]]]:
    for name, value in finding.evidence.items():
        if _is_list_of_ids(value):
            yield name, value


def _is_list_of_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) and TRAJECTORY.fullmatch(one) for one in value)


def _places(sources: list[Source], ids: list[str]) -> dict[str, Source]:
    rollouts = [one for one in sources if one.kind == "rollout"]
    if not ids or not rollouts:
        return {}
    marks = ", ".join("?" for _ in ids)
    rows = Episodes(rollouts).rows(f"SELECT id, place FROM {{episodes}} WHERE id IN ({marks})", ids)
    return {str(row["id"]): rollouts[row["place"]] for row in rows}
