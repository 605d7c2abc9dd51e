"""The tasks in the report's viewer: some of each outcome, so that losses are shown too."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from tracewheel.core.types import content_hash
from tracewheel.report.report_data import Change, Comparison, Episode
from tracewheel.scoring.rubric import success_of

if TYPE_CHECKING:
    import pandas as pd

ORDER: tuple[Change, ...] = ("gained", "lost", "failed", "solved", "unscored")
SPLITS = ("held_out", "harder")


def choose_examples(
    tasks: pd.DataFrame,
    episodes: Mapping[str, Mapping[str, Episode]],
    before: str,
    after: str,
    limit: int,
    pinned: Collection[str] = (),
) -> list[Comparison]:
    """Up to `limit` tasks of the held-out and harder splits: the pinned ones, and others in turn from each outcome.

    Args:
        tasks: Curated tasks: `task_id`, `split`, `family`, `tier`, `prompt`, `initial_state`.
        episodes: Policy key to task id to greedy episode.
        before: Policy to compare with `after`. Tasks that one of them has no episode of are left out.
        after: Policy to compare.
        limit: Maximum number of tasks.
        pinned: Ids of tasks that are among them in any case.
    """
    piles: dict[Change, list[Comparison]] = {change: [] for change in ORDER}
    rows = tasks[tasks["split"].isin(SPLITS)].to_dict("records")
    for row in sorted(rows, key=lambda row: content_hash(row["task_id"])):
        tried = {key: by_task[row["task_id"]] for key, by_task in episodes.items() if row["task_id"] in by_task}
        if before in tried and after in tried:
            change = change_of(tried[before], tried[after])
            piles[change].append(_comparison({str(key): value for key, value in row.items()}, change, tried))
    chosen = [item for pile in piles.values() for item in pile if item.task_id in set(pinned)]
    piles = {change: [item for item in pile if item.task_id not in set(pinned)] for change, pile in piles.items()}
    for rank in range(max(map(len, piles.values()))):
        chosen += [pile[rank] for pile in piles.values() if rank < len(pile)]
    return sorted(chosen[:limit], key=lambda item: (ORDER.index(item.outcome), item.tier, item.family, item.task_id))


def change_of(before: Episode, after: Episode) -> Change:
    """How success on a task changed from one policy to another."""
    if not before.status == after.status == "scored":
        return "unscored"
    match success_of(before.breakdown) >= 1.0, success_of(after.breakdown) >= 1.0:
        case False, True:
            return "gained"
        case True, False:
            return "lost"
        case True, True:
            return "solved"
        case _:
            return "failed"


def _comparison(row: Mapping[str, Any], change: Change, tried: Mapping[str, Episode]) -> Comparison:
    return Comparison(
        task_id=str(row["task_id"]),
        split=str(row["split"]),
        family=str(row["family"]),
        tier=int(row["tier"]),
        prompt=str(row["prompt"]),
        initial_state=json.loads(row["initial_state"]),
        outcome=change,
        episodes=tried,
    )
