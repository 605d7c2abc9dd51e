"""The page of help: keys, words with their units, addresses."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.dashboard import words
from tracewheel.dashboard.view import Crumb, View
from tracewheel.report.glossary import glossary_rows

router = APIRouter()


@router.get("/help")
def help_page(request: Request) -> Response:
    """Keys, words and addresses."""
    view: View = request.app.state.view
    return view.page(request, "help.html", crumbs=[Crumb("Runs", "/"), Crumb("Help")], words=words, figures=glossary_rows())
