"""What an `adapter_config.json` may say: the forms of LoRA that every loader here computes as they were trained.

A config is data from elsewhere. Some of its fields name modules to import or change the base's weights on loading, and a
field of a later PEFT may change what the numbers mean: what is not known is refused unless it is off.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError, WeightsError
from tracewheel.core.files import read_json

CONFIG = "adapter_config.json"
LARGEST_CONFIG = 4 << 20
LONGEST_PATTERN = 500
# Fields that say how LoRA is laid out, or nothing about its numbers. `check` looks at their values where that matters.
KNOWN = {
    "alpha_pattern", "auto_mapping", "base_model_name_or_path", "bias", "ensure_weight_tying", "exclude_modules",
    "fan_in_fan_out", "inference_mode", "init_lora_weights", "layers_pattern", "layers_to_transform", "lora_alpha",
    "lora_dropout", "megatron_core", "modules_to_save", "peft_type", "peft_version", "qalora_group_size", "r",
    "rank_pattern", "revision", "runtime_config", "target_modules", "task_type", "trainable_token_indices", "use_dora",
    "use_rslora",
}  # fmt: skip
REFUSED = {
    "auto_map": "it names code to run",
    "trust_remote_code": "it asks to run code from elsewhere",
    "megatron_config": "its layers are Megatron's",
    "lora_bias": "its biases would stay in the base when the next policy is loaded; train without lora_bias",
    "layer_replication": "its base has other layers than the profile's",
    "target_parameters": "it changes single parameters instead of layers, which no engine here computes",
    "alora_invocation_tokens": "it is switched on by a token, which no engine here computes",
    "use_qalora": "no engine here computes QA-LoRA",
    "use_bdlora": "no engine here computes block-diagonal LoRA",
    "arrow_config": "no engine here computes Arrow's routing",
    "kasa_config": "it changes the base's weights when it is loaded",
    "velora_config": "no engine here computes VeLoRA",
    "monteclora_config": "no engine here computes MonteCLoRA",
}
# Only the start of training depends on these; the stored numbers are plain LoRA.
PLAIN_STARTS = ("gaussian", "orthogonal", "eva")
STARTS_THAT_ARE_DONE = ("eva_config", "corda_config", "lora_ga_config", "loftq_config")


def read_form(folder: Path) -> dict[str, Any]:
    """An adapter's config, checked.

    Raises:
        DataError: the file is missing or no JSON object.
        WeightsError: it asks for what is not computed here, or for code to run.
    """
    path = folder / CONFIG
    if path.is_file() and path.stat().st_size > LARGEST_CONFIG:
        raise WeightsError(f"has {path.stat().st_size:,} bytes, which no adapter's config needs; fetch it again", path)
    form = read_json(path)
    if not isinstance(form, dict):
        raise DataError(f"{path}: not an object, as an adapter's config is; fetch it again")
    check_form(path, form)
    return form


def check_form(path: Path, form: dict[str, Any]) -> None:
    """Check what a config asks for; raises like `read_form`."""

    def refuse(field: str, why: str) -> None:
        raise WeightsError(f"'{field}' is {_shown(form.get(field))}: {why}", path)

    if form.get("peft_type") != "LORA":
        refuse("peft_type", "only LORA is loaded here; merge it into its base with PEFT, and use that as the base")
    for field, value in form.items():
        if field in REFUSED and value:
            refuse(field, REFUSED[field])
        if field not in KNOWN and field not in REFUSED and field not in STARTS_THAT_ARE_DONE and value:
            refuse(field, "this field is not known here, and could change what the numbers mean; save it again with PEFT 0.21")
    if form.get("megatron_core", "megatron.core") not in (None, "megatron.core"):
        refuse("megatron_core", "it names a module to import; remove the field")
    library = (form.get("auto_mapping") or {}).get("parent_library") if isinstance(form.get("auto_mapping"), dict) else None
    if form.get("auto_mapping") and not re.fullmatch(r"transformers(\.\w+)*", str(library)):
        refuse("auto_mapping", "it names a module to import that is not of transformers; remove the field")
    if form.get("bias", "none") != "none":
        refuse("bias", "its biases would stay in the base when the next policy is loaded; train with bias 'none'")
    start = form.get("init_lora_weights", True)
    if isinstance(start, str) and start not in PLAIN_STARTS:
        refuse(
            "init_lora_weights",
            "it changes the base's weights when it is loaded; convert it to plain LoRA with PEFT's "
            "save_pretrained(…, path_initial_model_for_weight_conversion=…)",
        )
    _check_numbers(path, form)
    for field in ("target_modules", "exclude_modules", "layers_pattern"):
        _check_pattern(path, field, form.get(field))
    if not form.get("target_modules"):
        refuse("target_modules", "it names no layers")


def largest_rank(form: dict[str, Any]) -> int:
    """The largest rank of any layer."""
    return int(max([form["r"], *(form.get("rank_pattern") or {}).values()]))


def beyond_vllm(form: dict[str, Any]) -> str:
    """What in a config vLLM does not compute; empty where it computes all."""
    fields = ("use_dora", "modules_to_save", "trainable_token_indices")
    return ", ".join(f"{field} {_shown(form[field])}" for field in fields if form.get(field))


def _check_numbers(path: Path, form: dict[str, Any]) -> None:
    ranks = {"r": form.get("r"), **_named(path, form, "rank_pattern")}
    for name, rank in ranks.items():
        if type(rank) is not int or rank < 1:
            raise WeightsError(f"the rank of {name!r} is {_shown(rank)}; it is a whole number from 1", path)
    for name, alpha in {"lora_alpha": form.get("lora_alpha"), **_named(path, form, "alpha_pattern")}.items():
        if type(alpha) not in (int, float) or not abs(alpha) < 1e6:
            raise WeightsError(f"{name!r} is {_shown(alpha)}; it is a number", path)


def _named(path: Path, form: dict[str, Any], field: str) -> dict[str, Any]:
    """`rank_pattern` or `alpha_pattern`, whose names are patterns too."""
    value = form.get(field) or {}
    if not isinstance(value, dict):
        raise WeightsError(f"'{field}' is {_shown(value)}; it is an object of layers and numbers", path)
    for pattern in value:
        _check_pattern(path, field, pattern)
    return value


def _check_pattern(path: Path, field: str, value: Any) -> None:
    """Check names of layers, or a pattern of them, which must not take for ever to match.

    Raises:
        WeightsError: it is neither, or one repetition holds another.
    """
    if value is None or (isinstance(value, list) and all(isinstance(name, str) for name in value)):
        return
    if not isinstance(value, str) or len(value) > LONGEST_PATTERN:
        raise WeightsError(f"'{field}' is {_shown(value)}; it is a list of names, or one pattern", path)
    try:
        re.compile(value)
    except (re.error, RecursionError) as error:
        raise WeightsError(f"'{field}' is {_shown(value)}, not a pattern: {error}", path) from error
    if re.search(r"[*+}]\)+[*+{]", value):
        raise WeightsError(
            f"'{field}' is {_shown(value)}, in which one repetition holds another, which can take for ever to match; name the "
            "layers",
            path,
        )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
