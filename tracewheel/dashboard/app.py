"""The application: pages behind the guard, and files of style and script."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from tracewheel.core.errors import TracewheelError
from tracewheel.dashboard.forms import Forged
from tracewheel.dashboard.guard import Access, Guard
from tracewheel.dashboard.index.process import Indexes
from tracewheel.dashboard.library import Library, NotThere
from tracewheel.dashboard.pages import ROUTERS
from tracewheel.dashboard.pages.review import Decide
from tracewheel.dashboard.run_rows import RunRows
from tracewheel.dashboard.view import HERE, PAGE_STYLE, View


def create_app(library: Library, access: Access | None = None, decide: Decide | None = None) -> FastAPI:
    """The dashboard of some run folders.

    Args:
        library: What is shown.
        access: Who may ask; this machine alone by default.
        decide: Carries out the decision on a promotion that waits; without it, the pages name the command.
    """
    access = access or Access()
    app = FastAPI(title="Tracewheel", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.view = view = View(library, access)
    app.state.library, app.state.decide = library, decide
    app.state.rows = RunRows(library)
    app.state.indexes = Indexes(library)
    for router in ROUTERS:
        app.include_router(router)
    app.get("/static/page.css")(page_style)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.middleware("http")(Guard(access))

    @app.exception_handler(NotThere)
    def not_there(request: Request, error: NotThere) -> Response:
        return view.page(request, "problem.html", status=404, title="Not here", message=str(error))

    @app.exception_handler(Forged)
    def forged(request: Request, error: Forged) -> Response:
        return view.page(request, "problem.html", status=403, title="Refused", message=str(error))

    @app.exception_handler(TracewheelError)
    def unreadable(request: Request, error: TracewheelError) -> Response:
        return view.page(request, "problem.html", status=422, title="This cannot be shown", message=str(error))

    return app


def page_style() -> FileResponse:
    """The style that the dashboard shares with reports."""
    return FileResponse(PAGE_STYLE, media_type="text/css")
