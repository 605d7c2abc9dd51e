"""Groups of rollouts: the episodes of one task in one iteration, which the learner compares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracewheel.dashboard.episodes import Episodes
from tracewheel.dashboard.library import NotThere
from tracewheel.dashboard.sources import Source

MOST = 256  # episodes of a group on its page
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
