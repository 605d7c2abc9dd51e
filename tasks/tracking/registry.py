"""The champion: finding it, fetching it, and promoting another.

A champion is an adapter or a whole model; the tag `weights` of its model version tells which; without it, it is an adapter.
`promotion.py` registers versions and moves the alias, `rollback.py` moves it back, and `champion.py` is what
a work folder knows while MLflow is away.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.engine.run import Run
from tasks.tracking.champion import (
    Champion,
    champion_of,
    keep_weights,
    known_champion,
    promotion_waits,
    remember_champion,
    usable,
    weights_of,
)
from tasks.tracking.client import MlflowAway, address_now, bounded, make_client, moved_from, reason_of, sqlite_file
from tasks.tracking.promotion import (
    FORGOTTEN_TAG,
    PROMOTED,
    WAITING,
    Registration,
    registrations_of,
    version_by_alias,
)
from tracewheel.config import ChampionSections, RetrainConfig
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.run_record import CONFIG_FILE, LINEAGE_FILE
from tracewheel.core.store import link, remove
from tracewheel.operations.approval import APPROVED, approval_of, ask
from tracewheel.policy.adapters import ADAPTER, MODEL, MODEL_INFO, base_hash

EVIDENCE = ("baseline", "difference", "interval", "confidence", "p_value")
NOBODY = "no champion yet"


def find_champion(config: RetrainConfig, *, certain: bool = False, follow: bool = False) -> tuple[Champion | None, str]:
    """The champion for the profile's base, or None; and a sentence with the reason.

    While MLflow is away, it is the one that the work folder knows. So it is while a promotion of the work folder waits for
    MLflow, and where the registry is empty because its store was deleted.

    Args:
        config: The profile.
        certain: Whether the registry has to say it.
        follow: Whether the work folder's record follows the registry, as at the start of a run.

    Raises:
        MlflowAway: the registry has to say it, and does not answer.
    """
    local = known_champion(config.work_dir)
    try:
        version = _registered(config)
    except MlflowAway as away:
        if certain:
            raise
        return _from_work_folder(config, local, f"MLflow is away ({reason_of(away)})")
    if local and promotion_waits(config.work_dir, local):
        return _from_work_folder(config, local, "its promotion waits for MLflow")
    if isinstance(version, str):
        if local:
            return _from_work_folder(config, local, f"{version} has no model {config.tracking.model_name} any more")
        return None, NOBODY
    champion, name = champion_of(version), config.tracking.model_name
    if follow:
        remember_champion(config.work_dir, champion, version.tags if version else None)
    if champion is None:
        return None, NOBODY
    if FORGOTTEN_TAG in version.tags:
        return None, (
            f"the champion ({name} version {version.version}) learnt from somebody who was forgotten since "
            f"({version.tags[FORGOTTEN_TAG]}): it is ignored, and the run starts without one"
        )
    made_for = version.tags.get("base_hash")
    if made_for != base_hash(config.policy.base):
        return None, f"the champion ({name} version {version.version}) was made for another base, {made_for}: it is ignored"
    if version.tags.get("weights") == MODEL and config.learner.weights == "lora":
        return None, (
            f"the champion ({name} version {version.version}) is a whole model, and learner.weights is 'lora': it is ignored"
        )
    return champion, f"champion: {name} version {champion.version}, of run {champion.run_id}"


@bounded
def _registered(config: RetrainConfig) -> Any:
    """The model version that is champion; None without one; the store's address where it does not even have the model.

    Raises:
        MlflowAway: the store does not answer.
    """
    uri, name = config.tracking.uri, config.tracking.model_name
    database = sqlite_file(uri)
    if database and not database.exists():
        return uri
    client = make_client(uri)
    version = version_by_alias(client, name)
    if version is None and not client.search_registered_models(f"name = '{name}'"):
        return uri
    return version


def _from_work_folder(config: RetrainConfig, local: dict[str, str] | None, why: str) -> tuple[Champion | None, str]:
    if local is None:
        return None, (
            f"{why}, and {config.work_dir} knows of no champion: the run starts without one. If the registry has one, it "
            "stays, and a promotion of this run is only registered"
        )
    if not usable(config, local):
        return None, f"{why}; the champion that {config.work_dir} knows is for another base or kind of weights: it is ignored"
    champion = Champion(local["version"], local["run_id"], local["digest"])
    named = f"version {champion.version} " if champion.version != WAITING else ""
    return champion, f"{why}: the champion is {named}of run {champion.run_id}, as {config.work_dir} knows it"


def fetch_champion(config: ChampionSections, out: Path, version: str, digest: str, say: Callable[[str], None]) -> Path:
    """The champion's weights with the right digest, in `out`: from the registry, or else the work folder's copy.

    Raises:
        InfrastructureError: neither the registry nor the work folder has them.
    """
    name = f"{config.tracking.model_name} version {version}"
    try:
        return _download(config, out, version, digest)
    except (InfrastructureError, OSError) as error:
        problem, away = reason_of(error), isinstance(error, MlflowAway)
        for leftover in out.iterdir():
            remove(leftover)
        copy = weights_of(config.work_dir, digest)
        if copy is None:
            way_out = (
                "start MLflow"
                if away
                else "`tracewheel champion rollback CONFIG` restores the champion before it, `--to VERSION` an earlier one"
            )
            raise InfrastructureError(
                f"{problem}; {config.work_dir} has no copy of {name} with digest {digest[:16]}: {way_out}"
            ) from error
        link(copy, out / copy.name)
    if version != WAITING:
        say(f"champion: {problem}; the copy in {copy} has the right digest and is used instead")
    if not away:
        say(_repair(config, version, out / copy.name, digest))
    return out / copy.name


@bounded
def _download(config: ChampionSections, out: Path, version: str, digest: str) -> Path:
    name = config.tracking.model_name
    if version == WAITING:
        raise MlflowAway(f"{name}: its promotion waits for MLflow")
    client = make_client(config.tracking.uri)
    weights = fetch_weights(client, name, version, out)
    if digest_of(weights) != digest:
        raise InfrastructureError(f"{name} version {version}: the registry's files are not those that were registered")
    return weights


def _repair(config: ChampionSections, version: str, weights: Path, digest: str) -> str:
    """Put the right files back into the registry; returns a sentence that says whether it is whole again."""
    name = f"{config.tracking.model_name} version {version}"
    try:
        _upload(config, version, weights)
        with tempfile.TemporaryDirectory(prefix="tracewheel-champion-") as folder:
            _download(config, Path(folder), version, digest)
    except (InfrastructureError, OSError) as error:
        return f"{name} could not be repaired in the registry ({reason_of(error)}): what serves it from there is damaged"
    return f"{name} was repaired in the registry"


@bounded
def _upload(config: ChampionSections, version: str, weights: Path) -> None:
    client = make_client(config.tracking.uri)
    registered = client.get_model_version(config.tracking.model_name, version)
    run = client.get_run(registered.run_id)
    if old := moved_from(client.get_experiment(run.info.experiment_id), config.tracking.uri):
        raise InfrastructureError(f"its store was moved, and names {old}")
    root = f"{run.info.artifact_uri}/"
    if not registered.source.startswith(root):
        raise InfrastructureError(f"its files lie elsewhere, in {registered.source}")
    client.log_artifacts(registered.run_id, str(weights), registered.source.removeprefix(root))


def fetch_weights(client: Any, name: str, version: str, out: Path) -> Path:
    """Download a version's weights to a folder in `out`, named after their kind."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    registered = client.get_model_version(name, version)
    weights = out / registered.tags.get("weights", ADAPTER)
    weights.mkdir()
    # MLflow would look an address of the form models:/ up in the registry of the process, not in this client's.
    source = address_now(client, registered.run_id, client.get_model_version_download_uri(name, version))
    get_artifact_repository(source, tracking_uri=client.tracking_uri).download_artifacts("", str(weights))
    return weights


