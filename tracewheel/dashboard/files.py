"""Pages as files that open without a server: the report of a run, several runs, and the pages of other results.

A file holds its style and no script; a content security policy forbids all else.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request

from tracewheel.core.errors import DataError, InputError
from tracewheel.core.run_record import RunRecord
from tracewheel.core.store import write_whole
from tracewheel.curation.curated_folder import HARDER, HELD_OUT
from tracewheel.dashboard.app import create_app
from tracewheel.dashboard.findings import audit_section
from tracewheel.dashboard.library import Library
from tracewheel.dashboard.one_file import Piece, together
from tracewheel.dashboard.sources import stored_sources
from tracewheel.dashboard.task_matrix import SOLVED, columns_of, task_rows, with_trajectories
from tracewheel.dashboard.view import HERE, OF_RUN, Page, address, render
from tracewheel.report.finished_run import RL, FinishedRun

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from tracewheel.report.document import Section

HOST = b"127.0.0.1"
QUALITY_PAGE, AUDIT_PAGE = "quality.html", "audit.html"
COMPARE = "/compare"
MOST_PAIRS, MOST_CHANGED = 80, 60  # tasks of a report whose episodes before and after stand side by side
COPY = "A copy of pages of the dashboard; nothing in it is loaded from elsewhere."
QUALITY_LINKS = ("funnel", "outcomes", "failures", "tools", "lengths", "trust")


def page_file(title: str, main: Markup, links: Mapping[str, str] | None = None, foot: str = "") -> str:
    """A page of HTML as a file of its own, in the style of all pages.

    Args:
        title: Of the file.
        main: What it shows; text of others is escaped in it.
        links: Anchors in it to their names in the bar at the top.
        foot: Its last line.
    """
    style, digest = _style()
    html = render("file.html", title=title, main=main, links=links or {}, foot=foot, style=style, digest=digest)
    return html.encode("utf-8", "replace").decode()


def write_quality_page(data: Mapping[str, Any], out: Path) -> Path:
    """Write the page for the contents of a `quality.json` into the folder `out`."""
    main = Markup("<h1>{}</h1>{}").format(data["headline"], Markup(render("quality.html", data=data)))
    links = {name: name.capitalize() for name in (*QUALITY_LINKS, *(["examples"] if data["examples"] else []))}
    write_whole(out / QUALITY_PAGE, page_file("Data quality", main, links))
    return out / QUALITY_PAGE


def write_audit_page(result: Mapping[str, Any], out: Path) -> Path:
    """Write the page of an audit's result into a folder."""
    title = f"Audit of graders: {result['verdict']}"
    main = Markup("<h1>{}</h1>{}").format(title, audit_section(result, whole=True))
    write_whole(out / AUDIT_PAGE, page_file(title, main))
    return out / AUDIT_PAGE


def write_page(title: str, sections: Sequence[Section], out: Path) -> Path:
    """Write sections of sentences, tables and quotes as a page of its own, whose text is escaped; returns the file."""
    write_whole(out, document_file(title, sections))
    return out


def document_file(title: str, sections: Sequence[Section]) -> str:
    """Sections as a page."""
    anchors = {f"part-{number}": section for number, section in enumerate(sections)}
    main = Markup(render("document.html", title=title, sections=anchors))
    return page_file(title, main, {anchor: section.heading for anchor, section in anchors.items()})


