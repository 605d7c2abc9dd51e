"""Adapters on disk: as files of arrays, which travel, and as states that stages start from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import DataError, produce_whole
from tracewheel_federated.low_rank import Adapter, Array

if TYPE_CHECKING:
    from tracewheel import RetrainConfig

FACTORS = 2.0  # how much larger than the global adapter a file from outside may be
WEIGHTS = "adapter/adapter_model.safetensors"


def read_adapter(file: Path, like: Path | None = None) -> dict[str, Array]:
    """The arrays of a file of safetensors, which holds numbers only.

    Args:
        file: The file.
        like: The global adapter's, for a file from outside: a much larger one is not opened.

    Raises:
        DataError: the file is missing, damaged or too large.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        if like and file.stat().st_size > FACTORS * like.stat().st_size:
            raise DataError(f"{file}: is much larger than the global adapter; it is not read")
        return dict(load_file(file))
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise DataError(f"{file}: not an adapter in float32 or float16 ({error})") from error


def write_adapter(adapter: Adapter, file: Path) -> None:
    """Write arrays; equal ones give equal bytes."""
    from safetensors.numpy import save_file

    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(dict(sorted(adapter.items())), file)


def untrained(config: RetrainConfig, out: Path) -> Path:
    """A state with an adapter that changes nothing yet; made once."""
    from tracewheel import WarmStartSections, warm_start

    sections = WarmStartSections.of(config)
    if not out.is_dir():
        produce_whole(out, lambda folder: warm_start(sections, folder, folder, "none"))
    return out


def write_state(config: RetrainConfig, form: Path, adapter: Adapter, out: Path, version: int) -> Path:
    """Write arrays as a state.

    Args:
        config: The profile.
        form: A state whose adapter has the same form, such as `untrained` makes.
        adapter: The arrays.
        out: The folder to write; one that is there is kept.
        version: The policy version.
    """
    if not out.is_dir():
        produce_whole(out, lambda folder: _write(config, form, adapter, folder, version))
    return out


def load_into(model: Any, adapter: Adapter) -> None:
    """Set the weights of a model's adapter `default`.

    Raises:
        DataError: the arrays are not those of the model's adapter.
    """
    import torch
    from peft import set_peft_model_state_dict

    found = set_peft_model_state_dict(model, {name: torch.from_numpy(values) for name, values in adapter.items()})
    missing = [name for name in found.missing_keys if ".lora_" in name]
    if missing or found.unexpected_keys:
        raise DataError(f"{(missing or found.unexpected_keys)[0]}: the global adapter is not of this profile's form")


def _write(config: RetrainConfig, form: Path, adapter: Mapping[str, Array], out: Path, version: int) -> dict[str, Any]:
    from peft import PeftModel

    from tracewheel import load_base, save_adapter

    model = PeftModel.from_pretrained(load_base(config.policy, config.policy.base), form / "adapter")
    load_into(model, adapter)
    save_adapter(config.policy, model, "default", out, version)
    return {}
