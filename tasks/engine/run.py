"""What every stage of a run shares: its profile, store, record and reporter."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel

from tasks.engine.drivers import DirectDriver, PrefectDriver
from tasks.engine.inputs import named_inputs, other_inputs, without_places
from tasks.engine.made_with import made_with
from tracewheel.config import RetrainConfig, TeacherAdvantageConfig
from tracewheel.config.placement import check_cards, placed
from tracewheel.core.fingerprint import digest_file
from tracewheel.core.progress import Progress
from tracewheel.core.run_record import DAMAGED_FILE, RunRecord, find_runs
from tracewheel.core.store import Entry, Store
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import EPISODES_FILE
from tracewheel.policy.adapters import ADAPTER, MODEL, PolicyRef, base_folder, base_hash
from tracewheel.rollout.trajectory_queue import ClaimedGroups
from tracewheel.traces.discovery import find_logs
from tracewheel.traces.snapshot import Snapshot

SMALL_FILE_BYTES = 64 << 20
MOST_NAMED = 16
# Settings that do not change a stage's result: when and where rollouts are made, what a run goes on with, and where logs lie.
UNKEYED = {
    "rollout": {"mode", "max_staleness", "workers", "lag"},
    "ingest": {"allow_quarantine"},
    "curation": {"allow_drift"},
    "gate": {"approval"},
}
WORDS_OF_A_BASE = (".json", ".txt", ".jinja", ".model")


class Reporter(Protocol):
    """Shows each stage as it starts, moves and ends."""

    def start(self, label: str) -> None: ...

    def move(self, progress: Progress) -> None: ...

    def end(self, label: str, state: str, seconds: float) -> None: ...

    def say(self, text: str) -> None: ...


class Tracker(Protocol):
    """Logs the run as its folder is, to wherever runs are tracked."""

    @property
    def mlflow_run(self) -> str | None: ...

    def log_iteration(self, iteration: int, metrics: Mapping[str, float | None]) -> None: ...

    def log(self, *, patient: bool = False) -> object: ...


class Silent:
    """A reporter that shows nothing."""

    def start(self, label: str) -> None: ...

    def move(self, progress: Progress) -> None: ...

    def end(self, label: str, state: str, seconds: float) -> None: ...

    def say(self, text: str) -> None: ...


@dataclass(frozen=True)
class Policy:
    """A named policy: the base, or what was trained from it, in an entry's `adapter/` or `model/`."""

    name: str
    base: str
    entry: Entry | None = None
    version: int = 0

    @property
    def weights(self) -> Path | None:
        """The folder of the adapter or of the whole model, None for the base."""
        if self.entry is None:
            return None
        model = self.entry.path / MODEL
        return model if model.is_dir() else self.entry.path / ADAPTER

    def ref(self) -> PolicyRef:
        if self.weights and self.weights.name == MODEL:
            return PolicyRef(str(self.weights), None, self.version)
        return PolicyRef(self.base, str(self.weights) if self.weights else None, self.version)


class Used:
    """Entries that a run made or reused, in order; its cost is their sum."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Entry] = {}

    def add(self, entry: Entry) -> None:
        self._entries.setdefault((entry.stage, entry.key), entry)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())


@dataclass(frozen=True)
class Run:
    """One run of the pipeline.

    Attributes:
        driver: Obtains the results of stages.
        snapshot: What it reads of the logs, fixed once.
        inputs: Digests of its inputs (`inputs.input_digests`).
        settings: Hash of its settings and of its inputs other than logs (`inputs.identify_settings`).
        used: What the run has made or reused.
    """

    config: RetrainConfig
    store: Store
    record: RunRecord
    reporter: Reporter = field(default_factory=Silent)
    tracking: Tracker | None = None
    driver: DirectDriver = field(default_factory=PrefectDriver)
    used: Used = field(default_factory=Used)
    snapshot: Snapshot = field(default_factory=lambda: Snapshot(()))
    inputs: dict[str, str] = field(default_factory=dict)
    settings: str = ""

    @classmethod
    def unread(cls, config: RetrainConfig) -> Run:
        """A run whose logs are not read yet, to find out what is missing before anything is started.

        Raises:
            ConfigError: the profile names no logs, no environment or no base model.
            DataError: a trace file, the base model, the recording or a benchmark is missing.
        """
        config.require_run()
        find_logs(config.ingest)
        other_inputs(config)
        return cls.on(config, "")

    @classmethod
    def on(
        cls, config: RetrainConfig, run_id: str, reporter: Reporter | None = None, driver: DirectDriver | None = None
    ) -> Run:
        """A run of the profile's work folder that has read nothing."""
        work_dir = Path(config.work_dir)
        store, record = Store(work_dir / "store"), RunRecord(work_dir, run_id)
        return cls(config, store, record, reporter or Silent(), driver=driver or PrefectDriver())

    @contextlib.contextmanager
    def hold(self, flow_run: str | None = None) -> Iterator[None]:
        """Hold the store, and open the record; runs whose process is gone are crashed from now on.

        Args:
            flow_run: Prefect's id of this run.

        Raises:
            ConfigError: a GPU that the profile's placement takes does not exist.
        """
        if placed(self.config):
            import torch

            check_cards(self.config, torch.cuda.device_count())
        with self.store.exclusive():
            snapshot = {"settings": self.settings, **self.snapshot.to_record()}
            self.record.open(self.config.model_dump(mode="json"), self.inputs, snapshot, made_with(self.config))
            for other in find_runs(self.record.path.parent):
                other.state.crashed()
            self.record.state.begin(flow_run)
            yield

    def is_damaged(self, name: str, flaw: str) -> None:
        """Say that a stored result is damaged, and note it in the record; it is made again."""
        known = self.record.damaged
        if {"entry": name, "flaw": flaw} not in known:
            self.record.write(DAMAGED_FILE, [*known, {"entry": name, "flaw": flaw}])
        self.reporter.say(f"damaged in the store, and made again: {name} ({flaw})")

    def base(self) -> Policy:
        return Policy("base", self.config.policy.base)

    def adapted(self, name: str, entry: Entry, version: int = 0) -> Policy:
        return Policy(name, self.config.policy.base, entry, version)


