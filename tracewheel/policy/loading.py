"""Loads policies: base model, tokenizer, and an adapter merged or kept trainable."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError, TemplateSyntaxError
from transformers import AutoModelForCausalLM

from tracewheel.chat.renderer import ChatRenderer
from tracewheel.chat.tokenizer import load_tokenizer
from tracewheel.config import PolicyConfig, UpdateSections
from tracewheel.core.errors import ConfigError, DataError, InputError
from tracewheel.policy.adapters import PolicyRef, base_folder, check_adapter, policy_of
from tracewheel.policy.chat_template import read_template
from tracewheel.policy.lora_products import fuse_adapters


def policy_renderer(config: PolicyConfig, base: str | None = None) -> ChatRenderer:
    """The renderer of a profile's policy, or of another base that is to read and write like it; see `load_renderer`."""
    return load_renderer(base or config.base, config.tool_format, config.chat_template, config.template_options)


def load_renderer(
    base: str, tool_format: str, chat_template: str | None = None, template_options: Mapping[str, Any] | None = None
) -> ChatRenderer:
    """The base's tokenizer with its chat template, or with the one in the file `chat_template`.

    Args:
        base: A Hugging Face id, a local folder or a GGUF file.
        tool_format: How the policy writes calls.
        chat_template: A file.
        template_options: What the template reads beside messages and tools, such as `enable_thinking`.

    Raises:
        DataError: there is no such base.
        ConfigError: there is no such template, or its tokenizer cannot hold a conversation.
    """
    options = json.dumps(dict(template_options or {}))
    if chat_template is None:
        return _renderer(base, tool_format, None, options)
    try:
        return _renderer(base, tool_format, read_template(chat_template), options)
    except TemplateError as error:
        line = f", line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
        raise ConfigError(f"policy.chat_template: {chat_template}{line}: {error.message}") from error


@functools.lru_cache(maxsize=2)
def _renderer(base: str, tool_format: str, template: str | None, options: str) -> ChatRenderer:
    tokenizer = load_tokenizer(base_folder(base))
    if template is not None:
        tokenizer.chat_template = template
    return ChatRenderer(tokenizer, tool_format, json.loads(options))


def load_base(config: PolicyConfig, base: str, dtype: str | None = None) -> Any:
    """A fresh causal language model of the base, in evaluation mode and in the profile's type unless another is named."""
    if config.deterministic and config.device != "cpu":
        add_in_one_order()
    model = AutoModelForCausalLM.from_pretrained(
        base_folder(base), dtype=getattr(torch, dtype or config.dtype), attn_implementation="sdpa"
    )
    _restore_rotations(model)
    return model.to(config.device).eval()


