"""Policies on disk: an adapter or a whole model, with the hash of the base that it was trained from.

A state folder holds `adapter/` or `model/`. `adapter/` has PEFT's files and `adapter.json`, `model/` a model's files and
`model.json`: the hash of the profile's base, and the policy version. A policy of another base is refused.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import LoraConfig
from tracewheel.core.errors import AdapterMismatchError, DataError
from tracewheel.core.files import read_json
from tracewheel.core.fingerprint import digest_file, digest_of, files_hash
from tracewheel.policy.adapter_check import WEIGHTS as WEIGHTS
from tracewheel.policy.adapter_check import check_adapter_files, check_model_files
from tracewheel.policy.adapter_form import CONFIG
from tracewheel.policy.gguf_base import converted_folder, gguf_file, is_gguf
from tracewheel.policy.weights_file import refuse_pickles

if TYPE_CHECKING:
    from peft import PeftModel
    from torch import Tensor

ADAPTER, MODEL = "adapter", "model"
ADAPTER_INFO, MODEL_INFO = "adapter.json", "model.json"
MODEL_FOLDER = "a model's folder (config.json, the tokenizer, *.safetensors)"
# A model's tokenizer and template files.
TEXT_FILES = (
    "tokenizer*",
    "chat_template*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "generation_config.json",
    "spiece.model",
)


@dataclass(frozen=True)
class PolicyRef:
    """A policy: a base model (path or Hugging Face id), an adapter or none, and its version.

    A policy with all weights trained is its own base: that model's folder, without an adapter.
    """

    base: str
    adapter: str | None = None
    version: int = 0


def base_folder(base: str) -> Path:
    """The local folder of a base model; a Hugging Face id is looked up in the local cache and only then on the hub.

    So a model keeps the commit at which it was first found; `OWNER/NAME@COMMIT` names one. A GGUF file is converted first,
    unless it was before.

    Raises:
        DataError: there is no such folder or model, or a GGUF file cannot be converted.
    """
    if is_gguf(base):
        return converted_folder(base)
    path = Path(base)
    if path.is_dir():
        return path
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    name, _, revision = base.partition("@")
    with contextlib.suppress(HFValidationError, LocalEntryNotFoundError, OSError):
        folder = Path(snapshot_download(name, revision=revision or None, local_files_only=True))
        if _is_complete(folder):
            return folder
    try:
        return Path(snapshot_download(name, revision=revision or None))
    except (HFValidationError, LocalEntryNotFoundError, HfHubHTTPError, OfflineModeIsEnabled, OSError) as error:
        raise no_base(base, error) from error


def _is_complete(folder: Path) -> bool:
    """Whether a snapshot in the cache has its weights, also where a download was cut off between its files."""
    parts = {each for index in folder.glob("*.safetensors.index.json") for each in read_json(index)["weight_map"].values()}
    names = {file.name for file in folder.glob("*.safetensors")}
    return bool(names) and parts <= names and (folder / "config.json").is_file()


def base_commit(base: str) -> str | None:
    """The hub's commit of a base's files; None of a local folder or a GGUF file."""
    folder = None if is_gguf(base) or Path(base).is_dir() else base_folder(base)
    return folder.name if folder and folder.parent.name == "snapshots" else None


def no_base(base: str, error: Exception) -> DataError:
    """The refusal of a base that is neither a folder nor to be had from the hub, whose own words are for its callers.

    Args:
        base: As the profile names it.
        error: What the hub's library raised.
    """
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled, RepositoryNotFoundError

    path = Path(base)
    if path.is_file():
        reason = "it is a file"
    elif isinstance(error, HFValidationError):
        reason = f"{path.absolute()} does not exist, and names of models are OWNER/NAME"
    elif isinstance(error, RepositoryNotFoundError):
        reason = "the Hugging Face hub has no such model, or not for you (`hf auth login`)"
    elif isinstance(error, LocalEntryNotFoundError | OfflineModeIsEnabled):
        reason = f"{path.absolute()} does not exist, no such model was downloaded before, and the hub does not answer"
    else:
        reason = " ".join(str(error).split())
    beside = [one.name for one in path.parent.iterdir() if one.is_dir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, beside, n=1)
    meant = f"; did you mean '{path.parent / near[0]}'?" if near else f"; give {MODEL_FOLDER} or a model of the hub"
    return DataError(f"policy.base: '{base}' is neither a folder nor a model that can be downloaded: {reason}{meant}")


def base_hash(base: str) -> str:
    """SHA-256 (16 digits) over the base's config and weights; of a GGUF file over the file.

    Raises:
        DataError: the folder has no safetensors weights, or there is no such GGUF file.
    """
    if is_gguf(base):
        return files_hash([gguf_file(base)])
    folder = base_folder(base)
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise DataError(f"policy.base: {folder} holds no .safetensors file; give {MODEL_FOLDER}")
    return files_hash([folder / "config.json", *weights])


def peft_config(lora: LoraConfig) -> Any:
    """PEFT's form of the LoRA settings."""
    from peft import LoraConfig as PeftLoraConfig

    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    return PeftLoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, lora_dropout=0.0, task_type="CAUSAL_LM")


