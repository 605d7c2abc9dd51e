"""What a person looks at and says of a run: the queue of trajectories, the labels, and how far scores agree with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracewheel import DataError, FinishedRun, parse_json, read_json, select, sources_of
from tracewheel_labels.labels import RANDOM, Label, Scored

Place = tuple[str, str, str]
Source = Any  # of `sources_of`
CHANGES_FILE, RL = "changes.json", "rl"
LOST, UNSCORED, APART, BORDERLINE = "lost", "unscored", "judges apart", "borderline"
REASONS = {
    LOST: "Tasks lost: the policy before solved them, and this one fails.",
    UNSCORED: "Unscored: the grader gave no verdict.",
    APART: "Judges disagree most, with one another or with the verifier that decides.",
    BORDERLINE: "Borderline: some of the score, and not all of it.",
    RANDOM: "A random sample of the final evaluation. Only these estimate how often the grader is right over all.",
}
COLUMNS = "trajectory_id, task_id, family, status, total, breakdown, detail, filename"
LEAST = 0.25  # what counts as a disagreement worth a look
# A rubric's second judge of a kind is `judge#2` in the breakdown.
JUDGES, RANKERS = ([f"{kind}{place}" for place in ("", "#2", "#3", "#4")] for kind in ("judge", "relative_judge"))


def _part(name: str) -> str:
    return f"TRY_CAST(json_extract(breakdown, '$.\"{name}\"') AS DOUBLE)"


# Votes of one judge among themselves, and a judge against who decides; a ranker says nothing of success.
GAPS = [_part(f"{name}.disagreement") for name in (*JUDGES, *RANKERS)]
GAPS += [f"abs({_part(name)} - {_part('success')})" for name in JUDGES]
LARGEST_GAP = f"greatest({', '.join(f'coalesce({gap}, 0)' for gap in GAPS)})"


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
    final = run.evaluation(RL)
    ends = [one for one in sources if final is not None and one.entry == final.name]
    # What waits for a person comes first. A greedy and a sampled episode may have one id: then their files decide.
    odd = "status <> 'scored' ORDER BY detail NOT LIKE '%Suspected%', trajectory_id, filename"
    between = "status = 'scored' AND total > 0 AND total < 1 ORDER BY abs(total - 0.5), trajectory_id, filename"
    return {
        LOST: list(_lost(run, sources, most)),
        UNSCORED: _found(UNSCORED, sources, scores_where(sources, f"{odd} LIMIT {most}")),
        APART: _found(APART, sources, judged_apart(sources, most)),
        BORDERLINE: _found(BORDERLINE, sources, scores_where(sources, f"{between} LIMIT {most}")),
        RANDOM: _found(
            RANDOM,
            ends,
            scores_where(ends, f"status = 'scored' ORDER BY md5(trajectory_id || 'review'), filename LIMIT {most}"),
        ),
    }


def judged_apart(sources: Sequence[Source], most: int) -> list[dict[str, Any]]:
    """The scored episodes whose judges disagree most, with one another or with who decides; the explanation is their `detail`.

    Raises:
        DataError: a file is damaged.
    """
    if not sources:
        return []
    files = [str(source.scores) for source in sources]
    columns = select("DESCRIBE SELECT * FROM read_parquet(?, union_by_name=true)", [files], "the scores")
    if "explanation" not in {row["column_name"] for row in columns}:  # judges give one
        return []
    where = f"status = 'scored' AND {LARGEST_GAP} >= {LEAST} ORDER BY {LARGEST_GAP} DESC, trajectory_id, filename LIMIT {most}"
    rows = scores_where(sources, where, columns=f"{COLUMNS}, explanation")
    return [{**row, "detail": row["explanation"] or row["detail"]} for row in rows]


def check_place(run: FinishedRun, place: Place) -> None:
    """Make sure that a run has a trajectory.

    Raises:
        DataError: it has not.
    """
    entry, part, trajectory = place
    source = next((one for one in sources_of(run) if (one.entry, one.part) == (entry, part)), None)
    query = "SELECT 1 FROM read_parquet(?) WHERE id = ? LIMIT 1"
    if source is None or not select(query, [str(source.trajectories), trajectory], "the trajectories"):
        raise DataError(f"run {run.run_id} has no trajectory {trajectory!r} in {entry!r} {part}".rstrip())


def scores_at(run: FinishedRun, labels: Sequence[Label]) -> dict[Place, Scored]:
    """The scores of labelled trajectories, as far as the store still has them."""
    by_place = {(source.entry, source.part): source for source in sources_of(run) if source.scores}
    found: dict[Place, Scored] = {}
    for where in {(label.entry, label.part) for label in labels} & by_place.keys():
        wanted = [label.trajectory for label in labels if (label.entry, label.part) == where]
        for row in scores_where([by_place[where]], "list_contains(?, trajectory_id)", [wanted]):
            found[(*where, row["trajectory_id"])] = Scored(
                str(row["task_id"]),
                str(row["family"] or ""),
                row["total"] if row["status"] == "scored" else None,
                _breakdown(row["breakdown"]),
            )
    return found


def scores_where(
    sources: Sequence[Source], where: str, values: Sequence[Any] = (), columns: str = COLUMNS
) -> list[dict[str, Any]]:
    """Rows of the scores of some sources.

    Raises:
        DataError: a file is damaged.
    """
    if not sources:
        return []
    query = f"SELECT {columns} FROM read_parquet(?, filename=true, union_by_name=true) WHERE {where}"
    return select(query, [[str(source.scores) for source in sources], *values], "the scores")


def _breakdown(text: Any) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except (TypeError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _lost(run: FinishedRun, sources: Sequence[Source], most: int) -> Iterator[Candidate]:
    """The held-out tasks that the run's changes call lost."""
    path = run.record.path / CHANGES_FILE
    changes = read_json(path) if path.is_file() else []
    by_file = {f"{source.entry}/{source.part}/{source.trajectories.name}": source for source in sources}
    for one in [one for one in changes if one.get("change") == "lost"][:most]:
        source, rival = by_file.get(str(one["challenger"].get("file"))), by_file.get(str(one["baseline"].get("file")))
        if source is None:
            continue
        other = (rival, str(one["baseline"]["trajectory"])) if rival else None
        rows = scores_where([source], "trajectory_id = ?", [one["challenger"]["trajectory"]])
        yield from (replace(found, rival=other) for found in _found(LOST, [source], rows))


def _found(why: str, sources: Sequence[Source], rows: Sequence[dict[str, Any]]) -> list[Candidate]:
    by_file = {str(source.scores): source for source in sources}
    found = []
    for row in rows:
        trajectory, task, family, status = (str(row[name] or "") for name in ("trajectory_id", "task_id", "family", "status"))
        source, detail = by_file[row["filename"]], str(row["detail"] or "")
        found.append(Candidate(why, source, trajectory, task, family, status, row["total"], detail))
    return found
