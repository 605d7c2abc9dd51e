"""Who was forgotten: users, sessions and traces whose records ingest leaves out, wherever a log still holds them.

`forgotten.json` of a work folder lists them as hashes, so that the list itself names nobody. Whoever knows a name can test
whether it is listed, as with the record of splits. It also lists the digests of adapters that learnt from them, which may lie
anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.store import write_whole
from tracewheel.core.types import Trace, content_hash
from tracewheel.traces.quarantine import Quarantined

FORGOTTEN_FILE, VERSION = "forgotten.json", 1
LEARNT = "learnt from somebody who was forgotten since"


@dataclass(frozen=True)
class Forgotten:
    """Who is left out.

    Attributes:
        hashes: Of what is left out; see `hash_of_identity`.
        adapters: SHA-256 of adapters that learnt from them, of the folder and of the file of weights. Ingest reads none.
    """

    hashes: frozenset[str] = frozenset()
    adapters: frozenset[str] = field(default=frozenset(), compare=False)

    def __bool__(self) -> bool:
        return bool(self.hashes)

    @property
    def digest(self) -> str:
        """Of the list; empty for an empty one."""
        return content_hash(sorted(self.hashes)) if self.hashes else ""

    def covers(self, trace: Trace) -> bool:
        """Whether a trace is of a forgotten user or session, or is itself forgotten."""
        return self.covers_named(user=trace.user, session=trace.session, trace=trace.id)

    def covers_named(self, **named: str | None) -> bool:
        """Whether one of these is forgotten: a `user`, a `session`, a `trace`."""
        known = (hash_of_identity(kind, value) for kind, value in named.items() if value is not None)
        return bool(self.hashes) and not self.hashes.isdisjoint(known)

    def covers_record(self, item: Quarantined) -> bool:
        """Whether a record in quarantine is forgotten."""
        return bool(self.hashes) and hash_of_record(item.to_record()) in self.hashes

    def adding(self, hashes: Iterable[str], adapters: Iterable[str] = ()) -> Forgotten:
        """The list with further hashes, and digests of adapters."""
        return Forgotten(self.hashes | frozenset(hashes), self.adapters | frozenset(adapters))

    def write(self, work_dir: str | Path) -> None:
        """Write the list into a work folder."""
        record = {"version": VERSION, "hashes": sorted(self.hashes), "adapters": sorted(self.adapters)}
        write_whole(Path(work_dir) / FORGOTTEN_FILE, json.dumps(record, indent=1) + "\n")


NOBODY = Forgotten()


def read_forgotten(work_dir: str | Path) -> Forgotten:
    """The list of a work folder.

    Raises:
        DataError: it is damaged. Nothing is read then, because a forgotten person would come back.
    """
    return read_forgotten_file(path) if (path := Path(work_dir) / FORGOTTEN_FILE).is_file() else NOBODY


def read_forgotten_file(path: Path) -> Forgotten:
    """The list in a file.

    Raises:
        DataError: there is none, or it is damaged.
    """
    if not path.is_file():
        raise DataError(f"{path}: does not exist; `tracewheel forget` writes it")
    record = read_json(path)
    lists = [record.get("hashes"), record.get("adapters", [])] if _is_list(record) else []
    if not lists or not all(isinstance(one, list) and all(isinstance(entry, str) for entry in one) for one in lists):
        raise DataError(f"{path}: is no list of forgotten users; restore it from a copy: without it they would be read again")
    hashes, adapters = map(frozenset, lists)
    return Forgotten(hashes, adapters)


def _is_list(record: Any) -> bool:
    return isinstance(record, dict) and record.get("version") == VERSION


def list_with_adapter(digests: Collection[str], folders: Iterable[Path]) -> Path | None:
    """The list, of those that lie in some folders, that names an adapter by one of its digests; None without one.

    Raises:
        DataError: a list is damaged.
    """
    lists = (folder / FORGOTTEN_FILE for folder in folders)
    return next((path for path in lists if path.is_file() and read_forgotten_file(path).adapters.intersection(digests)), None)


def hash_of_identity(kind: str, value: str) -> str:
    """The hash of a user, a session or a trace, as logged or as stored after redaction."""
    return content_hash(["forgotten", kind, value], length=64)


def hash_of_record(record: dict[str, Any]) -> str:
    """The hash of a record in quarantine, by what is stored of its bytes."""
    kept = next((record[name] for name in ("sha256", "raw", "raw_base64") if name in record), "")
    return content_hash(["forgotten", "record", kept], length=64)
