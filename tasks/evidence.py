"""Which curation a run goes on from: the pass rates of tasks are kept from run to run.

`work_dir/evidence.json` is a list, the oldest first, of what complete runs made of the traces that they read: the digest of
these traces (`traces`), the curation of them (`curated`) and the one that it began with (`began_with`, null for the first).
All runs on the same traces begin with the same one, or other settings of the learner would change the data too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tasks.run import Run
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.store import Entry, write_whole

EVIDENCE_FILE, POSTERIOR_FILE = "evidence.json", "sampler.json"
FIELDS = ("traces", "curated", "began_with")


def begins_with(run: Run, traces: Entry) -> str | None:
    """Name of the store's entry whose evidence a run on these traces goes on from; None where there is none.

    Raises:
        DataError: the file is not what a run wrote.
    """
    links = _read(run)
    known = [link for link in links if link["traces"] == traces.digest]
    name = known[0]["began_with"] if known else links[-1]["curated"] if links else None
    return name if name and find_curated(run, name) else None


def find_curated(run: Run, name: str) -> Entry | None:
    """The entry of that name; where the store has it no longer, that is said."""
    stage, _, key = name.rpartition("-")
    entry = run.store.find(stage, key)
    if entry is None:
        run.reporter.say(f"{name}, whose pass rates were to be gone on with, is no longer in the store: they begin anew")
    return entry


def remember(run: Run, traces: Entry, curated: Entry, began_with: str | None) -> None:
    """Say what a complete run made of its traces: the next run on others goes on from there."""
    link = {"traces": traces.digest, "curated": curated.path.name, "began_with": began_with}
    links = _read(run)
    places = [place for place, known in enumerate(links) if known["traces"] == traces.digest]
    if places:
        links[places[0]] = link
    else:
        links.append(link)
    write_whole(_path(run), json.dumps(links, indent=2) + "\n")


def _read(run: Run) -> list[dict[str, Any]]:
    path = _path(run)
    links = read_json(path) if path.is_file() else []
    if not isinstance(links, list) or not all(map(_is_link, links)):
        raise DataError(f"{path}: not a list of {', '.join(FIELDS)}; delete it, and pass rates begin anew")
    return links


def _is_link(value: Any) -> bool:
    named = [value.get(name) for name in FIELDS] if isinstance(value, dict) else []
    return len(named) == len(FIELDS) and all(isinstance(name, str) for name in named[:2]) and isinstance(named[2], str | None)


def _path(run: Run) -> Path:
    return Path(run.config.work_dir) / EVIDENCE_FILE
