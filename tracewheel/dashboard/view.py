"""Pages: what a module of `pages/` declares, what its function may ask for, and how its template becomes HTML."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tracewheel.core import clock
from tracewheel.core.run_record import RunRecord
from tracewheel.dashboard import charts
from tracewheel.dashboard.guard import Access, leads_to, read_form, remembered
from tracewheel.dashboard.text import FILTERS, finalize
from tracewheel.report.finished_run import FinishedRun
from tracewheel.report.results import label_of

if TYPE_CHECKING:
    from tracewheel.dashboard.digests import Digests, Shelf
    from tracewheel.dashboard.library import Library
    from tracewheel.dashboard.run_rows import RunRow, RunRows

HERE = Path(__file__).parent
WHEELS = "tracewheel.pages"
OF_RUN = "/runs/{place}/{run_id}"
SHOWN = 100  # rows of a list on one page
# Carries a decision out: run, decision, who, note; raises a TracewheelError where it cannot.
Decide = Callable[[RunRecord, str, str, str], Any]


@dataclass(frozen=True)
class Crumb:
    """A step of the way from the list of runs to a page."""

    label: str
    address: str = ""


@dataclass(frozen=True)
class Tab:
    """A page in the bar of every run, or of the dashboard where its address is not below a run's.

    Attributes:
        label: Its name; of an inset, that of the button which leads to it.
        key: Leads there after "g"; of an inset, the id of its element.
        place: In the bar.
        in_file: Whether it is part of a run's report.
    """

    label: str
    key: str
    place: int
    in_file: bool = False


@dataclass(frozen=True)
class Desk:
    """What the pages of an application share.

    Attributes:
        decide: Carries out the decision on a promotion that waits; None where pages name the command instead.
        tabs: The bar of a run: path below the run's address to its tab.
        menu: What wheels add to the bar of the dashboard: address to its tab.
        insets: Address of a page to what wheels show within it.
    """

    library: Library
    rows: RunRows
    digests: Digests
    access: Access
    decide: Decide | None
    tabs: dict[str, Tab]
    menu: dict[str, Tab]
    insets: Mapping[str, list[Page]]


class Ask:
    """A request for a page.

    Args:
        request: With the application's `Desk` in its state, and `place` and `run_id` in its path for the pages of a run.

    Attributes:
        path, query: What the address says.
        at: When, as records have it.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.desk: Desk = request.app.state.desk
        self.path: dict[str, str] = dict(request.path_params)
        self.query: dict[str, str] = dict(request.query_params)
        self.target = request.headers.get("hx-target", "")
        self.at = clock.written()

    @functools.cached_property
    def run(self) -> FinishedRun:
        """The run of the address.

        Raises:
            NotThere: there is none.
        """
        return self.desk.library.run(self.path["place"], self.path["run_id"])

    @functools.cached_property
    def row(self) -> RunRow:
        """The run at a glance.

        Raises:
            NotThere: there is none.
        """
        assert self.run  # looked up first: it refuses what names no run
        return self.desk.rows.of(self.path["place"], self.path["run_id"])

    @property
    def in_file(self) -> bool:
        """Whether the page becomes part of a file, where nothing is loaded afterwards."""
        return bool(self.request.scope.get("in_file"))

    def address(self, *parts: str | int, **query: Any) -> str:
        """An address below that of the run."""
        return address("runs", self.path["place"], self.path["run_id"], *parts, **query)

    def whole(self, name: str, otherwise: int = 0) -> int:
        """A whole number of the query, or what stands for anything else."""
        return whole(self.query.get(name), otherwise)

    def one_of(self, name: str, known: Collection[str], otherwise: str) -> str:
        """A word of the query that is one of the known ones."""
        text = self.query.get(name)
        return text if text is not None and text in known else otherwise

    def order(self, sorts: Collection[str], otherwise: str) -> dict[str, Any]:
        """How a list is sorted and where its page begins, as the query asks."""
        sort = self.one_of("sort", sorts, otherwise)
        return {"sort": sort, "up": "up" in self.query, "sorts": list(sorts), "first": self.whole("from"), "page_size": SHOWN}

    def shelf(self, *runs: str) -> Shelf:
        """The digests of some runs of the run's folder; of all of them where none is named."""
        return self.desk.digests.of(self.desk.library.place(self.path["place"]), runs)


@dataclass(frozen=True)
class Page:
    """A page, found in the module of `pages/` that holds it, or by the entry points of a wheel.

    Attributes:
        path: Its address, with names in braces.
        template: In `templates/`, or in the folder of a wheel's page.
        values: What the template shows; of a page of a run, `crumbs` are those after the run.
        part: The block that alone is rendered when htmx asks for the element of this id.
        tab: Its place in the bar of a run, or of the dashboard.
        folder: That of the template of a wheel's page.
        is_inset: Whether it is shown within the page of its address.
    """

    path: str
    template: str
    values: Callable[[Ask], dict[str, Any]]
    part: str = ""
    tab: Tab | None = None
    folder: Path | None = None
    is_inset: bool = False

    @property
    def is_of_run(self) -> bool:
        return self.path.startswith(OF_RUN)

    @property
    def below_run(self) -> str:
        """Its path below the address of a run."""
        return self.path.removeprefix(OF_RUN)

    def answer(self, request: Request) -> Response:
        """What a visitor gets."""
        ask = Ask(request)
        values = self.values(ask)
        part = values.pop("part", self.part if self.part and ask.target == self.part else "")
        row = ask.row if "run_id" in ask.path else None
        more = values.pop("crumbs", [Crumb(self.tab.label)] if self.tab and self.below_run else [])
        crumbs = [Crumb("Runs", "/")] if more or row else []
        if row:
            crumbs.append(Crumb(f"{row.name} {row.run_id}", address("runs", row.place, row.run_id)))
        template = values.pop("template", self.template)
        within = ask.desk.insets.get(self.path, ())
        values["insets"] = [
            (one.tab, Markup(render(one.template, **_names(request, run=row, **one.values(ask))))) for one in within
        ]
        answer = respond(request, template, part=part, **{**values, "run": row, "crumbs": [*crumbs, *more]})
        answer.headers.update(values.get("headers", {}))
        return answer


