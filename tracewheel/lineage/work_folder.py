"""What a work folder knows of its runs and of the entries of its store: what each was made from, and its adapters.

Entries of earlier versions do not say what they were made from. Then the records of their runs say it, as far as they go: the
loop's iterations, the curation, and the policies that were stored.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tracewheel.config import RetrainConfig, load_stored_config
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.files import read_json
from tracewheel.core.housekeeping import entries_of
from tracewheel.core.run_record import LOOP_FILE, RunRecord, find_runs, loops_of
from tracewheel.core.store import FACTS, read_metadata
from tracewheel.policy.adapters import ADAPTER, MODEL, digests_of

T = TypeVar("T")
UNSAID = "as the run's record says: an earlier version made it"
TRAINED = ("update", "go_back", "merge", "warm_start", "champion")


@dataclass(frozen=True)
class Input:
    """An entry that another one was made from, and in which role."""

    entry: str
    role: str
    note: str = ""


class WorkFolder:
    """The runs and entries of a work folder. What is read is kept: make another one to see what is new.

    Args:
        path: The folder.

    Raises:
        DataError: it holds neither runs nor a store.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.store = path, path / "store"
        self.runs = {record.run_id: record for record in find_runs(path)}
        loops = [RunRecord(folder.parent, folder.name) for folder in sorted((path / "loops").glob("*"))]
        self.loops = {record.run_id: record for record in loops}
        if not self.runs and not self.store.is_dir():
            raise DataError(f"{path}: holds no run of Tracewheel; give the work folder (work_dir, or --run-dir) of one")
        self.entries = sorted(entries_of(self.store))
        self._kept: dict[tuple[str, str], Any] = {}

    @functools.cache  # noqa: B019 (lives as long as the folder's object)
    def facts(self, entry: str) -> dict[str, Any]:
        """The metadata of an entry; empty where it is lost."""
        with contextlib.suppress(DataError, OSError):
            return read_metadata(self.store / FACTS / f"{entry}.json")
        return {}

    def made(self, entry: str) -> dict[str, Any]:
        """What an entry was made from and with (`StageTask.facts`); empty for one of an earlier version."""
        made: dict[str, Any] = self.facts(entry).get("made", {})
        return made

    def finished(self, entry: str) -> float:
        """When an entry was finished, in seconds since 1970; 0 where that is not known."""
        return float(self.facts(entry).get("finished", 0.0))

    def label(self, entry: str) -> str:
        """A few words: the label of the call that made it, or the stage."""
        return str(self.made(entry).get("label") or stage_of(entry))

    def inputs(self, entry: str) -> list[Input]:
        """The entries that this one was made from."""
        if made := self.made(entry):
            return list(_named(made["arguments"]))
        return list(self._told().get(entry, ()))

    def runs_with(self, entry: str) -> list[str]:
        """The runs that asked for an entry, the earliest first."""
        return self._askers().get(entry, [])

    def config(self, entry: str) -> RetrainConfig | None:
        """The profile with which an entry was made: that of its run, or of a run that asked for it."""
        named = self.made(entry).get("run")
        runs = [*([named] if named else []), *self.runs_with(entry)]
        return next(
            (config for run in runs if (config := self.once(("profile", run), functools.partial(self._profile, run)))), None
        )

    def _profile(self, run: str) -> RetrainConfig | None:
        with contextlib.suppress(ConfigError):  # a profile of an earlier version may have other keys
            return load_stored_config(self.path / run)
        return None

    def once(self, key: tuple[str, str], read: Callable[[], T]) -> T:
        """What `read` gives; it is read once for each key."""
        if key not in self._kept:
            self._kept[key] = read()
        kept: T = self._kept[key]
        return kept

    def path_of(self, entry: str) -> Path:
        return self.store / entry

    def adapters(self) -> Iterator[str]:
        """The entries that hold an adapter or a whole model."""
        for entry in self.entries:
            if stage_of(entry) in TRAINED and any((self.store / entry / name).is_dir() for name in (ADAPTER, MODEL)):
                yield entry

    def adapter(self, entry: str) -> dict[str, str]:
        """Digest of the weights' folder of an entry, and of the file of its weights where there is one."""
        known: dict[str, str] = self.made(entry).get("adapter", {})
        return known or self._hashed(entry)

    @functools.cache  # noqa: B019
    def _hashed(self, entry: str) -> dict[str, str]:
        for name in (ADAPTER, MODEL):
            if (folder := self.store / entry / name).is_dir():
                return digests_of(folder)
        return {}

    def by_digest(self, digest: str) -> list[str]:
        """The entries with an adapter of this digest, or the beginning of one: of its folder, or of its file of weights."""
        return [name for name in self.adapters() if any(value.startswith(digest) for value in self.adapter(name).values())]

    @functools.cache  # noqa: B019
    def _askers(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for run_id, record in reversed(self.runs.items()):
            for entry in record.needs() or ():
                found.setdefault(entry, []).append(run_id)
        return found

    @functools.cache  # noqa: B019
    def _told(self) -> dict[str, list[Input]]:
        """Inputs of entries that do not say them, from the records of runs."""
        found: dict[str, list[Input]] = {}
        for record in [*self.runs.values(), *self.loops.values()]:
            needs = sorted(record.needs() or ())
            traces = [name for name in needs if stage_of(name) == "ingest"]
            curated = [name for name in needs if stage_of(name) == "curate"]
            for name in curated:
                found.setdefault(name, [Input(ingest, "traces", UNSAID) for ingest in traces])
            for name in needs:
                if stage_of(name) in ("warm_start", "evaluate", "join"):
                    found.setdefault(name, [Input(one, "curated", UNSAID) for one in curated])
            starts = [name for name in needs if stage_of(name) == "champion"]
            starts = starts or [name for name in needs if stage_of(name) == "warm_start"]
            for folder in loops_of(record.path).values():
                _tell_loop(found, read_json(folder / LOOP_FILE), starts)
        return found


def _tell_loop(found: dict[str, list[Input]], loop: dict[str, Any], starts: list[str]) -> None:
    """Add the inputs that a loop's record tells."""
    curated = [Input(loop["curated"], "curated", UNSAID)] if loop.get("curated") else []
    before = starts
    for _, made in sorted(loop["iterations"].items(), key=lambda item: int(item[0])):
        states = [Input(name, "state", UNSAID) for name in before]
        for name in made["rollouts"]:
            found.setdefault(name, [*curated, *(Input(one.entry, "policy", UNSAID) for one in states)])
        for name, rollout in zip(made["scores"], made["rollouts"], strict=False):
            found.setdefault(name, [*curated, Input(rollout, "trajectories", UNSAID)])
        read = [Input(name, role, UNSAID) for role in ("rollouts", "scores") for name in made[role]]
        found.setdefault(made["update"], [*read, *states])
        before = [made["update"]]


def _named(arguments: Any, role: str = "") -> Iterator[Input]:
    """The entries that a stage's arguments name."""
    if isinstance(arguments, dict):
        if isinstance(arguments.get("entry"), str):
            yield Input(arguments["entry"], role, str(arguments.get("policy", "")))
        elif isinstance(arguments.get("earlier"), str) and "snapshot" in arguments:
            yield Input(arguments["earlier"], "earlier")
        else:
            for name, value in arguments.items():
                yield from _named(value, role or name)
    elif isinstance(arguments, list):
        for value in arguments:
            yield from _named(value, role)


def stage_of(entry: str) -> str:
    """The stage of an entry, by its name."""
    return entry.rpartition("-")[0]
