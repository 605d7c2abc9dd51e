"""Whether the files of an adapter, or of a whole model, can be loaded: the one check that every loader makes.

An adapter's tensors are compared with those that PEFT makes for its config and its base, by name, shape and type. That model
has no numbers (torch's meta device), so the comparison costs the same for a large base. The numbers are read once. The result
is kept in this process while size and time of change of all files stay the same, as `files_hash` keeps digests.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError, WeightsError
from tracewheel.policy.adapter_form import read_form
from tracewheel.policy.weights_file import Stored, check_numbers, read_header, refuse_pickles, stamps

WEIGHTS = "adapter_model.safetensors"
DTYPES = ("F32", "F16", "BF16")


def check_adapter_files(folder: Path, base: Path) -> None:
    """Check an adapter's files against its config and its base.

    Args:
        folder: The adapter's folder.
        base: The base's folder.

    Raises:
        DataError: the config is missing, or the base is none that transformers knows.
        WeightsError: a file or a tensor is not as it must be; the message names it and says what to do.
    """
    _check_adapter(folder, base, stamps(folder), _stamp(base / "config.json"))


def check_model_files(folder: Path) -> None:
    """Check a whole model's files: no pickles, headers that tell the truth, finite numbers. Its loader compares the names.

    Raises:
        WeightsError: a file or a tensor is not as it must be.
    """
    _check_model(folder, stamps(folder))


@functools.lru_cache(maxsize=64)
def _check_adapter(folder: Path, base: Path, _: Any, config: Any) -> None:
    refuse_pickles(folder)
    form = read_form(folder)
    path = folder / WEIGHTS
    tensors = read_header(path)
    _compare(path, tensors, _expected(folder, form, base, config))
    check_numbers(path, tensors)


@functools.lru_cache(maxsize=16)
def _check_model(folder: Path, _: Any) -> None:
    refuse_pickles(folder)
    for path in sorted(folder.glob("*.safetensors")):
        check_numbers(path, read_header(path))


def _compare(path: Path, tensors: Mapping[str, Stored], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Compare a file's tensors with what its config and its base ask for."""
    missing, extra = (
        sorted(one - other) for one, other in ((expected.keys(), tensors.keys()), (tensors.keys(), expected.keys()))
    )
    if extra:
        raise WeightsError(
            f"is no part{_more(extra)} of the adapter that its config describes for this base: the config or the base is "
            "another one, or the file was changed; fetch it again",
            path,
            extra[0],
        )
    if missing:
        raise WeightsError(
            f"is missing{_more(missing)}: the adapter's config asks for it; the config or the base is another one, or "
            "the file was changed; fetch it again",
            path,
            missing[0],
        )
    for name, stored in tensors.items():
        if stored.dtype not in DTYPES:
            raise WeightsError(
                f"is of type {stored.dtype}; an adapter's numbers are {', '.join(DTYPES)}: save it again", path, name
            )
        if stored.shape != expected[name]:
            raise WeightsError(
                f"has the shape {list(stored.shape)}, and this base and the config's rank ask for {list(expected[name])}: the "
                "base or the config is another one",
                path,
                name,
            )


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _expected(folder: Path, form: dict[str, Any], base: Path, config: Any) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the tensors that PEFT stores of such an adapter on such a base.

    Raises:
        WeightsError: the config names layers that the base does not have.
    """
    return _expected_of(folder, json.dumps({**form, "base_model_name_or_path": None}, sort_keys=True), base, config)


@functools.lru_cache(maxsize=16)
def _expected_of(folder: Path, form: str, base: Path, _: Any) -> dict[str, tuple[int, ...]]:
    import torch
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict

    settings = {name: value for name, value in json.loads(form).items() if value is not None}
    # How training began, and where, says nothing of the names; some starts compute for minutes.
    for name in ("peft_type", "auto_mapping", "runtime_config", "loftq_config", "eva_config", "corda_config", "lora_ga_config"):
        settings.pop(name, None)
    known = LoraConfig.__dataclass_fields__
    settings = {name: value for name, value in settings.items() if name in known}
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = get_peft_model(_empty_base(base), LoraConfig(**{**settings, "init_lora_weights": False}))
            stored = get_peft_model_state_dict(model, save_embedding_layers=False)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, RuntimeError, NotImplementedError) as error:
        first = str(error).partition("\n")[0]
        raise WeightsError(
            f"PEFT cannot lay it out on this base ({first}): the base or the config is another one", folder
        ) from error
    shared = next((name for name in stored if "lora_embedding_" in name or ".lm_head.lora_" in name), None)
    if shared and model.config.get_text_config().tie_word_embeddings:
        raise WeightsError(
            "changes an embedding that this base uses for input and output, where merged and unmerged adapters differ: train "
            "without embed_tokens and lm_head, or use the merged weights as the base",
            folder / WEIGHTS,
            shared,
        )
    return {name: tuple(tensor.shape) for name, tensor in stored.items()}


def _empty_base(base: Path) -> Any:
    """The base's layers without numbers; its config may not bring code.

    Raises:
        DataError: transformers does not know such a model.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(base, trust_remote_code=False), trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        first = str(error).partition("\n")[0]
        raise DataError(
            f"{base / 'config.json'}: transformers cannot make this model ({first}); use a base that it knows"
        ) from error


def _stamp(path: Path) -> tuple[str, int, int]:
    if not path.is_file():
        raise DataError(f"{path}: no such file; a base has one")
    seen = path.stat()
    return str(path), seen.st_size, seen.st_mtime_ns
