"""The application: pages behind the guard, and files of style and script."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tracewheel.core.errors import TracewheelError
from tracewheel.dashboard import pages
from tracewheel.dashboard.digests import Digests
from tracewheel.dashboard.guard import Access, Forged, Guard
from tracewheel.dashboard.library import Library, NotThere
from tracewheel.dashboard.run_rows import RunRows
from tracewheel.dashboard.view import HERE, Decide, Desk, Form, Page, respond, wheel_pages


def create_app(library: Library, access: Access | None = None, decide: Decide | None = None) -> Starlette:
    """The dashboard of some run folders.

    Args:
        library: What is shown.
        access: Who may ask; this machine alone by default.
        decide: Carries out the decision on a promotion that waits; without it, the pages name the command.
    """
    access = access or Access()
    modules = [importlib.import_module(f"{pages.__name__}.{found.name}") for found in pkgutil.iter_modules(pages.__path__)]
    own = [value for module in modules for value in vars(module).values() if isinstance(value, Page | Form)]
    found = [*own, *wheel_pages()]
    forms = [one for one in found if isinstance(one, Form)]
    every = [one for one in found if isinstance(one, Page) and not one.is_inset]
    insets: dict[str, list[Page]] = {}
    for one in found:
        if isinstance(one, Page) and one.is_inset:
            insets.setdefault(one.path, []).append(one)
    routes: list[BaseRoute] = [Route(one.path, one.answer) for one in every]
    routes += [Route(one.path, one.answer, methods=["POST"]) for one in forms]
    routes.append(Mount("/static", StaticFiles(directory=HERE / "static")))
    app = Starlette(
        routes=routes,
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=Guard(access))],
        exception_handlers={
            NotThere: _problem("Not here", 404),
            Forged: _problem("Refused", 403),
            TracewheelError: _problem("This cannot be shown", 422),
        },
    )
    shown = sorted(((one.tab.place, one.path, one) for one in every if one.tab), key=lambda each: each[:2])
    tabs = {one.below_run: one.tab for *_, one in shown if one.is_of_run and one.tab}
    menu = {path: one.tab for _, path, one in shown if not one.is_of_run and one.tab}
    app.state.pages = {one.path: one for one in reversed(every)}  # the first of an address answers
    app.state.desk = Desk(library, RunRows(library), Digests(library), access, decide, tabs, menu, insets)
    return app


def _problem(title: str, status: int) -> Callable[[Request, Exception], Response]:
    def answer(request: Request, error: Exception) -> Response:
        return respond(request, "problem.html", status=status, title=title, message=str(error))

    return answer