def write_adapter(
    model: PeftModel, out: Path, adapter_name: str, base: str, version: int, weights: Mapping[str, Tensor] | None = None
) -> None:
    """Write one adapter of `model` to `out`, with its base's hash. Equal weights give equal bytes.

    Args:
        model: The model with the adapter.
        out: The folder to write.
        adapter_name: The adapter's name in the model.
        base: The base that it was trained for.
        version: The policy version.
        weights: All of the model's weights by name, if the model itself holds only a shard.
    """
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    out.mkdir(parents=True, exist_ok=True)
    stored = get_peft_model_state_dict(
        model, state_dict=None if weights is None else dict(weights), adapter_name=adapter_name, save_embedding_layers=False
    )
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(stored.items())}
    save_file(state, out / WEIGHTS, metadata={"format": "pt"})
    config = model.peft_config[adapter_name].to_dict()
    config |= {"inference_mode": True, "base_model_name_or_path": base}
    if commit := base_commit(base):
        config |= {"base_model_name_or_path": base.partition("@")[0], "revision": commit}
    config = {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}
    (out / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True, default=str) + "\n")
    write_info(out / ADAPTER_INFO, base_hash(base), version)


def write_full_model(
    model: Any, out: Path, base: str, version: int, weights: Mapping[str, Tensor] | None = None, dtype: str | None = None
) -> None:
    """Write a whole model to `out`: weights, config, the base's tokenizer, and `model.json` with the base's hash.

    The folder can be loaded like any model. Weights keep the type that they are trained in, so that training resumes
    without rounding. Equal weights give equal bytes.

    Args:
        model: A causal language model of transformers.
        out: The folder to write.
        base: The base that it was trained from, as the profile names it.
        version: The policy version.
        weights: All of the model's weights by name, if the model itself holds only a shard, or other numbers.
        dtype: Their type, if it is not the model's.
    """
    out.mkdir(parents=True, exist_ok=True)
    if weights is not None:
        own = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}  # tied weights have one name
        weights = {name: tensor for name, tensor in weights.items() if name in own}
    model.save_pretrained(out, state_dict=weights)
    # Trainers change a model's config (use_cache, for one), so it is the base's, with the weights' type.
    settings = json.loads((base_folder(base) / "config.json").read_text())
    settings.pop("torch_dtype", None)
    settings["dtype"] = dtype or str(model.dtype).removeprefix("torch.")
    (out / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    for pattern in TEXT_FILES:
        for file in sorted(base_folder(base).glob(pattern)):
            if file.is_file():
                shutil.copyfile(file, out / file.name)
    write_info(out / MODEL_INFO, base_hash(base), version)


def write_info(path: Path, base: str, version: int) -> None:
    """Write `adapter.json` or `model.json`: the hash of the base, and the policy version."""
    path.write_text(json.dumps({"base_hash": base, "version": version}, indent=2) + "\n")


def policy_of(state: str | Path, base: str) -> PolicyRef:
    """The policy in a state folder, or in an adapter's or a whole model's own folder.

    Args:
        state: A folder with `adapter/` or `model/`, or one of these.
        base: The profile's base.

    Raises:
        DataError: the folder holds no policy of Tracewheel, or two.
        AdapterMismatchError: it was trained from another base.
    """
    folder = weights_folder(state)
    if folder.name == MODEL or (folder / MODEL_INFO).is_file():
        return PolicyRef(str(folder), None, check_model(folder, base))
    return PolicyRef(base, str(folder), check_adapter(folder, base))


def weights_folder(state: str | Path) -> Path:
    """The `adapter/` or `model/` of a state folder.

    Raises:
        DataError: it has neither or both.
    """
    state = Path(state)
    if (state / ADAPTER_INFO).is_file() or (state / MODEL_INFO).is_file():
        return state
    found = [state / name for name in (ADAPTER, MODEL) if (state / name).is_dir()]
    if (state / CONFIG).is_file():
        raise DataError(
            f"{state}: an adapter without {ADAPTER_INFO}, so nothing says which base it was trained on; if you know, "
            "`tracewheel export … --adopt --base MODEL --format adapter` checks it and writes one that has it"
        )
    if len(found) != 1:
        what = "both adapter/ and model/" if found else "neither adapter/ nor model/"
        raise DataError(f"{state}: holds {what}; name the output of a warm start or an update")
    return found[0]


def adapter_digests(state: Path) -> dict[str, Any]:
    """Of a state folder with an adapter, as `adapter`, the digest of its folder and of the file of its weights; else empty."""
    folder = state / ADAPTER
    return {"adapter": digests_of(folder)} if (folder / WEIGHTS).is_file() else {}


def digests_of(weights: Path) -> dict[str, str]:
    """Digests of a folder with an adapter or a whole model: `digest` of the folder, `weights` of an adapter's file of them."""
    file = weights / WEIGHTS
    return {"digest": digest_of(weights), **({"weights": digest_file(file)} if file.is_file() else {})}


def check_adapter(adapter: str | Path, base: str) -> int:
    """Check that an adapter belongs to a base and that its files can be loaded; returns its policy version.

    Raises:
        DataError: the folder holds no adapter of Tracewheel.
        AdapterMismatchError: it was trained for another base.
        WeightsError: a file or a tensor is not as it must be (`adapter_check.py`).
    """
    version = _check(Path(adapter), ADAPTER_INFO, WEIGHTS, base, "an adapter")
    check_adapter_files(Path(adapter), base_folder(base))
    return version


def check_model(model: str | Path, base: str) -> int:
    """Check that a whole model was trained from a base and that its files can be loaded; returns its policy version.

    Raises:
        DataError: the folder holds no model of Tracewheel.
        AdapterMismatchError: it was trained from another base.
        WeightsError: a file or a tensor is not as it must be.
    """
    version = _check(Path(model), MODEL_INFO, "*.safetensors", base, "a model")
    check_model_files(Path(model))
    return version


def _check(folder: Path, info_name: str, weights: str, base: str, kind: str) -> int:
    info_path = folder / info_name
    try:
        info = json.loads(info_path.read_text())
        made_for, version = str(info["base_hash"]), int(info["version"])
    except FileNotFoundError as error:
        raise DataError(f"{info_path}: no such file; {folder} is not {kind} of Tracewheel") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{info_path}: not the description of {kind}: {error}") from error
    refuse_pickles(folder)
    if not any(folder.glob(weights)):
        raise DataError(f"{folder / weights}: no such file; {folder} is incomplete")
    actual = base_hash(base)
    if made_for != actual:
        raise AdapterMismatchError(
            f"{folder} was trained for the base with hash {made_for}, but policy.base '{base}' has hash {actual}; "
            "use its own base, or train it again"
        )
    return version


def renumber(state: Path, out: Path, version: int) -> None:
    """Copy a state folder, and give its policy a version.

    Versions grow from update to update, also when the weights go back: rollouts and staleness are counted by them. Everything
    else (weights, optimiser, critic, buffer, KL weight) stays as it is. Files are links where the disk can hold one file under
    two names.
    """
    shutil.copytree(state, out, copy_function=_link, dirs_exist_ok=True)
    for name in (ADAPTER_INFO, MODEL_INFO):
        for path in sorted(out.glob(f"*/{name}")):
            write_info(path, read_json(path)["base_hash"], version)


def _link(one: str, other: str) -> None:
    if Path(one).name in (ADAPTER_INFO, MODEL_INFO):
        shutil.copy2(one, other)  # it is written anew, and a link would change the original
        return
    try:
        os.link(one, other)
    except OSError:
        shutil.copy2(one, other)
