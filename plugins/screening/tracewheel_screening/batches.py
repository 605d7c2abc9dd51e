"""The ledger of batches as screening and people write it: batches and decisions are added, and none is ever changed."""

from __future__ import annotations

import contextlib
import getpass
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from tracewheel import Batch, DataError, LogPart, Run, content_hash, hold_beside, read_json, screened_batches, write_whole
from tracewheel_screening.batch_profile import BatchProfile
from tracewheel_screening.checks import Suspicion

FOLDER, LEDGER_FILE, SNAPSHOT_FILE = "batches", "ledger.json", "snapshot.json"
ACCEPTED, HELD, RELEASED = "accepted", "held", "released"
BY_SCREENING = "screening"


class Batches:
    """The batches of a work folder.

    Args:
        work_dir: The work folder.
    """

    def __init__(self, work_dir: str | Path) -> None:
        self.work_dir = Path(work_dir)
        self.folder = self.work_dir / FOLDER

    def all(self) -> list[Batch]:
        """All batches in the order of their screening.

        Raises:
            DataError: the ledger or a batch's file is not what a run wrote.
        """
        return screened_batches(self.work_dir)

    def find(self, name: str) -> Batch:
        """The batch whose id begins with `name`.

        Raises:
            DataError: there is none, or more than one.
        """
        every = self.all()
        found = [batch for batch in every if name and batch.id.startswith(name)]
        if len(found) != 1:
            known = ", ".join(batch.id for batch in (found or every)[-5:]) or "none yet"
            raise DataError(f"{self.folder}: {len(found) or 'no'} batches begin with '{name}' (the last are: {known})")
        return found[0]

    def known(self) -> frozenset[str]:
        """SHA-256 of all slices that were screened."""
        return frozenset(part.sha256 for batch in self.all() for part in batch.parts)

    def see(self, run: Run) -> None:
        """Note what a start found in the logs, so that what is appended later is a slice of its own."""
        with self._locked():
            write_whole(self.folder / SNAPSHOT_FILE, json.dumps(run.snapshot.to_record(), indent=1) + "\n")

    def add(
        self, parts: Sequence[LogPart], profile: BatchProfile, results: Sequence[Suspicion], decision: Mapping[str, str]
    ) -> Batch:
        """Note a screened batch with its first decision. The same slices are the same batch, which keeps its decisions.

        Args:
            parts: Its slices.
            profile: Its figures.
            results: Its checks.
            decision: `state`, `why`, `run` and `when`.
        """
        name = batch_id(parts)
        with self._locked():
            known = [batch for batch in self.all() if batch.id == name]
            if known:
                return known[0]
            record = {
                "id": name,
                "parts": [asdict(part) for part in parts],
                "profile": profile.to_record(),
                "checks": [result.to_record() for result in results],
            }
            write_whole(self.folder / f"{name}.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
            self._append({"batch": name, "who": BY_SCREENING, **decision})
        return self.find(name)

    def decide(self, name: str, state: str, why: str, when: datetime) -> Batch:
        """Release a batch, or hold it, by hand.

        Raises:
            DataError: there is no such batch, it is in this state already, or no reason is given.
        """
        if not why.strip():
            raise DataError("--why TEXT is needed: the ledger keeps who decided what, and why")
        with self._locked():
            batch = self.find(name)
            if batch.state == state or (state, batch.state) == (RELEASED, ACCEPTED):
                last = batch.decisions[-1]
                if state != HELD or last["who"] != BY_SCREENING:  # a person may confirm what the screening held
                    raise DataError(f"batch {batch.id} is {batch.state} already (since {last['when']}, by {last['who']})")
            decided = when.isoformat(timespec="seconds")
            self._append({"batch": batch.id, "state": state, "when": decided, "who": _user(), "why": why, "run": ""})
        return self.find(batch.id)

    def totals(self) -> dict[str, int]:
        """What became of all records that were read: read = kept + duplicates + quarantined + held."""
        counts = dict.fromkeys(("read", "kept", "duplicates", "quarantined", "held"), 0)
        for batch in self.all():
            counts["read"] += batch.records["read"]
            if batch.state == HELD:
                counts["held"] += batch.records["read"]
                continue
            for name in ("kept", "duplicates", "quarantined"):
                counts[name] += batch.records[name]
        return counts

    def _append(self, decision: Mapping[str, str]) -> None:
        path = self.folder / LEDGER_FILE
        rows = read_json(path) if path.is_file() else []
        write_whole(path, json.dumps([*rows, decision], indent=1, ensure_ascii=False) + "\n")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with hold_beside(self.folder / LEDGER_FILE):
            yield


def batch_id(parts: Collection[LogPart]) -> str:
    """The name of a batch: equal for equal slices."""
    return content_hash(sorted(part.sha256 for part in parts), length=12)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return "unknown"
