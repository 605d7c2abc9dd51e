"""The base model and the files that a finished run read, found again: here, or by DVC in the version of the run's commit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from glob import has_magic
from pathlib import Path
from typing import Any

from tracewheel import DataError, FinishedRun, base_hash

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
        place = folder / name
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(Path(name).resolve())
        return [f"policy.base {name}: the clone has another one; the one that lies here is the run's"]
    raise DataError(
        f"policy.base {name}: its hash is {_base_at(folder, name) or 'unknown (none is there)'}, the run learnt on {wanted}; "
        "bring back the base that has this hash"
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
        name = value.removeprefix("recorded:")
        if ("/" in name or Path(name).suffix) and "://" not in name and not Path(name).is_absolute() and "\n" not in name:
            yield name


def _base_at(folder: Path, name: str) -> str:
    place = folder / name
    try:
        return base_hash(str(place) if place.exists() else name)
    except (DataError, OSError):
        return ""
