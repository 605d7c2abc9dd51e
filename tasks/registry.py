"""The champion in MLflow's model registry: finding it, fetching it, and promoting another.

A champion is an adapter or a whole model; the tag `weights` tells which; without it, it is an adapter. A promoted version's
tags are the history of the alias: `crowned` (yes), `replaced` (the champion before it, or none), `promoted_at`, and `gate` (the
evidence). What `tracewheel rollback` adds is in `tasks/rollback.py`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import prefect
from prefect.cache_policies import NO_CACHE

from tasks.run import Policy, Run
from tasks.stage import Call, Context, Expected, stage_task
from tasks.tracking import bounded, make_client, sqlite_file
from tracewheel.config import ChampionSections, RetrainConfig
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.locks import hold
from tracewheel.policy.adapters import ADAPTER, MODEL, MODEL_INFO, base_hash, policy_of

CHAMPION = "champion"
NO_CHAMPION = "none"
EVIDENCE = ("baseline", "difference", "interval", "confidence", "p_value")


@dataclass(frozen=True)
class Champion:
    """A registered policy: model version, the run that made it, the digest of its weights' folder."""

    version: str
    run_id: str
    digest: str

    def to_record(self) -> dict[str, str]:
        return asdict(self)


@bounded
def find_champion(config: RetrainConfig) -> tuple[Champion | None, str]:
    """The champion for the profile's base, or None; and a sentence with the reason."""
    database = sqlite_file(config.tracking.uri)
    if database and not database.exists():
        return None, "no champion yet"
    client = make_client(config.tracking.uri)
    name = config.tracking.model_name
    version = version_by_alias(client, name)
    if version is None:
        return None, "no champion yet"
    made_for = version.tags.get("base_hash")
    if made_for != base_hash(config.policy.base):
        return None, f"the champion ({name} version {version.version}) was made for another base, {made_for}: it is ignored"
    if version.tags.get("weights") == MODEL and config.learner.weights == "lora":
        return None, (
            f"the champion ({name} version {version.version}) is a whole model, and learner.weights is 'lora': it is ignored"
        )
    champion = Champion(str(version.version), version.tags.get("run_id", ""), version.tags.get("adapter_digest", ""))
    return champion, f"champion: {name} version {champion.version}, of run {champion.run_id}"


def version_by_alias(client: Any, name: str) -> Any:
    """The model version that is champion, whatever its base; None without one."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version_by_alias(name, CHAMPION)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise


@contextlib.contextmanager
def alias_held(config: RetrainConfig) -> Iterator[None]:
    """Let no other process of this machine move the alias meanwhile."""
    database = sqlite_file(config.tracking.uri)
    with hold(database.parent if database else Path(config.work_dir), wait=True):
        yield


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def expected(call: Call, place: int) -> Expected:
    return Expected(result={"policy_version": 0})


@stage_task("champion", code="tracewheel.policy.adapters", sections=ChampionSections, expects=expected)
def load_champion(context: Context[ChampionSections], *, version: str, digest: str) -> dict[str, Any]:
    """Fetch the champion's adapter, or whole model, from the registry."""
    return _download(context.config, context.out, version, digest)


@bounded
def _download(config: ChampionSections, out: Path, version: str, digest: str) -> dict[str, Any]:
    client = make_client(config.tracking.uri)
    name = config.tracking.model_name
    weights = fetch_weights(client, name, version, out)
    if digest_of(weights) != digest:
        raise InfrastructureError(f"{name} version {version}: the registry's files are not those that were registered")
    return {"version": version, "policy_version": policy_of(weights, config.policy.base).version}


def fetch_weights(client: Any, name: str, version: str, out: Path) -> Path:
    """Download a version's weights to a folder in `out`, named after their kind."""
    import mlflow

    weights = out / client.get_model_version(name, version).tags.get("weights", ADAPTER)
    weights.mkdir()
    mlflow.artifacts.download_artifacts(artifact_uri=f"models:/{name}/{version}", dst_path=str(weights))
    return weights


@prefect.task(name="promote_policy", retries=2, retry_delay_seconds=1, cache_policy=NO_CACHE)
def promote_policy(run: Run, policy: Policy, verdict: dict[str, Any]) -> str:
    """Register the challenger's weights; on promotion make it the champion. Returns the model version."""
    assert policy.weights is not None
    return register(run, policy.weights, verdict)


@bounded
def register(run: Run, weights: Path, verdict: dict[str, Any]) -> str:
    """Register an adapter, or a whole model, once for each run and content; a promoted one becomes the champion.

    A run that is repeated after a later run was promoted, or after its version was rolled back, does not become champion
    again. Nor does a run that started from a champion which has been rolled back since: it was compared with that one.
    """
    assert run.tracking is not None
    client, name = run.tracking.client, run.config.tracking.model_name
    tags = {
        "run_id": run.record.run_id,
        "adapter_digest": digest_of(weights),
        "base_hash": base_hash(run.config.policy.base),
        "verdict": verdict["verdict"],
    }
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name)
    known = [version for version in client.search_model_versions(f"name = '{name}'") if tags.items() <= version.tags.items()]
    if known:
        version = known[0]
    else:
        name_of_files = f"rl-{tags['adapter_digest'][:8]}"
        run.tracking.log_weights(name_of_files, weights)
        source = f"{client.get_run(run.tracking.mlflow_run_id).info.artifact_uri}/adapters/{name_of_files}"
        kind = MODEL if (weights / MODEL_INFO).is_file() else ADAPTER
        version = client.create_model_version(name, source, run.tracking.mlflow_run_id, tags=tags | {"weights": kind})
    if verdict["verdict"] == "promoted" and version.tags.get("crowned") != "yes":
        with alias_held(run.config):
            _crown(run, name, str(version.version), verdict)
    return str(version.version)


def _crown(run: Run, name: str, version: str, verdict: dict[str, Any]) -> None:
    """Make a version champion. Its record comes first, so that a kill leaves no champion without one."""
    assert run.tracking is not None
    client = run.tracking.client
    if client.get_model_version(name, version).tags.get("crowned") == "yes":
        return  # another process was first
    start = (run.record.started() or {}).get("champion")
    if start and "rolled_back" in client.get_model_version(name, start["version"]).tags:
        run.reporter.say(
            f"{name} version {version} is registered and not champion: it started from version {start['version']}, "
            "which has been rolled back since"
        )
        return
    champion = version_by_alias(client, name)
    before = str(champion.version) if champion else NO_CHAMPION
    if before != version:  # equal after a kill between the alias and the tag `crowned`
        evidence = {key: verdict[key] for key in EVIDENCE if key in verdict}
        for key, value in {"replaced": before, "promoted_at": now(), "gate": json.dumps(evidence)}.items():
            client.set_model_version_tag(name, version, key, value)
        client.set_registered_model_alias(name, CHAMPION, version)
    client.set_model_version_tag(name, version, "crowned", "yes")
