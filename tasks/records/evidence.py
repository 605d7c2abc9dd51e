"""Which curation a run resumes pass rates from.

`work_dir/evidence.json` is a list, the oldest first, of what complete runs made of their traces: the digest of
these traces (`traces`), the curation of them (`curated`) and the one that it began with (`began_with`, null for the first).
All runs on the same traces start from the same one; otherwise the learner's settings would change the data.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tasks.engine.run import Run
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.store import Entry, write_whole

EVIDENCE_FILE, POSTERIOR_FILE = "evidence.json", "sampler.json"
FIELDS = ("traces", "curated", "began_with")


def begins_with(run: Run, traces: Entry) -> str | None:
    """Name of the store's entry that a run on these traces takes evidence from; None for the first.

    Raises:
        DataError: the file is not what a run wrote.
    """
    links = _links(Path(run.config.work_dir) / EVIDENCE_FILE)
    known = [link for link in links if link["traces"] == traces.digest]
    name = known[0]["began_with"] if known else links[-1]["curated"] if links else None
    return name if name and find_curated(run, name) else None


def find_curated(run: Run, name: str) -> Entry | None:
    """The entry of that name, None with a notice when the store has lost it."""
    entry = run.store.find_named(name)
    if entry is None:
        lost = f"damaged ({run.store.flaws[name]})" if name in run.store.flaws else "no longer in the store"
        run.reporter.say(f"{name}, which pass rates resume from, is {lost}: they start over")
    return entry


def remember(run: Run, traces: Entry, curated: Entry, began_with: str | None) -> None:
    """Note what a complete run made of its traces, for the next run on other traces."""
    link = {"traces": traces.digest, "curated": curated.path.name, "began_with": began_with}
    path = Path(run.config.work_dir) / EVIDENCE_FILE
    links = [link if known["traces"] == traces.digest else known for known in _links(path)]
    write_whole(path, json.dumps(links if link in links else [*links, link], indent=2) + "\n")


def last_curated(work_dir: Path) -> str | None:
    """Name of the entry that a run on new traces would take evidence from.

    Raises:
        DataError: the file is not what a run wrote.
    """
    links = _links(work_dir / EVIDENCE_FILE)
    return links[-1]["curated"] if links else None


def _links(path: Path) -> list[dict[str, Any]]:
    links = read_json(path, "delete it, and pass rates start over") if path.is_file() else []
    if not isinstance(links, list) or not all(map(_is_link, links)):
        raise DataError(f"{path}: not a list of {', '.join(FIELDS)}; delete it, and pass rates start over")
    return links


def _is_link(value: Any) -> bool:
    named = [value.get(name) for name in FIELDS] if isinstance(value, dict) else []
    return len(named) == len(FIELDS) and all(isinstance(name, str) for name in named[:2]) and isinstance(named[2], str | None)
