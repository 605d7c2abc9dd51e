"""Rendering of pages: the templates, and what each of them has at hand."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from tracewheel.core import pages
from tracewheel.dashboard.guard import Access
from tracewheel.dashboard.library import Library
from tracewheel.dashboard.text import FILTERS, finalize

HERE = Path(__file__).parent
PAGE_STYLE = pages.HERE / pages.STYLE  # of the other pages of HTML, too
# The pages of a run: where, what a reader calls it, and the key that leads there after "g".
RUN_PAGES = (
    ("", "Overview", "o"),
    ("/tasks", "Tasks", "t"),
    ("/groups", "Groups", "u"),
    ("/episodes", "Episodes", "e"),
    ("/rollouts", "Rollouts", "a"),
    ("/traces", "Traces", "d"),
    ("/lineage", "Lineage", "l"),
    ("/review", "Review", "v"),
)


@dataclass(frozen=True)
class Crumb:
    """A step of the way from the list of runs to a page."""

    label: str
    address: str = ""


@functools.cache
def environment() -> Environment:
    """The templates. Every value is escaped, and an unknown one is an error."""
    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    found.filters |= dict(FILTERS)
    found.globals |= {"address": address, "run_pages": RUN_PAGES}
    return found


def address(*parts: str | int, **query: Any) -> str:
    """An address below the root: parts and values are quoted, and what is None is left out."""
    path = "/" + "/".join(quote(str(part), safe="") for part in parts if part != "")
    known = [(name, value) for name, values in query.items() for value in _each(values) if value not in (None, "")]
    return path + (f"?{urlencode(known, errors='replace')}" if known else "")


def _each(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]


class View:
    """Renders pages for an application.

    Args:
        library: What is shown.
        access: For the tokens of forms.
    """

    def __init__(self, library: Library, access: Access) -> None:
        self.library, self.access = library, access

    def page(self, request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """A page, or for htmx the block that it asked for (`part`, a block of the template)."""
        common = {"request": request, "form_token": self.access.form_token, "run": None, "crumbs": (), "part": ""}
        found = environment().get_template(template)
        names = {**common, **values}
        if names["part"]:
            context = found.new_context(names)
            next(iter(found.root_render_func(context)), "")  # the macros of the template's top, which the block may use
            html = "".join(found.blocks[names["part"]](context))
        else:
            html = found.render(names)
        return HTMLResponse(html.encode("utf-8", "replace"), status)
