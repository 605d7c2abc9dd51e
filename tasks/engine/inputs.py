"""Digests of a run's inputs: traces, base model, recordings, benchmarks, the pseudonyms' key. The run id covers them.

Stage keys and the run id hold these digests and the settings, so another recording under the same path is another run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracewheel.config import RetrainConfig
from tracewheel.core.errors import DataError
from tracewheel.core.fingerprint import digest_file
from tracewheel.core.types import content_hash
from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.environments.recorded.recording import ABOUT_FILE, CALLS_FILE
from tracewheel.policy.adapters import base_hash
from tracewheel.traces.forgotten import read_forgotten
from tracewheel.traces.redaction.pseudonyms import key_digest
from tracewheel.traces.snapshot import Snapshot, take_snapshot

TRACES = "traces/"
COMPILED = "__pycache__"

# Settings of storage, tracking, warnings, comparisons and places do not change a run's results.
NOT_IDENTITY = {
    "work_dir",
    "stage_seconds",
    "tracking",
    "name",
    "doctor",
    "audit",
    "aims",
    "baseline",
    "placement",
    "comparison",
    "resources",
    "schedule",
}


def input_digests(config: RetrainConfig, snapshot: Snapshot | None = None) -> dict[str, str]:
    """Digests of a run's inputs: each trace file by name, who was forgotten, the base model, and other files of the profile.

    Args:
        config: The profile.
        snapshot: What is read of the logs; taken now unless it is given.

    Raises:
        DataError: one of them is missing.
    """
    snapshot = snapshot or replace(take_snapshot(config.ingest), forgotten=read_forgotten(config.work_dir))
    traces = {f"{TRACES}{name}": digest for name, digest in snapshot.digests.items()}
    forgotten = {"forgotten": snapshot.forgotten.digest} if snapshot.forgotten else {}
    outcomes = {"outcomes": snapshot.outcomes_digest} if snapshot.outcomes else {}
    return traces | forgotten | outcomes | other_inputs(config)


def other_inputs(config: RetrainConfig) -> dict[str, str]:
    """`input_digests` without the logs.

    Raises:
        DataError: one of them is missing.
    """
    named = {name: digest for section in SECTIONS for name, digest in named_inputs(config, section).items()}
    return {"base": base_hash(config.policy.base)} | named


def identify(config: RetrainConfig, inputs: dict[str, str]) -> str:
    """The run id: equal for equal settings and inputs.

    Traces count by their content: neither their files' names and folders, nor a copy or an empty file make another run.
    """
    traces = sorted({digest for name, digest in inputs.items() if name.startswith(TRACES)})
    others = {name: digest for name, digest in inputs.items() if not name.startswith(TRACES)}
    return content_hash([identify_settings(config, others), traces], length=12)


def identify_settings(config: RetrainConfig, others: dict[str, str]) -> str:
    """Equal for equal settings and inputs other than the logs (`other_inputs`)."""
    settings = identity_of(config)
    settings["ingest"] = without_places(settings["ingest"])
    return content_hash([settings, others])


def without_places(ingest: dict[str, Any]) -> dict[str, Any]:
    """The settings of an ingest but for where the logs and the outcomes lie."""
    outcomes = {key: value for key, value in ingest["outcomes"].items() if key != "paths"}
    return {key: value for key, value in ingest.items() if key != "paths"} | {"outcomes": outcomes}


def identity_of(config: RetrainConfig) -> dict[str, Any]:
    """The settings that make a run, as JSON types. Who has to agree with a promotion does not change what is promoted."""
    screens = set(config.model_extra or ()).difference(config.wheel_sections)  # what they leave out is not in the snapshot
    settings = config.model_dump(mode="json", exclude={*NOT_IDENTITY, *screens})
    settings["gate"] = {key: value for key, value in settings["gate"].items() if key != "approval"}
    return settings


def named_inputs(config: RetrainConfig, section: str) -> dict[str, str]:
    """Digests of the files that a section of a profile names, by kind; empty if it names none.

    A digest does not depend on where its file lies.

    Raises:
        DataError: a file is missing.
    """
    return SECTIONS[section](config) if section in SECTIONS else {}


def _recording(config: RetrainConfig) -> dict[str, str]:
    if not config.environment.kind.startswith(RECORDED):
        return {}
    folder = Path(config.environment.kind.removeprefix(RECORDED))
    hint = f"set environment.kind to {RECORDED}DIR, where DIR is the output of `tracewheel data record`"
    return {"recording": content_hash([_digest(folder / name, hint) for name in (ABOUT_FILE, CALLS_FILE)])}


def _benchmarks(config: RetrainConfig) -> dict[str, str]:
    """The number keeps files of one name apart, since a report names files without their folder."""
    paths = [Path(path) for path in config.curation.decontamination.benchmarks]
    hint = "curation.decontamination.benchmarks names it"
    return {f"benchmarks/{number}/{path.name}": _digest(path, hint) for number, path in enumerate(paths, start=1)}


def _template(config: RetrainConfig) -> dict[str, str]:
    name = config.policy.chat_template
    return {"chat_template": _digest(Path(name), "policy.chat_template names it")} if name else {}


def _program(config: RetrainConfig) -> dict[str, str]:
    """One digest of the files that a harness's program is made of, wherever they lie."""
    harness = config.rollout.harness
    if harness is None:
        return {}
    folder = Path(harness.cwd or ".")
    named = [folder / name for name in harness.code or harness.command[1:] if harness.code or (folder / name).is_file()]
    files = [(path.parent, file) for path in named for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    kept = [(parent, file) for parent, file in files if not file.is_dir() and COMPILED not in file.parts]
    hint = "rollout.harness.code names it"
    return {"program": content_hash([[str(file.relative_to(parent)), _digest(file, hint)] for parent, file in kept])}


SECTIONS: dict[str, Callable[[RetrainConfig], dict[str, str]]] = {
    "ingest": lambda config: key_digest(config.ingest.redaction),
    "environment": _recording,
    "curation": _benchmarks,
    "policy": _template,
    "rollout": _program,
}


def _digest(path: Path, hint: str) -> str:
    if not path.is_file():
        raise DataError(f"{path}: no such file; {hint}")
    state = path.stat()
    return _digest_as_of(path, (state.st_ino, state.st_mtime_ns, state.st_size))


@functools.lru_cache(maxsize=64)
def _digest_as_of(path: Path, state: tuple[int, ...]) -> str:
    """The digest of a file, cached until the file changes, because every stage's key needs it."""
    return digest_file(path)
