"""A finished run as its record and its store have it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import RetrainConfig, load_stored_config
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json, read_table
from tracewheel.core.run_record import CONFIG_FILE, ENTRIES_FILE, RunRecord
from tracewheel.core.run_state import describe
from tracewheel.core.store import FACTS, Store, read_metadata
from tracewheel.curation.curated_folder import HELD_OUT, TASKS_FILE
from tracewheel.evaluation.evaluate import RESULTS_FILE
from tracewheel.evaluation.gate import GATE_FILE

if TYPE_CHECKING:
    import pandas as pd

RL = "rl"
EVALUATIONS = ("evaluate", "join")


@dataclass(frozen=True)
class StoredEntry:
    """An entry of a run's store, in the order in which the run asked for it.

    Attributes:
        name: `<stage>-<key>`.
        metadata: Its facts; empty where they are lost.
    """

    name: str
    path: Path
    metadata: dict[str, Any]

    @property
    def stage(self) -> str:
        return self.name.rpartition("-")[0]

    @property
    def digest(self) -> str:
        """Digest of the output; "" where it is not known."""
        return str(self.metadata.get("digest", ""))

    @property
    def made(self) -> dict[str, Any]:
        """What it was made from and with; empty where its facts are lost."""
        found: dict[str, Any] = self.metadata.get("made") or {}
        return found

    @property
    def is_stored(self) -> bool:
        return bool(self.metadata) and self.path.is_dir()


@dataclass(frozen=True)
class FinishedRun:
    """A run that came to its end, or as far as it came.

    Attributes:
        record: Its folder.
        ending: The summary of a run that is about to end, whose record has none yet.
    """

    record: RunRecord
    ending: dict[str, Any] | None = field(default=None, compare=False)

    @property
    def run_id(self) -> str:
        return self.record.run_id

    @property
    def work_dir(self) -> Path:
        return self.record.path.parent

    @property
    def store(self) -> Path:
        return self.work_dir / "store"

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The resolved profile as its file has it, whatever version wrote it."""
        import yaml

        found = yaml.safe_load((self.record.path / CONFIG_FILE).read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise DataError(f"{self.record.path / CONFIG_FILE}: not a resolved profile")
        return found

    @functools.cached_property
    def config(self) -> RetrainConfig:
        """The resolved profile.

        Raises:
            ConfigError: this version does not know one of its keys.
        """
        return load_stored_config(self.record.path)

    @functools.cached_property
    def lineage(self) -> dict[str, Any]:
        return self.record.lineage

    @functools.cached_property
    def summary(self) -> dict[str, Any]:
        """What `tracewheel retrain` prints; empty for a run that is not complete."""
        return self.ending or self.record.summary or {}

    @property
    def state(self) -> str:
        """`complete`, or how far it came."""
        return "complete" if self.summary else str(describe(self.record.path, held=Store(self.store).is_held())["state"])

    @functools.cached_property
    def entries(self) -> tuple[StoredEntry, ...]:
        """The entries that it asked for, in order; those of specialists follow the first that asks for none of its own.

        Raises:
            DataError: the run has not begun.
        """
        files = [self.record.path / ENTRIES_FILE, *sorted(self.record.path.glob(f"specialists/*/{ENTRIES_FILE}"))]
        if not files[0].is_file():
            raise DataError(f"{files[0]}: no such file; the run has not begun")
        names = [name for file in files if file.is_file() for name in file.read_text().split()]
        return tuple(self._entry(name) for name in dict.fromkeys(names))

    def of_stage(self, *stages: str) -> Iterator[StoredEntry]:
        """The entries of some stages that are still in the store."""
        return (entry for entry in self.entries if entry.stage in stages and entry.is_stored)

    @functools.cached_property
    def curated(self) -> Path:
        """Output of curate.

        Raises:
            DataError: the store has lost it.
        """
        found = next(self.of_stage("curate"), None)
        if found is None:
            raise DataError(f"{self.store}: the curation of run {self.run_id} is no longer there; its tasks cannot be compared")
        return found.path

    @functools.cached_property
    def tasks(self) -> pd.DataFrame:
        """`id`, `split`, `family`, `prompt` of the curated tasks, by id."""
        table = read_table(self.curated / TASKS_FILE, ["id", "split", "family", "prompt"])
        return table.set_index("id", drop=False)

    @functools.cached_property
    def gate(self) -> dict[str, Any]:
        """The verdict; empty where no gate ran."""
        path = self.record.path / GATE_FILE
        found: dict[str, Any] = read_json(path) if path.is_file() else {}
        return found

    @property
    def baseline(self) -> str:
        """Name of the policy to beat; "" where no gate ran."""
        return str(self.gate.get("baseline", ""))

    def evaluation(self, policy: str, split: str = HELD_OUT) -> StoredEntry | None:
        """The evaluation of a policy on a split; None where the run made none, or is not complete."""
        return self._evaluations.get((policy, split))

    @property
    def policies(self) -> list[str]:
        """Policies whose held-out evaluation is known."""
        return [policy for policy, split in self._evaluations if split == HELD_OUT]

    @functools.cached_property
    def _evaluations(self) -> dict[tuple[str, str], StoredEntry]:
        by_name = {entry.name: entry for entry in self.of_stage(*EVALUATIONS) if (entry.path / RESULTS_FILE).is_file()}
        return {
            (policy, split): by_name[made["entry"]]
            for policy, splits in (self.lineage.get("evaluations") or {}).items()
            for split, made in splits.items()
            if made["entry"] in by_name
        }

    def _entry(self, name: str) -> StoredEntry:
        try:
            metadata = read_metadata(self.store / FACTS / f"{name}.json")
        except (DataError, OSError):
            metadata = {}
        return StoredEntry(name, self.store / name, metadata)