@bounded
def fetch_registered(uri: str, name: str, version: str | None, alias: str | None, out: Path) -> Path:
    """Download a registered version, or the one that an alias names, and check that its files are those registered.

    Raises:
        InfrastructureError: MLflow does not answer, has no such version, or its files are others.
    """
    client = make_client(uri)
    found = client.get_model_version(name, version) if version else client.get_model_version_by_alias(name, alias)
    if FORGOTTEN_TAG in found.tags:
        raise InfrastructureError(
            f"{name} version {found.version} learnt from somebody who was forgotten since ({found.tags[FORGOTTEN_TAG]}); name "
            "another version"
        )
    weights = fetch_weights(client, name, str(found.version), out)
    if digest_of(weights) != found.tags.get("adapter_digest"):
        raise InfrastructureError(f"{name} version {found.version}: the registry's files are not those that were registered")
    return weights


@bounded
def fetch_record(uri: str, name: str, version: str | None, alias: str | None, out: Path) -> Path | None:
    """Download profile and lineage of the run that made a registered version; None where MLflow has neither.

    Raises:
        InfrastructureError: MLflow does not answer, or has no such version.
    """
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    client = make_client(uri)
    made_by = (client.get_model_version(name, version) if version else client.get_model_version_by_alias(name, alias)).run_id
    source = address_now(client, made_by, client.get_run(made_by).info.artifact_uri)
    files = get_artifact_repository(source, tracking_uri=client.tracking_uri)
    if not {CONFIG_FILE, LINEAGE_FILE} <= {file.path for file in files.list_artifacts()}:
        return None
    out.mkdir()
    for file in (CONFIG_FILE, LINEAGE_FILE):
        files.download_artifacts(file, str(out))
    return out


