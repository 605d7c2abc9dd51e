"""What TARGET of `tracewheel lineage` means: a run, an adapter by its folder or digest, a version in MLflow's registry, or a
trace, a user or a session, also where redaction replaced its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tasks.tracking.client import bounded, make_client, sqlite_file
from tasks.tracking.promotion import CHAMPION, version_by_alias
from tracewheel.config import RetrainConfig
from tracewheel.core.errors import DataError
from tracewheel.core.fingerprint import digest_file, digest_of
from tracewheel.lineage.backward import run_of_adapter
from tracewheel.lineage.log_lines import find_traces
from tracewheel.lineage.work_folder import TRAINED, WorkFolder, stage_of
from tracewheel.policy.adapters import ADAPTER, MODEL, WEIGHTS
from tracewheel.traces.redaction.pseudonyms import KEY_VARIABLE, identity_pseudonym

SHORTEST_DIGEST = 6
Direction = Literal["back", "forward"]
WORDS = ("trace", "user", "session")
VERSION = re.compile(r"(?:models:/)?(?P<name>[^/@]+)(?:/(?P<version>\d+)|@(?P<alias>\w+))")


@dataclass(frozen=True)
class Target:
    """What to trace.

    Attributes:
        direction: Back from an adapter, or forward from traces.
        entry: The store's entry with the adapter; empty for traces, and where no entry holds it any more.
        run: The run that was named, or that ended with the adapter; empty where none is known.
        what: "trace", "user" or "session"; empty for an adapter.
        value: Which, as stored.
        found_as: How the name was understood.
    """

    direction: Direction
    entry: str = ""
    run: str = ""
    what: str = ""
    value: str = ""
    found_as: str = ""


def resolve_target(config: RetrainConfig, folder: WorkFolder, name: str, what: str | None = None) -> Target:
    """What a name means; see `find_target`. `champion`, NAME/VERSION and NAME@ALIAS are model versions.

    Raises:
        DataError: nothing has this name.
        InfrastructureError: it names a model version, and MLflow does not answer.
    """
    named = VERSION.fullmatch(name)
    if what is None and (name == CHAMPION or (named and _is_model(config, named["name"]))):
        return _of_version(config, folder, name, _version(config, named))
    key = os.environ.get(KEY_VARIABLE, "").encode()
    return find_target(folder, name, lambda kind, value: identity_pseudonym(kind, value, key), what)


def _of_version(config: RetrainConfig, folder: WorkFolder, name: str, version: Any) -> Target:
    if version is None:
        raise DataError(f"{name}: {config.tracking.uri} has no such version of {config.tracking.model_name}")
    digest, run = version.tags.get("adapter_digest", ""), version.tags.get("run_id", "")
    if digest and (found := of_digest(folder, digest)) and found.entry:
        return Target("back", found.entry, run, found_as=f"version {version.version}, of run {run}")
    if run in folder.runs:
        return of_run(folder, run)
    raise DataError(
        f"{name}: version {version.version} is of run {run or 'unknown'}, which {folder.path} does not know; name its work"
        " folder with --run-dir"
    )


@bounded
def _is_model(config: RetrainConfig, name: str) -> bool:
    database = sqlite_file(config.tracking.uri)
    if "'" in name or (database and not database.exists()):
        return False
    return bool(make_client(config.tracking.uri).search_registered_models(f"name = '{name}'"))


@bounded
def _version(config: RetrainConfig, named: re.Match[str] | None) -> Any:
    """The model version that a name means; without one, the champion."""
    database = sqlite_file(config.tracking.uri)
    if database and not database.exists():
        raise DataError(f"{config.tracking.uri}: there is no such store yet; a run makes it")
    client = make_client(config.tracking.uri)
    if named is None:
        return version_by_alias(client, config.tracking.model_name)
    if named["alias"]:
        return client.get_model_version_by_alias(named["name"], named["alias"])
    known = client.search_model_versions(f"name = '{named['name']}'")
    return next((one for one in known if str(one.version) == named["version"]), None)


def find_target(
    folder: WorkFolder, name: str, pseudonyms: Callable[[str, str], str] | None = None, what: str | None = None
) -> Target:
    """What a name means: a folder with weights, a run, an entry, a digest, then a trace, a user or a session.

    Args:
        folder: The work folder.
        name: The name.
        pseudonyms: Kind and value to what an ingest may have stored instead of the value.
        what: Look for this only, one of `WORDS`.

    Raises:
        DataError: nothing has this name, or several adapters have this beginning of a digest.
    """
    if what is None and (adapter := _adapter(folder, name)):
        return adapter
    for kind in [what] if what else WORDS:
        stored = [name, *([pseudonyms(kind, name)] if pseudonyms else [])]
        for value in dict.fromkeys(stored):
            if _is_stored(folder, kind, value):
                return Target("forward", what=kind, value=value, found_as=kind if value == name else f"{kind} {value}")
    known = what or "run, adapter, entry, digest, trace, user or session"
    raise DataError(f"{name}: no {known} of {folder.path} has this name; `tracewheel runs status` lists the runs")


def _adapter(folder: WorkFolder, name: str) -> Target | None:
    if (place := Path(name)).exists() and (found := _of_path(folder, place)):
        return found
    if name in folder.runs:
        return of_run(folder, name)
    if name in folder.entries:
        if stage_of(name) not in TRAINED:
            raise DataError(f"{name}: is no adapter; name one of {', '.join(TRAINED)}, or a run")
        return Target("back", name, found_as="entry of the store")
    return of_digest(folder, name) if _is_digest(name) else None


def of_run(folder: WorkFolder, run: str) -> Target:
    """The adapter that a run ended with; of an incomplete run, the last one that it made."""
    lineage = folder.runs[run].lineage
    chosen = (lineage.get("policies") or {}).get("rl", {}).get("entry", "")
    if chosen in folder.entries:
        return Target("back", chosen, run, found_as="run")
    kept = folder.path / run / ADAPTER
    if kept.is_dir() and (found := folder.by_digest(digest_of(kept))):
        return Target("back", found[0], run, found_as="run")
    made = [name for name in folder.runs[run].needs() or () if name in folder.entries and stage_of(name) in TRAINED]
    if not made and not chosen:
        raise DataError(f"run {run} has made no adapter yet")
    return Target("back", max(made, key=folder.finished, default=""), run, found_as="run")


def of_digest(folder: WorkFolder, digest: str) -> Target | None:
    """The adapter with this digest, of its folder or its weights' file, or a beginning of it; None without one.

    Of several entries with the same weights it is the earliest.

    Raises:
        DataError: several adapters have it.
    """
    entries = folder.by_digest(digest)
    contents = {folder.adapter(name).get("weights", folder.adapter(name)["digest"]) for name in entries}
    if len(contents) > 1:
        raise DataError(f"{digest}: {len(contents)} adapters begin like this ({', '.join(entries)}); give more digits")
    run = run_of_adapter(folder, digest) or ""
    made = [name for name in entries if stage_of(name) != "champion"] or entries
    return Target("back", min(made, key=folder.finished, default=""), run, found_as="digest") if made or run else None


def _of_path(folder: WorkFolder, place: Path) -> Target | None:
    """An adapter by where it lies: in a run, a store, or any other folder, as one that was exported."""
    if place.is_dir() and place.name in folder.runs and place.resolve().parent == folder.path.resolve():
        return of_run(folder, place.name)
    for weights in (place, place / ADAPTER, place / MODEL):
        file = weights / WEIGHTS if weights.is_dir() else weights
        if file.name == WEIGHTS and file.is_file():
            own = of_digest(folder, digest_of(file.parent))  # the same weights may be several versions
            return replace(own, found_as=f"weights in {place}") if own else _known(folder, digest_file(file), place)
        if weights.is_dir() and (weights / "model.json").is_file():
            return _known(folder, digest_of(weights), place)
    return None


def _known(folder: WorkFolder, digest: str, place: Path) -> Target:
    found = of_digest(folder, digest)
    if found is None:
        raise DataError(f"{place}: no run of {folder.path} has made these weights ({digest[:16]})")
    return Target("back", found.entry, found.run, found_as=f"weights in {place}")


def _is_stored(folder: WorkFolder, kind: str, value: str) -> bool:
    column = "id" if kind == "trace" else kind
    ingests = [name for name in folder.entries if stage_of(name) == "ingest"]
    return any(len(find_traces(folder.path_of(name), column, [value])) for name in ingests)


def _is_digest(name: str) -> bool:
    return len(name) >= SHORTEST_DIGEST and set(name) <= set("0123456789abcdef")
