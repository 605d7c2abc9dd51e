"""Groups of rollouts by iteration, and the episodes of a group side by side."""

from __future__ import annotations

from typing import Any

from tracewheel.dashboard.episodes import parsed
from tracewheel.dashboard.groups import SORTS, advantages_of, group_at, group_rows, neighbours_of, warm_up
from tracewheel.dashboard.library import NotThere, entry_path
from tracewheel.dashboard.sources import rollouts_of
from tracewheel.dashboard.transcript import parts_of, tools_of_run, transcript_of
from tracewheel.dashboard.view import Ask, Crumb, Tab, page

KINDS = ("mixed", "solved", "failed")
VALUES = ("turns", "messages", "branches", "breakdown")


@page("/runs/{place}/{run_id}/groups", "groups.html", part="table", tab=Tab("Groups", "u", 3))
def groups(ask: Ask) -> dict[str, Any]:
    """The groups of an iteration, the last one by default."""
    found, order = rollouts_of(ask.run), ask.order(SORTS, "spread")
    iterations = sorted(found)
    iteration = ask.whole("iteration", iterations[-1] if iterations else 0)
    at = iterations.index(iteration) if iteration in iterations else -1
    kind, sources = ask.one_of("kind", KINDS, ""), found.get(iteration, [])
    rows, count = group_rows(sources, order["sort"], order["up"], order["first"], order["page_size"], kind)
    warm_up()
    return {
        **order,
        "iterations": iterations,
        "iteration": iteration,
        "before": iterations[at - 1] if at > 0 else None,
        "after": iterations[at + 1] if 0 <= at < len(iterations) - 1 else None,
        "sources": sources,
        "rows": rows,
        "found": count,
        "kinds": KINDS,
    }


@page("/runs/{place}/{run_id}/groups/{entry}/{group}", "group.html")
def group(ask: Ask) -> dict[str, Any]:
    """The episodes of a group, with rewards and advantages."""
    entry, name = ask.path["entry"], ask.path["group"]
    entry_path(ask.run, entry)
    by_iteration = rollouts_of(ask.run).items()
    iteration, sources = next(((n, some) for n, some in by_iteration if entry in (one.entry for one in some)), (0, []))
    own = [source for source in sources if source.entry == entry]
    if not own:
        raise NotThere(f"{entry}: holds no rollouts")
    advantages, tools = advantages_of(ask.run, sources), tools_of_run(ask.run)
    episodes = []
    for row in group_at(own, name):
        one = row | {key: parsed(row[key]) for key in VALUES}
        steps, parts = transcript_of(one, tools), parts_of(one["breakdown"])
        episodes.append(one | {"steps": steps, "parts": parts, "advantages": advantages.of(one["id"])})
    before, after = neighbours_of(own, name)
    return {
        "crumbs": [Crumb(f"Groups of iteration {iteration}", ask.address("groups", iteration=iteration)), Crumb(name)],
        "entry": entry,
        "group": name,
        "iteration": iteration,
        "episodes": episodes,
        "advantages": advantages,
        "before": before,
        "after": after,
    }
