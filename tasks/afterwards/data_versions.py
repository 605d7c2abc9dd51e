"""The versions of the data that a finished run read, found again by their digests: logs, base model, and other files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from glob import has_magic
from pathlib import Path
from typing import Any

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.store import remove
from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.policy.adapters import base_hash
from tracewheel.traces.forgotten import read_forgotten
from tracewheel.traces.snapshot import LogSlices, Snapshot, placed

DVC_SECONDS = 1800
LOCAL = Path(".dvc") / "config.local"
OWN = ("work_dir", "tracking", "name")


def bring_files(settings: Mapping[str, Any], folder: Path) -> list[str]:
    """Put the files and folders that a profile names, and that the clone lacks, at the same place in it; says so of each.

    Each is a link to what lies here under that name; where there is none, DVC is asked for the version of the clone's commit.
    """
    says = []
    for name in dict.fromkeys(_named_paths({key: value for key, value in settings.items() if key not in OWN})):
        target, here = folder / name, Path(name)
        if target.exists() or has_magic(name):
            continue
        if from_dvc(folder, name):
            says.append(f"{name}: from DVC")
        elif here.exists() and folder.resolve() != Path.cwd().resolve():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(here.resolve())
            says.append(f"{name}: not in the clone; the one that lies here is used")
    return says


def bring_base(run: FinishedRun, folder: Path) -> list[str]:
    """Check that the base is the run's by its digest, and bring that version where the clone has another.

    Raises:
        DataError: the base that the run learnt on is not to be had.
    """
    name, wanted = str(run.settings["policy"]["base"]), run.lineage["inputs"]["base"]
    if _base_at(folder, name) == wanted:
        return []
    if from_dvc(folder, name) and _base_at(folder, name) == wanted:
        return [f"policy.base {name}: from DVC"]
    if _base_at(Path.cwd(), name) == wanted and not Path(name).is_absolute() and folder.resolve() != Path.cwd().resolve():
        remove(folder / name)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(Path(name).resolve())
        return [f"policy.base {name}: the clone has another one; the one that lies here is the run's"]
    raise DataError(
        f"policy.base {name}: its hash is {_base_at(folder, name) or 'unknown (none is there)'}, the run learnt on {wanted}; "
        "bring back the base that has this hash"
    )


def bring_logs(run: FinishedRun, folder: Path, further: list[str]) -> tuple[list[str], list[str]]:
    """Find the exact bytes of the logs that a run has read.

    Args:
        folder: The working folder in the clone.
        further: Files and folders to look in besides those that the profile names.

    Returns:
        Paths for `ingest.paths`, from the clone's folder; and sentences.

    Raises:
        DataError: a log was changed or is gone, or somebody was forgotten since.
    """
    record = run.record.snapshot
    if record is None:
        raise DataError(f"{run.record.path}: an earlier version made the run, and did not record what it read of the logs")
    snapshot = Snapshot.from_record(record)
    if not read_forgotten(run.work_dir).hashes <= snapshot.forgotten.hashes:
        raise DataError(
            f"run {run.run_id} is not made again: somebody was forgotten since, whose records it read (forgotten.json of "
            f"{run.work_dir}); a run on the logs as they are now leaves them out"
        )
    paths = list(run.settings["ingest"]["paths"])
    own = [path if Path(path).is_absolute() else str(folder / path) for path in paths]
    here = [str(Path(path).absolute()) for path in paths]
    tried = [(paths, own, "")]
    if here != own:
        tried.append((here, here, "the logs of the clone are not those of the run; the ones that lie here hold its bytes"))
    if further:
        away = [str(Path(path).absolute()) for path in further]
        tried.append((away, away, f"logs: found in {', '.join(further)}"))
    config = run.config.ingest
    for recorded, places, says in tried:
        if placed(snapshot, config.model_copy(update={"paths": tuple(places)})):
            return recorded, [says] if says else []
    everywhere = [path for _, places, _ in tried for path in places if Path(path).exists() or has_magic(path)]
    found = config.model_copy(update={"paths": tuple(dict.fromkeys(everywhere))})
    if everywhere and placed(snapshot, found):
        return list(found.paths), ["logs: together from the clone, this folder and --logs"]
    raise DataError(_lost(snapshot, found, run))


def _lost(snapshot: Snapshot, config: IngestConfig, run: FinishedRun) -> str:
    """Which log is not what it was."""
    lost: list[LogSlices] = [log for log in snapshot.files if not config.paths or placed(Snapshot((log,)), config) is None]
    log = lost[0] if lost else snapshot.files[0]
    part = log.all[0]
    more = f", and {len(lost) - 1} more logs" if len(lost) > 1 else ""
    return (
        f"{log.name}: no log holds the bytes {part.begin} to {log.all[-1].end} that run {run.run_id} has read "
        f"(SHA-256 {part.sha256[:16]}…){more}: it was changed, rotated or deleted. Bring back a copy (--logs DIR)"
    )


def from_dvc(folder: Path, name: str) -> bool:
    """Ask DVC for a path in a clone, from the cache of the repository that lies here and then from its remotes."""
    if Path(name).is_absolute():
        return False
    source = next((place for place in [Path.cwd(), *Path.cwd().parents] if (place / ".dvc").is_dir()), None)
    top = next((place for place in [folder, *folder.parents] if (place / ".dvc").is_dir()), None)
    if source is None or top is None or source.resolve() == top.resolve() or not _is_tracked(folder, top, name):
        return False
    if (source / LOCAL).is_file():  # credentials of remotes; the clone is this user's own
        shutil.copyfile(source / LOCAL, top / LOCAL)
    _dvc(top, "config", "--local", "cache.dir", str((source / ".dvc" / "cache").resolve()))
    for line in (_dvc(source, "remote", "list") or "").splitlines():
        words = line.split()
        if len(words) >= 2:
            url = words[1] if "://" in words[1] else str((source / ".dvc" / words[1]).resolve())
            _dvc(top, "remote", "add", "--local", "--force", words[0], url)
    if default := (_dvc(source, "config", "core.remote") or "").strip():
        _dvc(top, "config", "--local", "core.remote", default)
    return any(
        _dvc(folder, *way, name) is not None and (folder / name).exists() for way in (("checkout", "-q"), ("pull", "-q"))
    )


def _is_tracked(folder: Path, top: Path, name: str) -> bool:
    """Whether DVC knows the path, or a folder above it."""
    place = folder / name
    if any(Path(f"{above}.dvc").is_file() for above in [place, *place.parents]):
        return True
    lock = top / "dvc.lock"
    return lock.is_file() and any(f"path: {word}\n" in lock.read_text() for word in _ancestors(name))


def _ancestors(name: str) -> Iterator[str]:
    yield name
    yield from (path.as_posix() for path in Path(name).parents if path.as_posix() != ".")


def _dvc(folder: Path, *arguments: str) -> str | None:
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dvc", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=DVC_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _named_paths(value: Any) -> Iterator[str]:
    """Texts in a profile that are relative paths of something that lies here, or may lie in a clone."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _named_paths(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _named_paths(item)
    elif isinstance(value, str):
        name = value.removeprefix(RECORDED)
        if ("/" in name or Path(name).suffix) and "://" not in name and not Path(name).is_absolute() and "\n" not in name:
            yield name


def _base_at(folder: Path, name: str) -> str:
    place = folder / name
    try:
        return base_hash(str(place) if place.exists() else name)
    except (DataError, OSError):
        return ""


def parents_of(run: FinishedRun) -> dict[str, Any]:
    """What the run began with, from its record: `start.json`."""
    path = run.record.path / "start.json"
    found: dict[str, Any] = read_json(path) if path.is_file() else {}
    return found
