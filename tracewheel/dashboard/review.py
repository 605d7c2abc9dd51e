"""What a person looks at and says of a run: the queue of trajectories, the labels, and how far scores agree with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from tracewheel.comparison.finished_run import RL, FinishedRun
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.dashboard.episodes import cursor, parsed
from tracewheel.dashboard.judges import judged_apart
from tracewheel.dashboard.sources import Source, sources_of
from tracewheel.evaluation.changes import CHANGES_FILE
from tracewheel.operations.label_agreement import RANDOM, Scored
from tracewheel.operations.labels import Label, labels_of

LOST, UNSCORED, JUDGES, BORDERLINE = "lost", "unscored", "judges apart", "borderline"
REASONS = {
    LOST: "Tasks lost: the policy before solved them, and this one fails.",
    UNSCORED: "Unscored: the grader gave no verdict.",
    JUDGES: "Judges disagree most, with one another or with the verifier that decides.",
    BORDERLINE: "Borderline: some of the score, and not all of it.",
    RANDOM: "A random sample of the final evaluation. Only these estimate how often the grader is right over all.",
}
Place = tuple[str, str, str]
COLUMNS = "trajectory_id, task_id, family, status, total, breakdown, detail, filename"


@dataclass(frozen=True)
class Candidate:
    """A trajectory worth a look.

    Attributes:
        why: A key of `REASONS`.
        source: Where it is.
        trajectory, task, family, status, total, detail: As its score has them.
        rival: Of a lost task, the trajectory that solved it before.
    """

    why: str
    source: Source
    trajectory: str
    task: str
    family: str
    status: str
    total: float | None
    detail: str
    rival: tuple[Source, str] | None = None

    @property
    def place(self) -> Place:
        """For its labels."""
        return self.source.entry, self.source.part, self.trajectory


def queue_of(run: FinishedRun, most: int = 20) -> dict[str, list[Candidate]]:
    """The trajectories worth a look, by reason, at most `most` of each; the same at each call.

    Raises:
        DataError: a file is damaged.
    """
    sources = [source for source in sources_of(run) if source.scores]
    final = run.evaluation(RL)  # also of a run of an earlier version, whose entries do not say it
    ends = [one for one in sources if final is not None and one.entry == final.name]
    odd = "status <> 'scored' ORDER BY detail NOT LIKE '%Suspected%', trajectory_id"  # what waits for a person comes first
    between = "status = 'scored' AND total > 0 AND total < 1 ORDER BY abs(total - 0.5), trajectory_id"
    return {
        LOST: list(_lost(run, sources, most)),
        UNSCORED: list(_found(UNSCORED, sources, odd, most)),
        JUDGES: list(_judged(sources, most)),
        BORDERLINE: list(_found(BORDERLINE, sources, between, most)),
        RANDOM: list(_found(RANDOM, ends, "status = 'scored' ORDER BY md5(trajectory_id || 'review')", most)),
    }


def labels_at(run: FinishedRun, entry: str, part: str, trajectory: str) -> list[Label]:
    """What people say of one trajectory."""
    return [label for label in labels_of(run.record.path) if label.place == (entry, part, trajectory)]


def scores_at(run: FinishedRun, labels: Sequence[Label]) -> dict[Place, Scored]:
    """The scores of labelled trajectories, as far as the store still has them."""
    by_place = {(source.entry, source.part): source for source in sources_of(run) if source.scores}
    found: dict[Place, Scored] = {}
    for where in {(label.entry, label.part) for label in labels} & by_place.keys():
        wanted = [label.trajectory for label in labels if (label.entry, label.part) == where]
        for row in _rows([by_place[where]], "list_contains(?, trajectory_id)", [wanted]):
            found[(*where, row["trajectory_id"])] = _scored(row)
    return found


def has_trajectory(source: Source, trajectory: str) -> bool:
    """Whether a source has a trajectory."""
    database = cursor()
    try:
        found = database.execute(
            "SELECT 1 FROM read_parquet(?) WHERE id = ? LIMIT 1", [str(source.trajectories), trajectory]
        ).fetchone()
    except duckdb.Error as flaw:
        raise DataError(f"{source.trajectories}: cannot be read: {flaw}") from flaw
    finally:
        database.close()
    return found is not None


def _found(why: str, sources: Sequence[Source], where: str, most: int) -> Iterator[Candidate]:
    by_file = {str(source.scores): source for source in sources}
    for row in _rows(sources, f"{where} LIMIT {most}", []):
        yield _candidate(why, by_file[row["filename"]], row)


def _judged(sources: Sequence[Source], most: int) -> Iterator[Candidate]:
    by_file = {str(source.scores): source for source in sources}
    for row in judged_apart(sources, COLUMNS, most):
        yield _candidate(JUDGES, by_file[row["filename"]], row)


def _lost(run: FinishedRun, sources: Sequence[Source], most: int) -> Iterator[Candidate]:
    """The held-out tasks that the run's changes call lost."""
    path = run.record.path / CHANGES_FILE
    changes = read_json(path) if path.is_file() else []
    by_file = {f"{source.entry}/{source.part}/{source.trajectories.name}": source for source in sources}
    lost = [one for one in changes if one.get("change") == "lost"][:most]
    for one in lost:
        source, rival = by_file.get(str(one["challenger"].get("file"))), by_file.get(str(one["baseline"].get("file")))
        if source is None:
            continue
        rows = _rows([source], "trajectory_id = ?", [one["challenger"]["trajectory"]])
        for row in rows:
            found = _candidate(LOST, source, row)
            other = (rival, str(one["baseline"]["trajectory"])) if rival else None
            yield Candidate(**{**vars(found), "rival": other})


def _rows(sources: Sequence[Source], where: str, values: list[Any]) -> list[dict[str, Any]]:
    if not sources:
        return []
    database = cursor()
    try:
        found = database.execute(
            f"SELECT {COLUMNS} FROM read_parquet(?, filename=true, union_by_name=true) WHERE {where}",
            [[str(source.scores) for source in sources], *values],
        )
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    except duckdb.Error as flaw:
        raise DataError(f"the scores cannot be read: {flaw}") from flaw
    finally:
        database.close()


def _candidate(why: str, source: Source, row: dict[str, Any]) -> Candidate:
    trajectory, task, family, status = (str(row[name] or "") for name in ("trajectory_id", "task_id", "family", "status"))
    return Candidate(why, source, trajectory, task, family, status, row["total"], str(row["detail"] or ""))


def _scored(row: dict[str, Any]) -> Scored:
    breakdown = parsed(row["breakdown"])
    return Scored(
        str(row["task_id"]),
        str(row["family"] or ""),
        row["total"] if row["status"] == "scored" else None,
        breakdown if isinstance(breakdown, dict) else {},
    )