def add_in_one_order() -> None:
    """Let torch take kernels that give the same bits each time; it warns of an operation that has none.

    Before the first product on a GPU: cuBLAS reads its variable once.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)


def _restore_rotations(model: Any) -> None:
    """Compute rotary frequencies that were made in half precision again, in float32.

    DeepSpeed's partitioned loading makes every number in the type of the weights; in bfloat16 a frequency is then up to 0.4%
    off, and an angle at position 2,000 by whole radians.

    Raises:
        InputError: a module with such frequencies cannot be made from its config alone.
    """
    for name, module in model.named_modules():
        rounded = [each for each, buffer in module.named_buffers(recurse=False) if _is_rounded(each, buffer)]
        if not rounded:
            continue
        try:
            fresh = type(module)(module.config)
        except (AttributeError, TypeError) as error:
            raise InputError(
                f"{type(model).__name__}: {name} rotates by {', '.join(rounded)}, which loading in parts has rounded: set "
                "policy.dtype to float32, or the backend's stage to 2"
            ) from error
        for each in rounded:
            module.register_buffer(each, getattr(fresh, each), persistent=False)


def _is_rounded(name: str, buffer: torch.Tensor) -> bool:
    return name.endswith("inv_freq") and buffer.dtype in (torch.bfloat16, torch.float16)


class PolicyWeights:
    """Loads a base once and applies one adapter after another, with the same bits as `load_for_generation`.

    In float32 an adapter is merged into the weights. The weights before are kept and restored, so no rounding adds up.
    They are kept from the second policy on: one policy needs the memory of one model, and more load the base twice.

    Args:
        config: The base's type and device.
    """

    def __init__(self, config: PolicyConfig) -> None:
        self._config = config
        self._base: str | None = None  # whose weights the model has or can restore
        self._model: Any = None
        self._keeps = False
        self._adapted: Any = None  # the model with an unmerged adapter
        self._plain: dict[str, torch.Tensor] = {}  # the base's weights before a merge, by name

    def load(self, policy: PolicyRef) -> Any:
        """The policy's model: the previous object, changed, while the base is the same.

        Raises:
            AdapterMismatchError: the adapter was trained for another base; the model is unchanged.
            DataError: there is no such base or adapter.
        """
        if policy.adapter is not None:
            check_adapter(policy.adapter, policy.base)
        if policy.base != self._base:
            self._model, self._base, self._adapted, self._plain = load_base(self._config, policy.base), policy.base, None, {}
        self._remove_adapter()
        if policy.adapter is not None:
            self._apply_adapter(policy.adapter)
        self._keeps = True
        return self._model

    @torch.no_grad()
    def _remove_adapter(self) -> None:
        if self._adapted is not None:
            self._model, self._adapted = self._adapted.unload(), None
        for name, weight in self._plain.items():
            self._model.get_parameter(name).copy_(weight)

    def _apply_adapter(self, adapter: str) -> None:
        from peft import PeftModel
        from peft.tuners.tuners_utils import BaseTunerLayer
        from peft.utils.other import AuxiliaryTrainingWrapper

        adapted = PeftModel.from_pretrained(self._model, adapter)
        if self._config.dtype != "float32":
            self._model, self._adapted = fuse_adapters(adapted).get_base_model().eval(), adapted
            return
        merged = {
            f"{name}.weight": module.get_base_layer().weight
            for name, module in adapted.get_base_model().named_modules()
            if isinstance(module, BaseTunerLayer)
        }
        if not self._keeps or any(isinstance(module, AuxiliaryTrainingWrapper) for module in adapted.modules()):
            self._base = None  # its weights cannot be restored
        else:
            self._plain |= {name: weight.detach().clone() for name, weight in merged.items() if name not in self._plain}
        self._model = adapted.merge_and_unload().eval()


def load_for_generation(config: PolicyConfig, policy: PolicyRef) -> Any:
    """The policy as one plain model: in float32 the adapter is merged into the weights.

    In lower precision a merge would round the adapter away, so it stays unmerged.

    Raises:
        AdapterMismatchError: the adapter was trained for another base.
    """
    return PolicyWeights(config).load(policy)


def load_policy_for_training(config: UpdateSections, state: Path, adapter_name: str = "policy") -> Any:
    """The policy of a state folder, with the weights of `learner.weights` trainable and all others frozen.

    With `lora`, a PEFT model whose adapter has the given name. With `full`, a plain model in float32, because small
    steps would be lost to the rounding of a lower precision; the state's adapter is merged.

    Raises:
        DataError: the folder holds no policy, or a whole model although `learner.weights` is `lora`.
        AdapterMismatchError: it was trained from another base.
    """
    policy = policy_of(state, config.policy.base)
    if config.learner.weights == "full":
        whole = config.policy.model_copy(update={"dtype": "float32"})
        return load_for_generation(whole, policy).requires_grad_(True)
    if policy.adapter is None:
        raise DataError(
            f"{state}: holds a whole model, and learner.weights is 'lora'; set it to 'full', or start from an adapter"
        )
    from peft import PeftModel

    base = load_base(config.policy, policy.base)
    return fuse_adapters(PeftModel.from_pretrained(base, policy.adapter, adapter_name=adapter_name, is_trainable=True))
