"""The page of help: keys, words with their units, addresses."""

from __future__ import annotations

from typing import Any

from tracewheel.dashboard.view import Ask, Crumb, page
from tracewheel.report.glossary import glossary_rows


@page("/help", "help.html")
def help_page(ask: Ask) -> dict[str, Any]:
    """Keys, words and addresses."""
    return {"crumbs": [Crumb("Help")], "figures": glossary_rows()}
