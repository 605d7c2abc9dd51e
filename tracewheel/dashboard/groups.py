"""Groups of rollouts, which the learner compares, and the advantages of their episodes."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tracewheel.core.errors import ConfigError, DataError
from tracewheel.dashboard.episodes import Episodes
from tracewheel.dashboard.library import NotThere
from tracewheel.dashboard.sources import Source
from tracewheel.learner.auto import as_kind, kind_of
from tracewheel.report.finished_run import FinishedRun
from tracewheel.scoring.adjustments import PROCESS

MOST = 256  # episodes of a group on its page
MOST_KNOWN = 16  # iterations whose advantages are kept
_KNOWN: dict[Any, Advantages] = {}
SORTS = {
    "group": '"group"',
    "reward": "mean_reward",
    "spread": "spread",
    "solved": "solved",
    "tokens": "mean_tokens",
}


def group_rows(
    sources: Sequence[Source], sort: str, up: bool, first: int, shown: int, kinds: str = ""
) -> tuple[list[dict[str, Any]], int]:
    """Groups of some rollouts, a page of them, and how many there are.

    Args:
        sources: The rollouts of an iteration.
        sort: A key of `SORTS`.
        up: Smallest first.
        first: How many to leave out.
        shown: At most so many.
        kinds: `mixed` for those with a signal, `solved` and `failed` for those where all episodes did alike; "" for all.
    """
    having = {
        "mixed": "HAVING max(total) > min(total)",
        "solved": "HAVING min(solves) = 1",
        "failed": "HAVING max(solves) = 0",
    }.get(kinds, "")
    query = f"""
        SELECT "group", any_value(task_id) task_id, any_value(family) family, min(place) place, count(*) episodes,
            count(total) scored, avg(total) mean_reward, min(total) least, max(total) most,
            coalesce(stddev_pop(total), 0) spread, sum(solves)::INTEGER solved, avg(tokens) mean_tokens,
            count(*) OVER () found
        FROM (SELECT *, CASE WHEN outcome = 'solved' THEN 1 ELSE 0 END solves FROM {{episodes}})
        GROUP BY "group" {having}
        ORDER BY {SORTS[sort]} {"ASC" if up else "DESC"} NULLS LAST, "group" LIMIT ? OFFSET ?"""
    rows = Episodes(sources).rows(query, [shown, first])
    return rows, rows[0]["found"] if rows else 0


def group_at(sources: Sequence[Source], group: str) -> list[dict[str, Any]]:
    """The episodes of a group, in the order of their samples.

    Raises:
        NotThere: the rollouts have no such group.
    """
    rows = Episodes(sources).rows(
        "SELECT id, task_id, sample, seed, policy_version, temperature, turns, messages, branches, stop_reason, detail, "
        'tokens, generated, status, total, breakdown, family, why, outcome, place FROM {episodes} WHERE "group" = ? '
        f"ORDER BY sample, id LIMIT {MOST}",
        [group],
    )
    if not rows:
        raise NotThere(f"no group {group!r} in {', '.join(source.label for source in sources)}")
    return rows


def neighbours_of(sources: Sequence[Source], group: str) -> tuple[str | None, str | None]:
    """The groups before and after one, by name."""
    rows = Episodes(sources).rows(
        'SELECT max("group") FILTER ("group" < ?) before, min("group") FILTER ("group" > ?) after FROM {episodes}',
        [group, group],
    )
    return (rows[0]["before"], rows[0]["after"]) if rows else (None, None)


LEARNER = "tracewheel.learner.token_advantages"
COLUMNS = ("id", "group", "turns", "stop_reason")
SCORED = ("trajectory_id", "total", "turn_rewards", "baseline", "family", "environment", "breakdown")
NOT_KEPT = "the learner computed them with a {}, whose values are not stored"


@dataclass(frozen=True)
class Advantages:
    """Advantages of an iteration.

    Attributes:
        turns: Trajectory id to the advantage of each of its turns; missing where the episode took no part in the update.
        why: Why there are none; "" where there are.
        note: What the stored data cannot reproduce.
        is_pending: Whether they follow in a moment.
    """

    turns: Mapping[str, Sequence[float]] = field(default_factory=dict)
    why: str = ""
    note: str = ""
    is_pending: bool = False

    def of(self, trajectory: str) -> Sequence[float]:
        """Of one episode; empty where it has none."""
        return self.turns.get(trajectory, ())


def advantages_of(run: FinishedRun, sources: Sequence[Source]) -> Advantages:
    """The advantages of the episodes of one iteration.

    Args:
        run: For its settings.
        sources: All rollouts of the iteration: some advantages compare all of them.
    """
    if not sources or any(source.scores is None for source in sources):
        return Advantages(why="the episodes are not scored yet")
    try:
        learner = run.config.learner
    except (ConfigError, DataError) as flaw:
        return Advantages(why=f"this version does not know the run's settings: {flaw}")
    if learner.kind == "auto":
        made = [entry.metadata["result"] for entry in run.of_stage("update") if entry.is_stored]
        if not made:
            return Advantages(why="the first update has not chosen the algorithm yet")
        learner = as_kind(learner, kind_of(made[0]))
    if LEARNER not in sys.modules:  # torch takes seconds, which no page waits for
        warm_up()
        return Advantages(why="the learner is being loaded, which takes a few seconds once", is_pending=True)
    files = tuple((source.trajectories, source.scores or source.trajectories) for source in sources)
    key = (learner.model_dump_json(), files)
    if key not in _KNOWN:
        while len(_KNOWN) >= MOST_KNOWN:
            del _KNOWN[next(iter(_KNOWN))]
        _KNOWN[key] = _computed(learner, files)
    return _KNOWN[key]


def warm_up() -> None:
    """Import what the learner needs in the background: it takes seconds, once."""
    if LEARNER not in sys.modules and not any(thread.name == LEARNER for thread in threading.enumerate()):
        threading.Thread(target=importlib.import_module, args=(LEARNER,), name=LEARNER, daemon=True).start()


def _computed(learner: Any, files: Sequence[tuple[Path, Path]]) -> Advantages:
    import numpy as np

    from tracewheel.config import GaeAdvantageConfig, PolicyGradientConfig, TeacherAdvantageConfig

    if not isinstance(learner, PolicyGradientConfig):
        return Advantages(why=f"the learner {learner.kind!r} has no advantages")
    if isinstance(learner.advantage, GaeAdvantageConfig):
        return Advantages(why=NOT_KEPT.format("critic"))
    if isinstance(learner.advantage, TeacherAdvantageConfig):
        return Advantages(why=NOT_KEPT.format("teacher model"))
    frame = _frame(files)
    taking_part = np.isfinite(frame["reward"].to_numpy(dtype="float64")) & (frame["turns"].map(len) > 0).to_numpy()
    if learner.truncated == "mask":
        from tracewheel.learner.scored_trajectories import truncated

        taking_part &= ~truncated(frame)
    frame = frame[taking_part].reset_index(drop=True)
    from tracewheel.learner.token_advantages import advantages_by_group
    from tracewheel.learner.trajectory_table import TrajectoryTable

    try:
        kept, values = advantages_by_group(learner, TrajectoryTable(frame), 0.0)
    except DataError as flaw:
        return Advantages(why=str(flaw))
    # One token stands for each turn, with one between: see `_frame`.
    rows = {str(frame["id"][at]): [float(value) for value in values[at][::2]] for at in kept.tolist()}
    return Advantages(rows, note=_note(learner))


def _note(learner: Any) -> str:
    missing = []
    if learner.kl.place == "reward":
        missing.append("the KL penalty on the reward, whose log-probabilities are not stored")
    if learner.off_policy.max_staleness is not None:
        missing.append("the limit of staleness")
    return f"Without {', and '.join(missing)}." if missing else ""


def _frame(files: Sequence[tuple[Path, Path]]) -> Any:
    """The episodes with a mask in which one token stands for each turn: advantages are equal within a turn."""
    import pandas as pd

    from tracewheel.core.files import read_columns, read_table

    tables = []
    for trajectories, scores in files:
        there = set(read_columns(scores))
        scored = read_table(scores, [name for name in SCORED if name in there])
        tables.append(read_table(trajectories, list(COLUMNS)).merge(scored, left_on="id", right_on="trajectory_id", how="left"))
    frame = pd.concat(tables, ignore_index=True)
    frame["turns"] = frame["turns"].map(orjson.loads)
    frame["action_mask"] = frame["turns"].map(lambda turns: [1, 0] * len(turns))
    frame["reward"] = frame["total"].astype("float64")
    process = frame["breakdown"].map(lambda text: (orjson.loads(text) if isinstance(text, str) else {}).get(PROCESS, 0.0))
    frame["outcome"] = frame["reward"] - process.astype("float64")
    if "turn_rewards" in frame:
        given = [None if rewards is None or isinstance(rewards, float) else list(rewards) for rewards in frame["turn_rewards"]]
        frame["turn_rewards"] = pd.Series(given, index=frame.index, dtype=object)
    if "baseline" in frame and frame["baseline"].isna().all():
        frame = frame.drop(columns="baseline")
    return frame.drop(columns=["trajectory_id", "breakdown"])
