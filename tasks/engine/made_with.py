"""What a run's lineage says of it at the start, besides its code: seeds, base model, and DVC's versions of what it reads."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

import yaml

from tracewheel.config import RetrainConfig
from tracewheel.curation.curated_folder import SPLITS
from tracewheel.policy.adapters import base_commit, base_hash
from tracewheel.sampling.seeds import evaluation_seed, rollout_seed

LOCK_FILE, POINTER = "dvc.lock", ".dvc"
LARGEST_POINTER = 1 << 20


def made_with(config: RetrainConfig) -> dict[str, Any]:
    """What a run is made with, besides its code: seeds, base model, and DVC's md5 of the files that it reads."""
    iterations, commit = range(1, config.training.iterations + 1), base_commit(config.policy.base)
    return {
        "seeds": {
            "run": config.seed,
            "rollout": {str(number): rollout_seed(config.seed, number) for number in iterations},
            "evaluation": {split: evaluation_seed(config.seed, split) for split in SPLITS},
        },
        "base": {"name": config.policy.base, "hash": base_hash(config.policy.base)} | ({"commit": commit} if commit else {}),
        "dvc": dvc_versions([*config.ingest.paths, config.policy.base]),
    }


def dvc_versions(paths: list[str]) -> dict[str, str]:
    """The md5 by which DVC knows what these paths name or hold, from `dvc.lock` and `*.dvc` files; empty without DVC."""
    wanted = [Path(found).resolve() for path in paths for found in ([path] if Path(path).exists() else glob.glob(path))]
    known: dict[Path, str] = {}
    for folder in {parent for path in wanted for parent in path.parents}:
        for file in (folder / LOCK_FILE, *folder.glob(f"*{POINTER}")):
            if file.is_file() and file.stat().st_size <= LARGEST_POINTER:
                known |= {(folder / path).resolve(): md5 for path, md5 in _outs(file)}
    found = {}
    for out, md5 in known.items():
        for path in wanted:
            if out.is_relative_to(path) or path.is_relative_to(out):
                found[_shown(out)] = md5
    return dict(sorted(found.items()))


def _outs(file: Path) -> list[tuple[str, str]]:
    """Path and md5 of the outputs that a file of DVC's names; what is not DVC's has none."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError):
        return []
    stages = content.get("stages", {}).values() if isinstance(content, dict) and file.name == LOCK_FILE else [content]
    rows = [out for stage in stages if isinstance(stage, dict) for out in stage.get("outs") or ()]
    return [(row["path"], row["md5"]) for row in rows if isinstance(row, dict) and {"path", "md5"} <= row.keys()]


def _shown(path: Path) -> str:
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name