@bounded
def register(run: Run, weights: Path, verdict: dict[str, Any]) -> str:
    """Register an adapter, or a whole model, once for each run and content; a promoted one becomes the champion.

    While MLflow is away this waits for it, and a promoted one is the champion of this work folder meanwhile.

    Returns:
        The model version; `waiting` while MLflow is away.
    """
    assert run.tracking is not None
    kind = MODEL if (weights / MODEL_INFO).is_file() else ADAPTER
    tags = {
        "run_id": run.record.run_id,
        "adapter_digest": digest_of(weights),
        "base_hash": base_hash(run.config.policy.base),
        "verdict": verdict["verdict"],
    }
    evidence = {key: verdict[key] for key in EVIDENCE if key in verdict}
    values = {"tags": tags, "weights": kind, "verdict": verdict["verdict"], "evidence": evidence}
    start = run.record.started()
    if start is not None:
        values["started_from"] = start.get("champion")
    values |= _approval(run, verdict)
    Registration.note(run.record.path, weights, values)
    run.tracking.log(patient=True)
    registered = next(one for one in registrations_of(run.record.path) if one.tags["adapter_digest"] == tags["adapter_digest"])
    if registered.version is not None:
        return registered.version
    if verdict["verdict"] == PROMOTED and "withheld" not in values and _may_lead(run, start):
        keep_weights(run.config.work_dir, weights, tags["adapter_digest"], kind)
        champion = Champion(WAITING, tags["run_id"], tags["adapter_digest"])
        remember_champion(run.config.work_dir, champion, {**tags, "weights": kind})
        run.reporter.say("promoted: the champion of this work folder from now on, and of the registry when MLflow answers")
    return WAITING


def _approval(run: Run, verdict: dict[str, Any]) -> dict[str, Any]:
    """What registering has to know of a person's approval: `withheld` and `decision`; nothing where none is needed.

    A run that has waited once keeps to its decision, whatever the profile says since.
    """
    known = approval_of(run.record.path)
    if verdict["verdict"] != PROMOTED or (known is None and run.config.gate.approval == "none"):
        return {}
    approval = known or ask(run.record.path)
    if approval.waits:
        return {"withheld": "its promotion waits for approval", "decision": {"approval": "awaited"}}
    told = {"approval_by": approval.by, "approval_note": approval.note, "approval_at": approval.at}
    return {"decision": {"approval": approval.decision, **told}} | (
        {} if approval.decision == APPROVED else {"withheld": approval.says}
    )


def _may_lead(run: Run, start: dict[str, Any] | None) -> bool:
    """Whether a promotion may replace what the work folder knows as champion: it started from that one."""
    local = known_champion(run.config.work_dir)
    began: dict[str, str] | None = (start or {}).get("champion")
    if local is None or start is None or local["run_id"] == run.record.run_id or not usable(run.config, local):
        return True
    return began is not None and (local["run_id"], local["digest"]) == (began["run_id"], began["digest"])
