"""Adapters on disk: a PEFT folder that says which base it was trained for.

Beside PEFT's own files (`adapter_model.safetensors`, `adapter_config.json`) lies `adapter.json` with
the hash of the base's weights and the policy version. An adapter made for another base is refused.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracewheel.errors import AdapterMismatchError, DataError

if TYPE_CHECKING:
    from peft import PeftModel

ADAPTER_INFO = "adapter.json"
WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True)
class PolicyRef:
    """A policy: a base model (path or Hugging Face id), an adapter on it or none, and its version."""

    base: str
    adapter: str | None = None
    version: int = 0


def base_folder(base: str) -> Path:
    """The local folder of a base model; a Hugging Face id is looked up in the local cache or the hub.

    Raises:
        DataError: there is no such folder and no such model can be had.
    """
    path = Path(base)
    if path.is_dir():
        return path
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return Path(snapshot_download(base))
    except (HFValidationError, LocalEntryNotFoundError, HfHubHTTPError, OfflineModeIsEnabled, OSError) as error:
        raise DataError(f"policy.base: '{base}' is neither a folder nor a model that can be downloaded: {error}") from error


def base_hash(base: str) -> str:
    """SHA-256 (16 digits) over the base's config and weights.

    Raises:
        DataError: the folder has no safetensors weights.
    """
    folder = base_folder(base)
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise DataError(f"policy.base: {folder} holds no .safetensors file")
    stamps = tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in [folder / "config.json", *weights])
    return _hash_files(stamps)


@functools.lru_cache(maxsize=16)
def _hash_files(stamps: tuple[tuple[str, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for name, _, _ in stamps:
        with open(name, "rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:16]


def write_adapter(model: PeftModel, out: Path, adapter_name: str, base: str, version: int) -> None:
    """Write one adapter of `model` to `out`, with its base's hash. Equal weights give equal bytes."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    out.mkdir(parents=True, exist_ok=True)
    state = {
        name: tensor.detach().cpu().contiguous()
        for name, tensor in sorted(
            get_peft_model_state_dict(model, adapter_name=adapter_name, save_embedding_layers=False).items()
        )
    }
    save_file(state, out / WEIGHTS, metadata={"format": "pt"})
    config = model.peft_config[adapter_name].to_dict()
    config |= {"inference_mode": True, "base_model_name_or_path": base}
    config = {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}
    (out / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True, default=str) + "\n")
    info = {"base_hash": base_hash(base), "version": version}
    (out / ADAPTER_INFO).write_text(json.dumps(info, indent=2) + "\n")


def check_adapter(adapter: str | Path, base: str) -> int:
    """Check that an adapter belongs to a base. Returns the policy version it holds.

    Raises:
        DataError: the folder is not an adapter written by Tracewheel.
        AdapterMismatchError: it was trained for another base.
    """
    info_path = Path(adapter) / ADAPTER_INFO
    try:
        info = json.loads(info_path.read_text())
        made_for, version = str(info["base_hash"]), int(info["version"])
    except FileNotFoundError as error:
        raise DataError(f"{info_path}: no such file; {adapter} is not an adapter of Tracewheel") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{info_path}: not the description of an adapter: {error}") from error
    if not (Path(adapter) / WEIGHTS).exists():
        raise DataError(f"{Path(adapter) / WEIGHTS}: no such file; the adapter in {adapter} is not complete")
    actual = base_hash(base)
    if made_for != actual:
        raise AdapterMismatchError(
            f"{adapter} was trained for the base with hash {made_for}, but policy.base '{base}' has hash {actual}; "
            "use the base it was made for, or train a new adapter"
        )
    return version
