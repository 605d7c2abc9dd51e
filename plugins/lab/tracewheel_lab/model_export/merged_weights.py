"""A policy as one plain model that needs no PEFT: what `tracewheel export --format merged` writes.

The adapter is added to the base in float32, whatever type the base is stored in, and the sum is rounded once.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import (
    DataError,
    PolicyConfig,
    PolicyRef,
    WeightsError,
    base_folder,
    probe_logprobs,
    read_json,
    write_full_model,
    write_probe,
)

if TYPE_CHECKING:
    from torch import Tensor

TEMPLATE_NAME = "chat_template.jinja"
MOST_ROUNDING = 0.2  # of what training changed
DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


def merged_weights(policy: PolicyRef) -> tuple[Any, dict[str, Tensor], str]:
    """The policy's model in float32, its weights in the type of its base, and that type's name.

    Raises:
        AdapterMismatchError: the adapter was trained for another base.
        DataError: the base's weights are stored in a type that cannot be trained.
    """
    import torch

    from tracewheel import load_for_generation

    dtype = stored_dtype(base_folder(policy.base))
    model = load_for_generation(PolicyConfig(base=policy.base, dtype="float32", device="cpu"), policy)
    tied = read_json(base_folder(policy.base) / "config.json").get("tie_word_embeddings", True)
    if tied and not model.config.get_text_config().tie_word_embeddings:
        raise DataError(
            f"{policy.adapter}: trains one of two embeddings that its base has in common, which one model of that base cannot "
            "hold; export it with --format adapter"
        )
    kind = getattr(torch, dtype)
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    return model, {name: tensor.to(kind) if tensor.is_floating_point() else tensor for name, tensor in state.items()}, dtype


def stored_dtype(base: Path) -> str:
    """The type that a base is stored in, by its config, or else by its largest file.

    Raises:
        DataError: it is none of float32, bfloat16 and float16.
    """
    config = read_json(base / "config.json")
    named = config.get("dtype") or config.get("torch_dtype")
    if named is None:
        files = sorted(base.glob("*.safetensors"), key=lambda file: file.stat().st_size)
        types = types_in(files[-1])
        named = DTYPES.get(max(set(types), key=types.count))
    if named not in DTYPES.values():
        raise DataError(f"{base}: its weights are of type {named}; an export needs a base in {', '.join(DTYPES.values())}")
    return str(named)


def types_in(file: Path) -> list[str]:
    """The type of each tensor in a safetensors file, as its header names it.

    Raises:
        WeightsError: it is no such file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as tensors:
            return [tensors.get_slice(name).get_dtype() for name in tensors.keys()]  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"is no safetensors file ({error}); fetch it again", file) from error


def write_merged(policy: PolicyRef, base: str, out: Path, dtype: str | None = None) -> dict[str, Any]:
    """Write a policy as one model: safetensors, config, tokenizer, chat template, generation config, and a probe.

    What was written is loaded again, without PEFT, to make the probe, and to see what rounding has left of the training: a
    small adapter changes weights by less than the distance of two numbers of bfloat16.

    Args:
        policy: The base with its adapter, or a whole model.
        base: The base that it was trained from.
        out: The folder to write.
        dtype: Of the weights; None: that of the base.

    Returns:
        `dtype`; `effect`, how far the policy's log-probabilities of the probe's tokens are from the base's, and `rounding`, how
        far what was written is from the policy's: both the mean of absolute differences in nats.

    Raises:
        DataError: rounding is more than `MOST_ROUNDING` of the effect.
    """
    from tracewheel import load_base

    model, weights, stored = merged_weights(policy)
    if dtype not in (None, stored):
        weights, stored = model.state_dict(), str(dtype)
    trained = probe_logprobs(model)[1]
    write_full_model(model, out, base, policy.version, weights, stored)
    if template := own_template(policy):
        shutil.copyfile(template, out / TEMPLATE_NAME)
    del model, weights
    config = PolicyConfig(base=base, dtype="float32", device="cpu")
    written = load_base(config, str(out))
    write_probe(written, out)
    rounding = _distance(probe_logprobs(written)[1], trained)
    del written
    effect = _distance(probe_logprobs(load_base(config, base))[1], trained)
    if rounding > MOST_ROUNDING * effect > 0.0:
        raise DataError(
            f"{policy.adapter or policy.base}: in {stored} the merged weights are {rounding:.2g} nats a token from the policy, "
            f"which is {effect:.2g} from its base: rounding takes {rounding / effect:.0%} of what it learnt. Export it with "
            "--dtype float32, or with --format adapter"
        )
    return {"dtype": stored, "effect": round(effect, 6), "rounding": round(rounding, 6)}


def _distance(one: list[float], other: list[float]) -> float:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)


def own_template(policy: PolicyRef) -> Path | None:
    """The chat template that a policy was trained with, where it is not the base's."""
    template = Path(policy.adapter or policy.base) / TEMPLATE_NAME
    return template if template.is_file() else None
