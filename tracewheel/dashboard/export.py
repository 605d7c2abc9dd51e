"""A run, or a comparison of several, as one HTML file that can be mailed: the dashboard's own pages, rendered in process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tracewheel.core.errors import DataError, InputError
from tracewheel.core.run_record import RunRecord
from tracewheel.core.store import write_whole
from tracewheel.dashboard.app import create_app
from tracewheel.dashboard.index.process import Indexes
from tracewheel.dashboard.library import Library
from tracewheel.dashboard.static_pages import Page, one_file
from tracewheel.dashboard.view import HERE, PAGE_STYLE, RUN_PAGES, address

HOST = "127.0.0.1"
PATIENCE = 600.0
# Of a run: lists of all episodes are long, and their links lead out of the file.
PAGES = ("", "/tasks", "/rollouts", "/traces", "/lineage", "/review")


def export_runs(records: Sequence[RunRecord], out: Path) -> dict[str, Any]:
    """Write the pages of a run, or a comparison of several with the overview of each.

    Args:
        records: The runs; the first of several is what the others are compared with.
        out: The file.

    Returns:
        `out`, `pages` (their labels) and `bytes`.

    Raises:
        InputError: no run is named, or one twice.
        DataError: a page cannot be shown.
    """
    folders = [record.path.resolve() for record in records]
    if not folders or len(set(folders)) < len(folders):
        raise InputError("--export: name one run, or several, each once")
    library = Library(folders)
    names = {place.path / run_id: (place.name, run_id) for place, run_id in library.runs()}
    chosen = [names[folder] for folder in folders]
    app = create_app(library)
    _wait(app.state.indexes)
    pages = list(_pages(app, chosen))
    title = f"Run {chosen[0][1]}" if len(chosen) == 1 else f"Comparison of {', '.join(run for _, run in chosen)}"
    text = one_file(title, pages, style_of())
    write_whole(out, text)
    return {"out": str(out), "pages": [page.label for page in pages], "bytes": len(text.encode())}


def style_of() -> str:
    """All style of the dashboard."""
    own = sorted((HERE / "static").glob("*.css"), key=lambda file: (file.name != "dashboard.css", file.name))
    files = [PAGE_STYLE, *own]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def _pages(app: Any, chosen: Sequence[tuple[str, str]]) -> Iterator[Page]:
    labels = {path: label for path, label, _ in RUN_PAGES}
    if len(chosen) > 1:
        where = address("compare", run=[f"{place}/{run}" for place, run in chosen])
        yield _page(app, where, "Comparison", needed=True)
        for place, run in chosen:
            yield _page(app, address("runs", place, run), run, needed=True)
        return
    ((place, run),) = chosen
    for path in PAGES:
        page = _page(app, address("runs", place, run) + path, labels[path], needed=not path)
        if page is not None:
            yield page


def _page(app: Any, where: str, label: str, *, needed: bool) -> Any:
    """A page; None for one that this run does not have.

    Raises:
        DataError: it is needed.
    """
    status, html = asyncio.run(_get(app, where))
    if status == 200:
        return Page(where, label, html)
    if needed or status >= 500:
        raise DataError(f"{where}: the dashboard answers with status {status}; open it with `tracewheel dashboard` to see why")
    return None


async def _get(app: Any, where: str) -> tuple[int, str]:
    """Ask the application for a page, without a server."""
    parts = urlsplit(where)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": _decoded(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "headers": [(b"host", HOST.encode())],
        "client": (HOST, 0),
        "server": (HOST, 80),
    }
    status, body = 500, b""
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await asyncio.sleep(PATIENCE)  # a visitor who waits for the answer
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, body
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            body += message.get("body", b"")

    await app(scope, receive, send)
    return status, body.decode("utf-8")


def _decoded(path: str) -> str:
    from urllib.parse import unquote

    return unquote(path)


def _wait(indexes: Indexes) -> None:
    """Wait until everything can be found.

    Raises:
        DataError: it takes too long.
    """
    end = time.monotonic() + PATIENCE
    for place in indexes.library.places.values():
        while not indexes.fresh(place).is_whole:
            if time.monotonic() > end:
                raise DataError(
                    f"{place.path}: its episodes were not read in {PATIENCE:g} s; open it with `tracewheel dashboard` first"
                )
            time.sleep(0.2)