def describe(value: Any) -> Any:
    """A stage's argument as JSON types that identify its content, not its place."""
    if isinstance(value, Entry | ClaimedGroups | Snapshot):
        return value.digest
    if isinstance(value, Policy):
        return {"adapter": value.entry.digest if value.entry else None, "version": value.version}
    if isinstance(value, dict):
        return {key: describe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [describe(item) for item in value]
    return value


def named(value: Any) -> Any:
    """A stage's argument as JSON types that people and the lineage can follow: names of entries, policies, and digests."""
    if isinstance(value, Entry):
        return {"entry": value.path.name, "digest": value.digest}
    if isinstance(value, Policy):
        made = named(value.entry) if value.entry else {}
        return {"policy": value.name, "version": value.version, **made}
    if isinstance(value, ClaimedGroups):
        return {"claimed": value.iteration, "digest": value.digest}
    if isinstance(value, Snapshot):
        return {"snapshot": value.digest, "earlier": value.earlier.entry if value.earlier else None}
    if isinstance(value, dict):
        return {key: named(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if len(value) > MOST_NAMED and not any(isinstance(item, Entry | Policy) for item in value):
            return {"count": len(value), "digest": content_hash(describe(value))}  # tasks: the output has them
        return [named(item) for item in value]
    return value


def settings_for(config: RetrainConfig, sections: tuple[str, ...]) -> dict[str, Any]:
    """The sections of a profile as JSON types, and digests of the files that they name.

    A recording keeps its path along with its digest, because its tasks name the path.

    Raises:
        DataError: a recording or a benchmark is missing.
    """
    settings = values_for(config, sections)
    for section in sections:
        settings |= named_inputs(config, section)
    if "policy" in sections:
        settings["base"] = _base_digest(config.policy.base)
    files = {"warm_start": config.warm_start.replay.path, "learner": config.learner.replay_path}
    for section, name in files.items():
        if section in sections and name and Path(name).is_file():
            settings[f"{section} replay"] = digest_file(Path(name))
    if "warm_start" in sections and config.warm_start.extra_demonstrations:
        taught = [Path(folder) / EPISODES_FILE for folder in config.warm_start.extra_demonstrations]
        settings["extra demonstrations"] = [digest_file(path) for path in taught if path.is_file()]
    advantage = getattr(config.learner, "advantage", None)
    if "learner" in sections and isinstance(advantage, TeacherAdvantageConfig):
        weights = Path(advantage.adapter or "") / "adapter_model.safetensors"
        settings["teacher"] = [
            _base_digest(advantage.base) if advantage.base else None,
            digest_file(weights) if advantage.adapter and weights.is_file() else None,
        ]
    return settings


def values_for(config: RetrainConfig, sections: tuple[str, ...]) -> dict[str, Any]:
    """The sections of a profile as JSON types, without the settings that do not change a result."""
    values = config.model_dump(mode="json")
    # `own_sampler` is worked out from others, and no field that is dumped.
    settings = {section: values[section] if section in values else getattr(config, section) for section in sections}
    for section in sections:
        unkeyed = UNKEYED.get(section, ())
        worked_out = {name: value for name, value in _worked_out(getattr(config, section)) if name not in unkeyed}
        if unkeyed or worked_out:
            kept = {name: value for name, value in settings[section].items() if name not in unkeyed}
            settings[section] = kept | ({"worked out": worked_out} if worked_out else {})
    if "ingest" in settings:
        settings["ingest"] = without_places(settings["ingest"])
    return settings


def _worked_out(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """What a section works out of its settings, as `tier_limit`: no key holds the code of the config."""
    if not isinstance(value, BaseModel):
        return
    for owner in type(value).__mro__:
        if owner.__module__.startswith("tracewheel.config"):
            found = ((name, getattr(value, name)) for name, held in vars(owner).items() if isinstance(held, property))
            yield from ((f"{path}{name}", item) for name, item in found if not isinstance(item, BaseModel))
    for name in type(value).model_fields:
        yield from _worked_out(getattr(value, name), f"{path}{name}.")


@functools.cache
def _base_digest(base: str) -> str:
    """The base's weights by their hash, its config, tokenizer and chat template by content."""
    files = sorted(file for file in base_folder(base).iterdir() if file.suffix in WORDS_OF_A_BASE)
    small = [[file.name, digest_file(file)] for file in files if file.stat().st_size < SMALL_FILE_BYTES]
    return content_hash([base_hash(base), small])
