"""The champion as the work folder knows it, so that a run can start while MLflow is away.

`work_dir/champion.json` names the champion that the registry had when a run last looked, or that a run of this folder promoted
since: `version` (`waiting` until MLflow has it), `run_id`, `digest`, `base_hash`, `weights` (adapter or model) and `since`.
`work_dir/champion/<digest>/` holds its weights, as hard links into the store where the disk allows them. Weights are used only
where their digest is right.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tasks.tracking.promotion import WAITING, now, registrations_of, version_by_alias
from tracewheel.config import RetrainConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.store import PARTIAL, disk_errors, link, remove, write_whole
from tracewheel.policy.adapters import ADAPTER, MODEL, base_hash

CHAMPION_FILE, CHAMPION_FOLDER = "champion.json", "champion"
FIELDS = ("version", "run_id", "digest", "base_hash", "weights", "since")
DIGITS = 16


@dataclass(frozen=True)
class Champion:
    """A registered policy: model version, the run that made it, the digest of its weights' folder."""

    version: str
    run_id: str
    digest: str

    def to_record(self) -> dict[str, str]:
        return asdict(self)


def known_champion(work_dir: str | Path) -> dict[str, str] | None:
    """What the work folder knows; None where it knows of no champion.

    Raises:
        DataError: the file is not what a run wrote.
    """
    path = Path(work_dir) / CHAMPION_FILE
    found = read_json(path, hint="delete it: the registry knows the champion") if path.is_file() else None
    if found is not None and not (isinstance(found, dict) and all(isinstance(found.get(name), str) for name in FIELDS)):
        raise DataError(f"{path}: not a record with {', '.join(FIELDS)}; delete it: the registry knows the champion")
    return found


def remember_champion(work_dir: str | Path, champion: Champion | None, tags: Mapping[str, Any] | None = None) -> None:
    """Note the champion, or that there is none; `tags` are those of its model version."""
    path = Path(work_dir) / CHAMPION_FILE
    if champion is None or tags is None:
        remove(path)
        return
    kept = {"base_hash": tags.get("base_hash", ""), "weights": tags.get("weights", ADAPTER)}
    found = {**champion.to_record(), **kept}
    known = _noted(work_dir)
    if any(known.get(name) != value for name, value in found.items()):
        write_whole(path, json.dumps({**found, "since": now()}, indent=2) + "\n")


def follow_registry(work_dir: str | Path, client: Any, name: str, registered: Mapping[str, str]) -> None:
    """Note who is champion now that a version (its tags) is registered; a later promotion that still waits stays noted."""
    known = _noted(work_dir)
    if known.get("version") == WAITING and known.get("digest") != registered["adapter_digest"]:
        return
    version = version_by_alias(client, name)
    remember_champion(work_dir, champion_of(version), version.tags if version else None)


def champion_of(version: Any) -> Champion | None:
    """The champion that a model version is; None of none."""
    if version is None:
        return None
    return Champion(str(version.version), version.tags.get("run_id", ""), version.tags.get("adapter_digest", ""))


def promotion_waits(work_dir: str | Path, known: Mapping[str, str]) -> bool:
    """Whether the promotion of what the work folder knows as champion waits for MLflow."""
    if known["version"] != WAITING:
        return False
    found = registrations_of(Path(work_dir) / known["run_id"])
    return any(one.version is None and one.tags["adapter_digest"] == known["digest"] for one in found)


def usable(config: RetrainConfig, known: Mapping[str, str]) -> bool:
    """Whether a run of this profile starts from what the work folder knows; see `registry.find_champion`."""
    whole = known["weights"] == MODEL and config.learner.weights == "lora"
    return known["base_hash"] == base_hash(config.policy.base) and not whole


def keep_weights(work_dir: str | Path, weights: Path, digest: str, kind: str) -> None:
    """Keep the champion's weights (adapter or model) beside the record; those of earlier champions are deleted."""
    folder = Path(work_dir) / CHAMPION_FOLDER
    ours = folder / digest[:DIGITS]
    if not ours.is_dir():
        partial = folder / f"{PARTIAL}{ours.name}"
        with disk_errors(folder):
            remove(partial)
            link(weights, partial / kind)
            partial.rename(ours)
    for other in folder.iterdir():
        if other != ours:
            remove(other)


def weights_of(work_dir: str | Path, digest: str) -> Path | None:
    """Weights in the work folder with this digest, wherever they lie; None without any."""
    return next((folder for folder in _candidates(Path(work_dir), digest) if digest_of(folder) == digest), None)


def _candidates(work_dir: Path, digest: str) -> Iterator[Path]:
    places = [work_dir / CHAMPION_FOLDER / digest[:DIGITS]]
    known = _noted(work_dir)
    if known.get("digest") == digest:
        places.append(work_dir / str(known.get("run_id")))
    places += sorted((work_dir / "store").glob("champion-*")) + sorted((work_dir / "store").glob("update-*"))
    for place in places:
        for name in (ADAPTER, MODEL):
            if (place / name).is_dir():
                yield place / name


def _noted(work_dir: str | Path) -> dict[str, Any]:
    """What the work folder's file says, as far as it can be read."""
    with contextlib.suppress(DataError):
        found = read_json(Path(work_dir) / CHAMPION_FILE)
        return found if isinstance(found, dict) else {}
    return {}
