"""A model as one GGUF file: weights, tokenizer and chat template.

Written for the architectures in `ARCHITECTURES`, plain ones: others, and scaled or partial rotations, need llama.cpp's own
converter. Weights keep their type; norms and biases are float32, as llama.cpp wants them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import DataError, WeightsError, read_json
from tracewheel_lab.gguf.quantised import TYPES, gguf_type, rounded
from tracewheel_lab.gguf.tokenizer import CONVERTER, add_tokenizer

if TYPE_CHECKING:
    from torch import Tensor

# By transformers' name: gguf's.
ARCHITECTURES = {"LlamaForCausalLM": "LLAMA", "Qwen2ForCausalLM": "QWEN2", "Qwen3ForCausalLM": "QWEN3"}
ROTATED_IN_PAIRS = {"LlamaForCausalLM"}  # llama.cpp rotates neighbouring numbers there, transformers both halves of a head
FILE_TYPES = {"float32": "ALL_F32", "float16": "MOSTLY_F16", "bfloat16": "MOSTLY_BF16"}


def write_gguf(folder: Path, out: Path, name: str, tokenizer: Path | None = None, kind: str | None = None) -> dict[str, Any]:
    """Write a model as `out`, a GGUF file. Equal models give equal bytes.

    Args:
        folder: The model's folder, with its weights in safetensors.
        out: The file to write.
        name: The model's name in it.
        tokenizer: A GGUF file whose tokenizer is copied, instead of the folder's.
        kind: One of `quantised.TYPES`, to which matrices are rounded.

    Returns:
        `dtype` and `architecture`.

    Raises:
        DataError: such an architecture or tokenizer is not written; the message says what does.
        WeightsError: the weights cannot be loaded.
    """
    import gguf

    config = read_json(folder / "config.json")
    architecture = check_architecture(folder, config)
    arch = getattr(gguf.MODEL_ARCH, ARCHITECTURES[architecture])
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[arch])
    _add_settings(writer, config, name)
    add_tokenizer(writer, folder, tokenizer)
    dtype = str(config.get("dtype") or config.get("torch_dtype"))
    if dtype not in FILE_TYPES:
        raise DataError(f"{folder}: its weights are of type {dtype}, and none of {', '.join(FILE_TYPES)}")
    writer.add_file_type(getattr(gguf.LlamaFileType, TYPES[kind] if kind else FILE_TYPES[dtype]))
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    tied = bool(config.get("tie_word_embeddings", False))
    for hf_name, tensor in sorted(_weights(folder).items()):
        if tied and hf_name == "lm_head.weight":
            continue
        gguf_name = names.get_name(hf_name, try_suffixes=(".weight", ".bias"))
        if gguf_name is None:
            raise DataError(f"{folder}: GGUF has no name for its weights {hf_name}; {CONVERTER}")
        if architecture in ROTATED_IN_PAIRS:
            tensor = _in_pairs(hf_name, tensor, config)
        if kind and (blocks := rounded(tensor, kind)) is not None:
            writer.add_tensor(gguf_name, blocks, raw_dtype=gguf_type(kind))
        else:
            _add_tensor(writer, gguf_name, tensor, dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {"dtype": kind or dtype, "architecture": gguf.MODEL_ARCH_NAMES[arch]}


def _weights(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            found |= load_file(file)
        except SafetensorError as error:
            raise WeightsError(str(error), file) from error
    if not found:
        raise DataError(f"{folder}: holds no weights in safetensors")
    return found


def check_architecture(folder: Path, config: dict[str, Any]) -> str:
    """The base's architecture, if this export writes it.

    Raises:
        DataError: it does not; the message says what does.
    """
    (architecture, *_) = config.get("architectures") or [None]
    if architecture not in ARCHITECTURES:
        raise DataError(
            f"{folder}: {architecture} is none of {', '.join(ARCHITECTURES)}, which are written as GGUF; {CONVERTER}"
        )
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    partial = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if rope.get("rope_type", rope.get("type", "default")) != "default" or partial != 1.0:
        raise DataError(f"{folder}: its rotations are scaled or partial ({rope}), which is not written as GGUF; {CONVERTER}")
    biased = architecture == "LlamaForCausalLM" and (config.get("attention_bias") or config.get("mlp_bias"))
    if biased or config.get("use_sliding_window") or config.get("hidden_act", "silu") != "silu":
        raise DataError(f"{folder}: biases, a sliding window or another activation are not written as GGUF; {CONVERTER}")
    return str(architecture)


def _add_settings(writer: Any, config: dict[str, Any], name: str) -> None:
    heads = config["num_attention_heads"]
    dimension = config.get("head_dim") or config["hidden_size"] // heads
    theta = (config.get("rope_parameters") or {}).get("rope_theta") or config.get("rope_theta") or 10000.0
    writer.add_type("model")
    writer.add_name(name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(dimension)
    writer.add_value_length(dimension)
    writer.add_rope_dimension_count(dimension)
    writer.add_rope_freq_base(float(theta))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _in_pairs(name: str, tensor: Tensor, config: dict[str, Any]) -> Tensor:
    """Queries' and keys' rows [H D, C] in the order of llama.cpp's rotation: the two halves of a head interleaved."""
    if name.endswith("q_proj.weight"):
        heads = config["num_attention_heads"]
    elif name.endswith("k_proj.weight"):
        heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    else:
        return tensor
    return tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def _add_tensor(writer: Any, name: str, tensor: Tensor, dtype: str) -> None:
    import gguf
    import numpy as np
    import torch

    if tensor.ndim == 1 or dtype == "float32":
        writer.add_tensor(name, tensor.float().contiguous().numpy())
    elif dtype == "float16":
        writer.add_tensor(name, tensor.contiguous().numpy())
    else:  # numpy has no bfloat16: its bytes
        bits = tensor.contiguous().view(torch.int16).numpy().view(np.uint8)
        writer.add_tensor(name, bits, raw_dtype=gguf.GGMLQuantizationType.BF16)
