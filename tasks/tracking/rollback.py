"""Undoing a promotion: the alias `champion` goes back to the version that the promoted one replaced.

The registry's tags record it. The version that was champion gets `rolled_back` (why), `rolled_back_at` and `rolled_back_to`;
the restored one gets `restored_at`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tasks.tracking.champion import champion_of, remember_champion
from tasks.tracking.client import bounded, make_client, sqlite_file
from tasks.tracking.promotion import CHAMPION, FORGOTTEN_TAG, NO_CHAMPION, alias_held, now, version_by_alias
from tasks.tracking.registry import fetch_weights
from tracewheel.config import RetrainConfig
from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.fingerprint import digest_of
from tracewheel.policy.adapters import base_hash

NO_REASON = "no reason given"


@bounded
def roll_back(config: RetrainConfig, to: str | None = None, why: str | None = None) -> dict[str, Any]:
    """Restore the champion that the present one replaced, or an earlier one.

    Rolling back twice goes back two promotions. The version that was champion does not become champion again when its
    run is repeated.

    Args:
        config: The profile, which names the registry and the base.
        to: Version of the registered model to restore; it must have been champion. None for the one before.
        why: The reason, for the record.

    Returns:
        `restored`, `rolled_back` and `replaced_by_restored` (versions), `why`, and `run_id` of the restored version.

    Raises:
        DataError: there is no champion, none before it, or the version to restore cannot be champion.
        InfrastructureError: the registry's weights of that version are not those that were registered.
    """
    database = sqlite_file(config.tracking.uri)
    name = config.tracking.model_name
    if database and not database.exists():
        raise DataError(f"{database} does not exist: there is no champion to roll back")
    client = make_client(config.tracking.uri)
    with alias_held(config.tracking.uri, Path(config.work_dir)):
        champion = version_by_alias(client, name)
        if champion is None:
            raise DataError(f"{name} in {config.tracking.uri} has no champion to roll back")
        target = _version(client, name, to) if to else _before(client, name, champion)
        _check(client, config, champion, target)
        tags = {"rolled_back_to": str(target.version), "rolled_back_at": now(), "rolled_back": why or NO_REASON}
        for key, value in tags.items():
            client.set_model_version_tag(name, champion.version, key, value)
        if "rolled_back" in target.tags:
            for key in tags:
                client.delete_model_version_tag(name, target.version, key)
        client.set_model_version_tag(name, target.version, "restored_at", now())
        client.set_registered_model_alias(name, CHAMPION, target.version)
        remember_champion(config.work_dir, champion_of(target), target.tags)
    return {
        "restored": str(target.version),
        "rolled_back": str(champion.version),
        "replaced_by_restored": target.tags.get("replaced", NO_CHAMPION),
        "why": why or NO_REASON,
        "run_id": target.tags.get("run_id", ""),
    }


def _version(client: Any, name: str, version: str) -> Any:
    found = {str(item.version): item for item in client.search_model_versions(f"name = '{name}'")}
    if version not in found:
        raise DataError(f"--to {version}: {name} has no such version; it has {', '.join(sorted(found, key=int))}")
    return found[version]


def _before(client: Any, name: str, champion: Any) -> Any:
    """The last champion before this one that was not rolled back itself."""
    version = champion
    while True:
        before = version.tags.get("replaced")
        if before is None:
            raise DataError(
                f"{name} version {version.version} does not record which champion it replaced: it was promoted before this was "
                "recorded. Name a version that was champion with --to"
            )
        if before == NO_CHAMPION:
            raise DataError(
                f"{name} version {version.version} was the first champion: there is none to go back to"
                if version is champion
                else f"every champion before {name} version {champion.version} was rolled back; name one with --to"
            )
        version = _version(client, name, before)
        if "rolled_back" not in version.tags:
            return version


def _check(client: Any, config: RetrainConfig, champion: Any, target: Any) -> None:
    name = f"{config.tracking.model_name} version {target.version}"
    if str(target.version) == str(champion.version):
        raise DataError(f"{name} is the champion already")
    if target.tags.get("crowned") != "yes":
        raise DataError(f"{name} was never champion; `tracewheel champion promote` registers and promotes")
    if FORGOTTEN_TAG in target.tags:
        raise DataError(
            f"{name} learnt from somebody who was forgotten since ({target.tags[FORGOTTEN_TAG]}); name an earlier one"
        )
    made_for = target.tags.get("base_hash")
    if made_for != base_hash(config.policy.base):
        raise DataError(f"{name} was made for another base, {made_for}; policy.base is {config.policy.base}")
    with tempfile.TemporaryDirectory(prefix="tracewheel-rollback-") as folder:
        try:
            digest = digest_of(fetch_weights(client, config.tracking.model_name, str(target.version), Path(folder)))
        except OSError as error:
            raise InfrastructureError(f"{name}: its weights cannot be read from the registry ({error})") from error
    if digest != target.tags.get("adapter_digest"):
        raise InfrastructureError(f"{name}: the registry's files are not those that were registered; nothing was changed")
