"""Judges on the dashboard: the episodes on which they disagree, and the marks of both rubrics over time."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.core.errors import DataError
from tracewheel.core.run_record import LOOP_FILE
from tracewheel.dashboard.episodes import cursor
from tracewheel.dashboard.measured import Evaluation, read_small
from tracewheel.dashboard.sources import Source
from tracewheel.report.both_rubrics import rubric_curves, rubrics_of
from tracewheel.report.report_data import BothRubrics, Curve

LEAST = 0.25  # what counts as a disagreement worth a look
# A rubric's second judge of a kind is `judge#2` in the breakdown.
PLACES = ("", "#2", "#3", "#4")
JUDGES = [f"judge{place}" for place in PLACES]
RANKERS = [f"relative_judge{place}" for place in PLACES]


def _part(name: str) -> str:
    return f"TRY_CAST(json_extract(breakdown, '$.\"{name}\"') AS DOUBLE)"


# Votes of one judge among themselves, and a judge against who decides; a ranker says nothing of success.
GAPS = [_part(f"{name}.disagreement") for name in (*JUDGES, *RANKERS)]
GAPS += [f"abs({_part(name)} - {_part('success')})" for name in JUDGES]
APART = f"greatest({', '.join(f'coalesce({gap}, 0)' for gap in GAPS)})"


def judged_apart(sources: Sequence[Source], columns: str, most: int) -> list[dict[str, Any]]:
    """The scored episodes whose judges disagree most, with one another or with who decides; the explanation is their `detail`.

    Args:
        sources: With scores.
        columns: Columns of the scores, and `filename`.
        most: How many.

    Raises:
        DataError: a file is damaged.
    """
    if not sources:
        return []
    database = cursor()
    try:
        files = [str(source.scores) for source in sources]
        table = "read_parquet(?, filename=true, union_by_name=true)"
        known = {row[0] for row in database.execute(f"DESCRIBE SELECT * FROM {table}", [files]).fetchall()}
        if "explanation" not in known:  # judges give one
            return []
        found = database.execute(
            f"SELECT {columns}, explanation FROM {table} WHERE status = 'scored' AND {APART} >= {LEAST} "
            f"ORDER BY {APART} DESC, trajectory_id LIMIT {most}",
            [files],
        )
        names = [column[0] for column in found.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    except duckdb.Error as flaw:
        raise DataError(f"the scores cannot be read: {flaw}") from flaw
    finally:
        database.close()
    return [{**row, "detail": row["explanation"] or row["detail"]} for row in rows]


def judge_curves(run: FinishedRun, loop: Path) -> list[Curve]:
    """The mean reward of both rubrics by validation; none without one that is held back, or where scores cannot be read."""
    entries = read_small(loop / LOOP_FILE).get("validations") or {}
    with contextlib.suppress(DataError):
        return rubric_curves({int(number): run.store / str(entry) for number, entry in entries.items()})
    return []


def rubric_rows(run: FinishedRun, evaluations: Mapping[str, Evaluation]) -> list[BothRubrics]:
    """What each policy gets by both rubrics on held-out tasks; without those whose scores cannot be read."""
    found = []
    for policy, one in evaluations.items():
        with contextlib.suppress(DataError):
            found.append(rubrics_of(policy, [run.store / one.entry]))
    return [both for both in found if both is not None]
