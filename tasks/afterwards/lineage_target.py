"""What TARGET of `tracewheel lineage` means: also versions in MLflow's registry, and values that redaction replaced."""

from __future__ import annotations

import os
import re
from typing import Any

from tasks.tracking.client import bounded, make_client, sqlite_file
from tasks.tracking.promotion import CHAMPION, version_by_alias
from tracewheel.config import RetrainConfig
from tracewheel.core.errors import DataError
from tracewheel.lineage.targets import Target, find_target, of_digest, of_run
from tracewheel.lineage.work_folder import WorkFolder
from tracewheel.traces.redaction.pseudonyms import identity_pseudonym
from tracewheel.traces.redaction.redactor import KEY_VARIABLE

VERSION = re.compile(r"(?:models:/)?(?P<name>[^/@]+)(?:/(?P<version>\d+)|@(?P<alias>\w+))")


def resolve_target(config: RetrainConfig, folder: WorkFolder, name: str, what: str | None = None) -> Target:
    """What a name means; see `find_target`. `champion`, NAME/VERSION and NAME@ALIAS are model versions.

    Raises:
        DataError: nothing has this name.
        InfrastructureError: it names a model version, and MLflow does not answer.
    """
    named = VERSION.fullmatch(name)
    if what is None and name == CHAMPION:
        return _of_version(config, folder, name, _champion(config))
    if what is None and named and _is_model(config, named["name"]):
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
def _champion(config: RetrainConfig) -> Any:
    return version_by_alias(_client(config), config.tracking.model_name)


@bounded
def _is_model(config: RetrainConfig, name: str) -> bool:
    database = sqlite_file(config.tracking.uri)
    if database and not database.exists():
        return False
    return bool(_client(config).search_registered_models(f"name = '{name}'")) if "'" not in name else False


@bounded
def _version(config: RetrainConfig, named: re.Match[str]) -> Any:
    client = _client(config)
    wanted = f"name = '{named['name']}'"
    if named["alias"]:
        return client.get_model_version_by_alias(named["name"], named["alias"])
    return next((one for one in client.search_model_versions(wanted) if str(one.version) == named["version"]), None)


def _client(config: RetrainConfig) -> Any:
    database = sqlite_file(config.tracking.uri)
    if database and not database.exists():
        raise DataError(f"{config.tracking.uri}: there is no such store yet; a run makes it")
    return make_client(config.tracking.uri)