def page(
    path: str, template: str, *, part: str = "", tab: Tab | None = None, folder: Path | None = None, is_inset: bool = False
) -> Callable[[Callable[[Ask], Any]], Page]:
    """Make a page of the function that gives the values of its template.

    Example:
        >>> @page("/sizes", "sizes.html", tab=Tab("Sizes", "z", 1), folder=Path("templates"))
        ... def sizes(ask):
        ...     return {"count": len(ask.desk.rows.all())}

    Args:
        path: Its address, with names in braces.
        template: It extends `base.html`; every value is escaped in it.
        part: The block that alone is rendered when htmx asks for the element of this id.
        tab: Its place in a bar.
        folder: That of the template of a wheel's page, which an entry point of `tracewheel.pages` names.
        is_inset: Whether it is shown within the page that has this address, where that has a place for it: Review, an episode.
    """
    return lambda values: Page(path, template, values, part, tab, folder, is_inset)


@dataclass(frozen=True)
class Form:
    """What pages send to an address."""

    path: str
    take: Callable[[Ask, Mapping[str, str]], str]

    async def answer(self, request: Request) -> Response:
        """Take the fields, if a page of this dashboard sent them."""
        ask = Ask(request)
        fields = await read_form(request, ask.desk.access)
        return leads_to(await run_in_threadpool(self.take, ask, fields), fields.get("who", ""))


def form(path: str) -> Callable[[Callable[[Ask, Mapping[str, str]], str]], Form]:
    """Make a form's end of the function that takes its fields and returns the address to look at next.

    Only forms with the `form_token` of this dashboard, sent from a page of its own, reach the function. A field `who` is kept
    for the next form (`who` in templates). A wheel names it in an entry point of `tracewheel.pages`.

    Example:
        >>> @form("/runs/{place}/{run_id}/sizes")
        ... def sizes(ask, fields):
        ...     (ask.run.record.path / "size.txt").write_text(fields["size"])
        ...     return ask.address("sizes")
    """
    return lambda take: Form(path, take)


@functools.cache
def wheel_pages() -> tuple[Page | Form, ...]:
    """The pages and forms of installed wheels; one that cannot be loaded is left out, and said."""
    found = []
    for point in entry_points(group=WHEELS):
        try:
            found.append(point.load())
        except Exception as error:  # anyone's code; the other pages stay
            print(f"tracewheel: page '{point.name}' of a wheel cannot be loaded: {error}", file=sys.stderr)
    return tuple(found)


def respond(request: Request, template: str, *, status: int = 200, part: str = "", **values: Any) -> HTMLResponse:
    """A template, or one block of it, as the answer to a request."""
    return HTMLResponse(render(template, part=part, **_names(request, **values)).encode("utf-8", "replace"), status)


def _names(request: Request, **values: Any) -> dict[str, Any]:
    """What a template may name."""
    desk: Desk = request.app.state.desk
    common = {"tabs": desk.tabs, "menu": desk.menu, "asked": dict(request.query_params), "request": request, "run": None}
    form_of = {"form_token": desk.access.form_token, "who": remembered(request)}
    return {**common, **form_of, "crumbs": (), "insets": (), **values}


def render(template: str, *, part: str = "", **values: Any) -> str:
    """A template, or one block of it, as text."""
    found = environment().get_template(template)
    if not part:
        return found.render(values)
    context = found.new_context(values)
    next(iter(found.root_render_func(context)), "")  # the macros of the template's top, which the block may use
    return "".join(found.blocks[part](context))


@functools.cache
def environment() -> Environment:
    """The templates. Every value is escaped, and an unknown one is an error."""
    folders = [one.folder for one in wheel_pages() if isinstance(one, Page) and one.folder]
    found = Environment(
        loader=FileSystemLoader([HERE / "templates", *folders]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    found.filters |= dict(FILTERS)
    drawn = (charts.line_chart, charts.column_chart, charts.histogram_chart)
    bars = (charts.rate_bar, charts.interval_bar, charts.part_bar, charts.difference_bar)
    found.globals |= {
        "address": address,
        "label_of": label_of,
        "axis_of": charts.axis_of,
        **{chart.__name__: chart for chart in (*drawn, *bars)},
    }
    return found


def address(*parts: str | int, **query: Any) -> str:
    """An address below the root: parts and values are quoted, and what is None is left out."""
    path = "/" + "/".join(quote(str(part), safe="") for part in parts if part != "")
    several = [(name, values if isinstance(values, list | tuple) else [values]) for name, values in query.items()]
    known = [(name, value) for name, values in several for value in values if value not in (None, "")]
    return path + (f"?{urlencode(known, errors='replace')}" if known else "")


def whole(text: str | None, otherwise: int = 0) -> int:
    """A whole number as it was typed, or what stands for anything else."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else otherwise
