"""A trajectory: turn by turn, beside another one, and token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracewheel.dashboard.branches import branches_of, rows_of
from tracewheel.dashboard.episodes import Episodes, one_trajectory, parsed, trajectory_at
from tracewheel.dashboard.facts import EpisodeFacts, facts_of
from tracewheel.dashboard.groups import Advantages, advantages_of
from tracewheel.dashboard.library import NotThere
from tracewheel.dashboard.pictures import film, tree_picture
from tracewheel.dashboard.sources import NO_PART, Source, rollouts_of, source_at
from tracewheel.dashboard.task_matrix import one_task
from tracewheel.dashboard.token_view import SHOWN, Tokens, TokenTexts, token_texts
from tracewheel.dashboard.transcript import aligned, how_it_differs, parts_of, state_changes, tools_of_run, transcript_of
from tracewheel.dashboard.view import Ask, Crumb, page, whole
from tracewheel.report.finished_run import FinishedRun

PATH = "/runs/{place}/{run_id}/episodes/{entry}/{part}/{trajectory}"
PROGRAM = "program"  # what a program left, in the final state: of rollout/harness/ends.py, whose imports are heavy
LANES = 4  # branches side by side


@page(PATH, "trajectory.html")
def trajectory(ask: Ask) -> dict[str, Any]:
    """The page of one episode."""
    entry, part, name = (ask.path[key] for key in ("entry", "part", "trajectory"))
    side = _side(ask.run, f"{entry}/{part}/{name}")
    source, found = side["source"], side["found"]
    task = one_task(ask.run, found["task_id"]) or {}
    before = parsed(task.get("initial_state"))
    first = ask.whole("branch")
    first = first // LANES * LANES if first < len(found["branches"]) else 0
    branches = branches_of(found, tools_of_run(ask.run), first, LANES)
    return {
        **side,
        "crumbs": [
            Crumb("Episodes", ask.address("episodes")),
            Crumb(source.label, ask.address("episodes", **_like(source))),
            Crumb(name),
        ],
        "entry": entry,
        "task": task,
        "branches": branches,
        "picture": tree_picture(branches),
        "rows": rows_of(found),
        "first_branch": first,
        "lanes_shown": LANES,
        "changes": state_changes(before, _world(found["final_state"])) if before else None,
        "advantages": advantages_at(ask.run, source),
    }


@page("/runs/{place}/{run_id}/pair", "pair.html")
def pair(ask: Ask) -> dict[str, Any]:
    """Two trajectories, aligned up to the first step that differs."""
    left, right = ask.query.get("left", ""), ask.query.get("right", "")
    return {"crumbs": [Crumb("Two trajectories")], "left": left, "right": right, **pair_of(ask.run, left, right)}


def pair_of(run: FinishedRun, left: str, right: str) -> dict[str, Any]:
    """Two trajectories by `ENTRY/PART/ID`: `sides`, their `rows`, how it `differs`, and the `task`."""
    sides = [_side(run, name) for name in (left, right) if name]
    rows = aligned(sides[0]["steps"], sides[1]["steps"]) if len(sides) == 2 else []
    task = one_task(run, sides[0]["found"]["task_id"]) if sides else None
    return {"sides": sides, "rows": rows, "differs": how_it_differs(rows), "task": task}


@page(f"{PATH}/tokens", "tokens.html")
def tokens(ask: Ask) -> dict[str, Any]:
    """A page of tokens, of a row alone with `?row=`; `?at=` opens one of them with all that the policy had read before it."""
    entry, part, name = (ask.path[key] for key in ("entry", "part", "trajectory"))
    source = source_at(ask.run, entry, part)
    found, advantages = one_trajectory(source, name), advantages_at(ask.run, source)
    every, texts, parted = Tokens.of(found, advantages.of(name)), token_texts(ask.run), rows_of(found)
    by, at, row = ask.one_of("by", every.views(), "mask"), _at(every, ask.query.get("at")), ask.whole("row", -1)
    chosen = row if 0 <= row < len(parted) else None
    places = every.row(chosen)
    first = ask.whole("from", 0 if at not in places else places.index(at) // SHOWN * SHOWN)
    own = ask.address("episodes", entry, part, name)
    return {
        "crumbs": [Crumb("Episodes", ask.address("episodes")), Crumb(name, own), Crumb("Tokens")],
        "source": source,
        "found": found,
        "here": ("runs", ask.path["place"], ask.path["run_id"], "episodes", entry, part, name, "tokens"),
        "by": by,
        "views": every.views(),
        "legend": every.legend(by),
        "tokens": every.shown(texts, by, first, row=chosen),
        "rows": parted,
        "row": chosen,
        "has_branches": bool(found["branches"]),
        "count": len(every.ids),
        "shown": len(places),
        "sampled": sum(every.mask),
        "first": first,
        "page_size": SHOWN,
        "texts": texts,
        "advantages": advantages,
        "opened": None if at is None else _opened(every, texts, at),
    }


def episode_facts(found: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> EpisodeFacts:
    """Outcome, failure kind and flaws of a trajectory, as the index has them."""
    score = {name: found.get(name) for name in ("status", "total", "breakdown")}
    messages, turns = (found[name] if isinstance(found[name], list) else [] for name in ("messages", "turns"))
    return facts_of(messages, turns, str(found["stop_reason"]), score, tools)


def advantages_at(run: FinishedRun, source: Source) -> Advantages:
    """The advantages of the iteration that a rollout belongs to."""
    if source.kind != "rollout" or source.iteration is None:
        return Advantages(why="an evaluation teaches nothing, so it has no advantages")
    return advantages_of(run, rollouts_of(run).get(source.iteration, []))


def others_of(source: Source, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The other episodes of the same task in the same stored result: a group's, or further samples."""
    return Episodes([source]).rows(
        "SELECT id, sample, outcome, total, tokens FROM {episodes} WHERE task_id = ? AND id <> ? ORDER BY sample, id LIMIT 32",
        [found["task_id"], found["id"]],
    )


def _side(run: FinishedRun, name: str) -> dict[str, Any]:
    source, found = trajectory_at(run, name)
    tools = tools_of_run(run)
    return {
        "source": source,
        "part_name": source.part or NO_PART,
        "found": found,
        "steps": transcript_of(found, tools),
        "parts": parts_of(found["breakdown"]),
        "facts": episode_facts(found, tools),
        "film": film(found["final_state"], run.settings),
        "others": others_of(source, found),
    }


def _world(state: Any) -> Any:
    """A final state without what the program itself left."""
    return {name: value for name, value in state.items() if name != PROGRAM} if isinstance(state, Mapping) else state


def _like(source: Source) -> dict[str, Any]:
    """The filters that give the episodes of a source."""
    if source.iteration is not None and source.kind == "rollout":
        return {"kind": source.kind, "iteration": source.iteration}
    return {"kind": source.kind, "policy": source.policy or None, "split": source.split or None}


def _at(every: Tokens, text: str | None) -> int | None:
    """The token that is asked for.

    Raises:
        NotThere: there are not so many.
    """
    at = whole(text, -1) if text is not None else None
    if at is not None and not 0 <= at < len(every.ids):
        raise NotThere(f"no token {text!r}; the trajectory has tokens 0 to {len(every.ids) - 1}")
    return at


def _opened(every: Tokens, texts: TokenTexts, at: int) -> dict[str, Any]:
    before = every.seen_before(at)
    return {
        "at": at,
        "text": texts.each([every.ids[at]])[0],
        "said": every.said(at),
        "turn": every.turns[at],
        "before": texts.together([every.ids[index] for index in before]),
        "count": len(before),
        "left_out": at - len(before),
    }
