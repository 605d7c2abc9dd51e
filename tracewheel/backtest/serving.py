"""Which policy served each task of the exam, and whether the branch had used the task, or something related, before.

A *branch* is the replay of one cadence and one gate. Its *ticks* say which policy serves from when on, and which tasks runs had
trained or selected on until then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

FIRST = "first"


@dataclass(frozen=True)
class Served:
    """What holds from a moment on, until the next.

    Attributes:
        since: The moment.
        policy: Digest of the policy's weights; `FIRST` is the one before any run.
        used: Fingerprints of the tasks that complete runs have trained or selected on.
        related: Identities (`split_record.identity_key`) of all components that they have trained or selected on.
    """

    since: datetime
    policy: str
    used: frozenset[str] = frozenset()
    related: frozenset[str] = frozenset()


def serve(asked: pandas.DataFrame, served: Sequence[Served]) -> pandas.DataFrame:
    """The rows of the exam with `policy`, `used` (the task itself was trained or selected on) and `related` (its component).

    Args:
        asked: The exam (`exam.ASKED_FILE`).
        served: In the order of time, the first not after any row.
    """
    starts = [round(one.since.timestamp() * 1_000_000) for one in served]
    places = [max(0, sum(start <= at for start in starts) - 1) for at in asked["at"]]
    rows = list(zip(places, asked["fingerprint"], asked["keys"], strict=True))
    return asked.assign(
        policy=[served[place].policy for place in places],
        used=[print in served[place].used for place, print, _ in rows],
        related=[is_related(keys, served[place]) for place, _, keys in rows],
    )


def is_related(keys: Collection[str], served: Served) -> bool:
    """Whether something of the task's component was trained or selected on."""
    return any(key in served.related for key in keys)


def with_scores(rows: pandas.DataFrame, scores: Mapping[str, Mapping[str, float]]) -> pandas.DataFrame:
    """The rows with `score`, that of the policy that served, and `first`, that of the first policy; NaN where it has none.

    Args:
        rows: From `serve`.
        scores: Policy to task id to greedy success.
    """
    nan = float("nan")
    pairs = zip(rows["policy"], rows["task_id"], strict=True)
    return rows.assign(
        score=[scores.get(policy, {}).get(task, nan) for policy, task in pairs],
        first=[scores[FIRST].get(task, nan) for task in rows["task_id"]],
    )