def export_runs(records: Sequence[RunRecord], out: Path, ending: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Write the report of a run, or a comparison of several with the overview of each.

    Args:
        records: The runs; the first of several is what the others are compared with.
        out: The file.
        ending: The summary of a run that is about to end, whose record has none yet.

    Returns:
        `out`, `pages` (their labels) and `bytes`.

    Raises:
        InputError: no run is named, or one twice; or several are, and the wheel that compares them is not installed.
        DataError: a page cannot be shown.
    """
    folders = [record.path.resolve() for record in records]
    if not folders or len(set(folders)) < len(folders):
        raise InputError("--export: name one run, or several, each once")
    library = Library(folders, ending)
    names = {place.path / run_id: (place.name, run_id) for place, run_id in library.runs()}
    chosen = [names[folder] for folder in folders]
    app = create_app(library)
    if len(chosen) > 1 and COMPARE not in app.state.pages:
        raise InputError("--export: the wheel tracewheel-lab, which compares runs, is not installed: make setup-plugins")
    pieces = [*(_report(app, *chosen[0]) if len(chosen) == 1 else _comparison(app, chosen))]
    title = f"Run {chosen[0][1]}" if len(chosen) == 1 else f"Comparison of {', '.join(run for _, run in chosen)}"
    main, links = together(pieces)
    text = page_file(title, Markup(main), links, COPY)
    write_whole(out, text)
    return {"out": str(out), "pages": list(links.values()), "bytes": len(text.encode())}


def _report(app: Starlette, place: str, run_id: str) -> Iterator[Piece]:
    """The pages of a run that its bar names for a file, and its episodes before and after, side by side."""
    pages: dict[str, Page] = app.state.pages
    where = {"place": place, "run_id": run_id}
    for path, tab in app.state.desk.tabs.items():
        if tab.in_file:
            yield _piece(app, pages[OF_RUN + path], where)
    for label, left, right in _pairs(app.state.desk.library.run(place, run_id)):
        yield _piece(app, pages[f"{OF_RUN}/pair"], where, {"left": left, "right": right}, label)


def _comparison(app: Starlette, chosen: Sequence[tuple[str, str]]) -> Iterator[Piece]:
    pages: dict[str, Page] = app.state.pages
    compared = _piece(app, pages[COMPARE], {}, {"run": ["/".join(names) for names in chosen]})
    yield replace(compared, label="Comparison")
    for place, run_id in chosen:
        yield replace(_piece(app, pages[OF_RUN], {"place": place, "run_id": run_id}), label=run_id)


def _pairs(run: FinishedRun) -> Iterator[tuple[str, str, str]]:
    """Tasks with their greedy episodes before and after: all that changed first, then of each other outcome in turn."""
    sources = stored_sources(run)
    piles: dict[str, list[tuple[str, str, str]]] = {name: [] for name in ("lost", "gained", "failed by both", "solved by both")}
    for split in (HELD_OUT, HARDER):
        columns = columns_of(split, sources)
        keys = [column.key for column in columns]
        if run.baseline not in keys or RL not in keys:
            continue
        before, after = columns[keys.index(run.baseline)], columns[keys.index(RL)]
        rows = task_rows(run, split, [before, after], run.baseline)
        for row, (left, right) in zip(rows, with_trajectories(run, rows, [before, after]), strict=True):
            if left and right:
                outcome = row.change or ("solved by both" if row.cells[1].greedy == SOLVED else "failed by both")
                where = f"{split.replace('_', ' ')}, tier {row.tier}, {row.family}"
                label = f"{outcome}: {where}: {row.prompt[:160] or row.task_id}"
                piles[outcome].append((label, f"{before.entry}/greedy/{left}", f"{after.entry}/greedy/{right}"))
    changed, others = [*piles["lost"], *piles["gained"]], zip_longest(piles["failed by both"], piles["solved by both"])
    yield from [*changed[:MOST_CHANGED], *(one for both in others for one in both if one)][:MOST_PAIRS]


def _piece(
    app: Starlette, page: Page, path: Mapping[str, str], query: Mapping[str, Any] | None = None, label: str = ""
) -> Piece:
    """A page as a visitor of the application would get it.

    Raises:
        DataError: it cannot be shown.
    """
    parts = [path.get(part[1:-1], part) if part.startswith("{") else part for part in page.path.strip("/").split("/")]
    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "path": "/" + "/".join(parts),
        "path_params": dict(path),
        "query_string": urlencode(query or {}, doseq=True).encode(),
        "headers": [(b"host", HOST)],
        "server": (HOST.decode(), 80),
        "app": app,
        "in_file": True,
    }
    try:
        html = bytes(page.answer(Request(scope)).body).decode()
    except DataError as flaw:
        raise DataError(f"{scope['path']}: {flaw}") from flaw
    name = label or (page.tab.label if page.tab else "")
    return Piece(address(*parts, **(query or {})), name, html, folded=bool(label))


@functools.cache
def _style() -> tuple[Markup, str]:
    """The style sheet, and its digest for the policy."""
    text = (HERE / "static" / "style.css").read_text(encoding="utf-8")
    return Markup(text), base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
