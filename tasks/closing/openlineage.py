"""Sending a run's events of OpenLineage (`tracking.openlineage`). A receiver that is away costs a run only a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx

from tracewheel.config.profile import OpenLineageConfig
from tracewheel.core.code_state import without_credentials

TIMEOUT_SECONDS = 5.0


def send(settings: OpenLineageConfig | None, events: Iterable[dict[str, Any]], say: Callable[[str], None]) -> int:
    """Append events to the file, and post them to the address; returns how many arrived everywhere they should."""
    if settings is None:
        return 0
    sent = 0
    try:
        with httpx.Client(timeout=TIMEOUT_SECONDS) as client:
            for event in events:
                if settings.file:
                    path = Path(settings.file)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(event) + "\n")
                if settings.url:
                    client.post(settings.url, json=event).raise_for_status()
                sent += 1
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        where = without_credentials(settings.url) or settings.file
        said = str(error).replace(settings.url, str(where)) if settings.url else str(error)
        say(f"OpenLineage: {where} took {sent} events and no more ({type(error).__name__}: {said}); the run goes on")
    return sent
