"""The tokens of a trajectory, coloured, and what the policy had read when it came to one of them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.dashboard.branches import rows_of
from tracewheel.dashboard.episodes import one_trajectory
from tracewheel.dashboard.library import NotThere
from tracewheel.dashboard.pages.common import crumbs_of, one_of, run_of, whole
from tracewheel.dashboard.pages.trajectory import advantages_at
from tracewheel.dashboard.places import episode_address, source_at
from tracewheel.dashboard.run_tokenizer import TokenTexts, token_texts
from tracewheel.dashboard.token_view import SHOWN, Tokens
from tracewheel.dashboard.view import Crumb, View, address

router = APIRouter()


@router.get("/runs/{place}/{run_id}/episodes/{entry}/{part}/{trajectory}/tokens")
def tokens(request: Request, place: str, run_id: str, entry: str, part: str, trajectory: str) -> Response:
    """A page of tokens, of a row alone with `?row=`; `?at=` opens one of them with all that the policy had read before it."""
    view: View = request.app.state.view
    run, row = run_of(request, place, run_id)
    source = source_at(run, entry, part)
    found = one_trajectory(source, trajectory)
    advantages = advantages_at(run, source)
    every = Tokens.of(found, advantages.of(trajectory))
    texts = token_texts(run)
    asked = request.query_params
    by = one_of(asked.get("by"), every.views(), "mask")
    at = _at(every, asked.get("at"))
    parted = rows_of(found)
    row_number = whole(asked.get("row"), -1)
    chosen = row_number if 0 <= row_number < len(parted) else None
    places = every.row(chosen)
    first = whole(asked.get("from"), 0 if at not in places else places.index(at) // SHOWN * SHOWN)
    here = ("runs", place, run_id, "episodes", entry, part, trajectory, "tokens")
    return view.page(
        request,
        "tokens.html",
        run=row,
        crumbs=crumbs_of(
            row,
            Crumb("Episodes", address("runs", place, run_id, "episodes")),
            Crumb(trajectory, episode_address(place, run_id, entry, part, trajectory)),
            Crumb("Tokens"),
        ),
        source=source,
        found=found,
        here=here,
        by=by,
        views=every.views(),
        legend=every.legend(by),
        tokens=every.shown(texts, by, first, row=chosen),
        rows=parted,
        row=chosen,
        has_branches=bool(found["branches"]),
        count=len(every.ids),
        shown=len(places),
        sampled=sum(every.mask),
        first=first,
        page_size=SHOWN,
        texts=texts,
        advantages=advantages,
        opened=None if at is None else _opened(every, texts, at),
    )


def _at(every: Tokens, text: str | None) -> int | None:
    """The token that is asked for.

    Raises:
        NotThere: there are not so many.
    """
    if text is None:
        return None
    at = whole(text, -1)
    if not 0 <= at < len(every.ids):
        raise NotThere(f"no token {text!r}; the trajectory has tokens 0 to {len(every.ids) - 1}")
    return at


def _opened(every: Tokens, texts: TokenTexts, at: int) -> dict[str, Any]:
    before = every.seen_before(at)
    turn = every.turns[at]
    return {
        "at": at,
        "text": texts.each([every.ids[at]])[0],
        "said": every.said(at),
        "turn": turn,
        "before": texts.together([every.ids[index] for index in before]),
        "count": len(before),
        "left_out": at - len(before),
    }
