"""Registering weights in MLflow's model registry, and moving the alias `champion`.

A promoted version's tags are the history of the alias: `crowned` (yes), `replaced` (the champion before it, or none),
`promoted_at`, and `gate` (the evidence). A version that was promoted and is not champion says why in `not_champion`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tasks.tracking.client import Target, sqlite_file
from tracewheel.core import clock
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.files import read_json
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.locks import hold
from tracewheel.core.store import PARTIAL, disk_errors, link, remove, write_whole
from tracewheel.policy.adapters import ADAPTER, MODEL
from tracewheel.traces.forgotten import LEARNT, read_forgotten

CHAMPION = "champion"
NO_CHAMPION = "none"
WAITING = "waiting"
PROMOTED = "promoted"
# Of a version whose adapter learnt from somebody who was forgotten since: when.
FORGOTTEN_TAG = "forgotten"
REGISTERED, REGISTRATION_FILE, DIGITS = "registered", "registration.json", 16


@dataclass(frozen=True)
class Registration:
    """Weights that a run registers: `registered/<digest>/registration.json` in its record, and the weights while they wait.

    Attributes:
        folder: Where it lies.
        values: `tags` of the version, `weights` (adapter or model), `verdict`, `evidence`, the time `at`, and `started_from`:
            the champion at the start of the run, null without one; absent where no run started. `withheld` is why a promotion
            does not come yet, or never: it waits for a person, or one has refused it. `decision`: tags that tell of it.
            `version` once MLflow has it.
    """

    folder: Path
    values: Mapping[str, Any]

    @property
    def tags(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.values["tags"]
        return found

    @property
    def version(self) -> str | None:
        """The model version; None while it waits."""
        return self.values.get("version")

    @property
    def weights(self) -> Path:
        return self.folder / str(self.values["weights"])

    @classmethod
    def note(cls, record: Path, weights: Path, values: Mapping[str, Any]) -> Registration:
        """Write down what a run registers, with its weights, which the store may free meanwhile."""
        folder = record / REGISTERED / values["tags"]["adapter_digest"][:DIGITS]
        found = cls(folder, {**values, "at": clock.milliseconds()})
        partial = folder / f"{PARTIAL}{found.weights.name}"
        with disk_errors(folder):
            if not found.weights.is_dir():
                remove(partial)
                link(weights, partial)
                partial.rename(found.weights)
        found._write()
        return found

    def is_done(self, version: str) -> None:
        """Write down that MLflow has it."""
        type(self)(self.folder, {**self.values, "version": version})._write()
        remove(self.weights)

    def _write(self) -> None:
        write_whole(self.folder / REGISTRATION_FILE, json.dumps(self.values, indent=2) + "\n")


def registrations_of(record: Path) -> list[Registration]:
    """What a run registers, the earliest first."""
    found = [Registration(path.parent, read_json(path)) for path in record.glob(f"{REGISTERED}/*/{REGISTRATION_FILE}")]
    return sorted(found, key=lambda registration: int(registration.values["at"]))


def deliver_registration(target: Target, registration: Registration, say: Callable[[str], None]) -> str:
    """Register an adapter, or a whole model, once for each run and content; a promoted one becomes the champion.

    Not where the champion is another one than the run started from: it was compared with that one. So a run that is repeated
    after a later run was promoted, one whose champion was rolled back meanwhile, and one that waited for MLflow while another
    machine promoted, change nothing.

    Args:
        target: The MLflow run that the version belongs to.
        registration: What is registered.
        say: Told of a promotion that changes nothing.

    Returns:
        The version.

    Raises:
        InfrastructureError: the weights are not those that the run made.
    """
    client, name, tags, record = target.client, target.settings.model_name, registration.tags, registration.values
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name)
    known = [version for version in client.search_model_versions(f"name = '{name}'") if tags.items() <= version.tags.items()]
    if known:
        version = known[0]
    else:
        weights = registration.weights
        if digest_of(weights) != tags["adapter_digest"]:
            raise InfrastructureError(f"{weights}: the weights that wait to be registered are damaged")
        place = f"adapters/rl-{tags['adapter_digest'][:8]}"
        client.log_artifacts(target.mlflow_run_id, str(weights), place)
        source = f"{client.get_run(target.mlflow_run_id).info.artifact_uri}/{place}"
        version = client.create_model_version(name, source, target.mlflow_run_id, tags={**tags, "weights": record["weights"]})
    for key, value in record.get("decision", {}).items():
        client.set_model_version_tag(name, version.version, key, value)
    learnt = tags["adapter_digest"] in read_forgotten(registration.folder.parents[2]).adapters
    if learnt and FORGOTTEN_TAG not in version.tags:
        client.set_model_version_tag(name, version.version, FORGOTTEN_TAG, now())
    if withheld := record.get("withheld"):
        client.set_model_version_tag(name, version.version, "not_champion", withheld)
    elif record["verdict"] == PROMOTED and version.tags.get("crowned") != "yes":
        with alias_held(target.settings.uri, registration.folder.parents[2]):
            _crown(target, record, str(version.version), say, f"it {LEARNT}" if learnt else "")
    return str(version.version)


def _crown(target: Target, record: Mapping[str, Any], version: str, say: Callable[[str], None], why: str) -> None:
    """Make a version champion, unless something speaks against it (`why`).

    Its record comes first, so that a kill leaves no champion without one.
    """
    client, name = target.client, target.settings.model_name
    known = client.get_model_version(name, version).tags
    if known.get("crowned") == "yes":
        return  # another process was first
    champion = version_by_alias(client, name)
    if why := why or _rival(client, name, record, champion):
        client.set_model_version_tag(name, version, "not_champion", why)
        say(f"{name} version {version} of run {record['tags']['run_id']} is registered and not champion: {why}")
        return
    before = str(champion.version) if champion else NO_CHAMPION
    if before != version:  # equal after a kill between the alias and the tag `crowned`
        at = datetime.fromtimestamp(record["at"] / 1000, UTC).isoformat(timespec="seconds")
        history = {"replaced": before, "promoted_at": at, "gate": json.dumps(record["evidence"])}
        for key, value in history.items():
            client.set_model_version_tag(name, version, key, value)
        client.set_registered_model_alias(name, CHAMPION, version)
    client.set_model_version_tag(name, version, "crowned", "yes")
    if "not_champion" in known:  # it waited for a person, or for a rival that was rolled back since
        client.delete_model_version_tag(name, version, "not_champion")


def _rival(client: Any, name: str, record: Mapping[str, Any], champion: Any) -> str:
    """Why a promotion may not replace the present champion; empty where it may."""
    if "started_from" not in record:
        return ""
    start, ours = record["started_from"], record["tags"]
    began = _find(client, name, start) if start else None
    if began and "rolled_back" in began.tags:
        return f"it started from version {began.version}, which has been rolled back since"
    if began and FORGOTTEN_TAG in began.tags:
        return f"it started from version {began.version}, which learnt from somebody who was forgotten since"
    if champion is None or champion.tags.get("run_id") == ours["run_id"] or not comparable(champion.tags, record):
        return ""
    if start and _is(champion, start):
        return ""
    compared = f"version {start['version']}" if start else "no champion"
    return (
        f"it started from {compared}, and version {champion.version} (run {champion.tags.get('run_id', 'unknown')}) is "
        "champion since: the two were never compared, so the champion stays, and the next run starts from it"
    )


def comparable(champion: Mapping[str, str], record: Mapping[str, Any]) -> bool:
    """Whether a champion (its tags) would have been the start of the run: it has the same base, and weights that it can use."""
    whole = champion.get("weights") == MODEL and record["weights"] == ADAPTER
    if FORGOTTEN_TAG in champion:
        return False
    return champion.get("base_hash") == record["tags"]["base_hash"] and not whole


def _is(version: Any, start: Mapping[str, str]) -> bool:
    same = (start.get("run_id"), start.get("digest")) == (version.tags.get("run_id"), version.tags.get("adapter_digest"))
    return str(version.version) == start["version"] or (start["version"] == WAITING and same)


def _find(client: Any, name: str, start: Mapping[str, str]) -> Any:
    found = client.search_model_versions(f"name = '{name}'")
    return next((version for version in found if _is(version, start)), None)


def version_by_alias(client: Any, name: str) -> Any:
    """The model version that is champion, whatever its base; None without one."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version_by_alias(name, CHAMPION)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise


def alias_held(uri: str, folder: Path) -> AbstractContextManager[bool]:
    """Let no other process of this machine move the alias meanwhile; of a server, none of the work folder."""
    database = sqlite_file(uri)
    return hold(database.parent if database else folder, wait=True)


def now() -> str:
    return clock.written()
