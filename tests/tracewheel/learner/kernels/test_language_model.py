"""Which models are accepted or refused, and that checking a model does not change it."""

import pandas as pd
import pytest
import torch
from peft import LoraConfig, PrefixTuningConfig, get_peft_model
from transformers import Lfm2Config, Lfm2ForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from tracewheel.core.errors import InputError
from tracewheel.learner.batch import micro_batches
from tracewheel.learner.kernels.language_model import checkpoint_activations, language_model
from tracewheel.learner.kernels.token_logprobs import action_logprobs

SIZES = {
    "vocab_size": 61,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LAYOUTS = ["packed", "shared_prefix"]


@pytest.fixture
def batch():
    rows = [
        {"token_ids": list(range(3, 3 + length)), "action_mask": [0] * 9 + [1] * (length - 9), "logprobs": [0.0] * length}
        for length in (25, 14)
    ]
    (only,) = micro_batches(pd.DataFrame(rows), [1.0, -1.0], 1000)
    return only


@pytest.fixture
def llama():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES))


class Tripled(LlamaForCausalLM):
    """A model with a twist after its output embedding that no config field tells of."""

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.logits = output.logits * 3.0
        return output


class Mixing(LlamaForCausalLM):
    """Adds to each state the one before it in memory, whichever trajectory that belongs to."""

    def __init__(self, config):
        super().__init__(config)
        self.model.norm.register_forward_hook(lambda module, inputs, output: output + output.roll(1, dims=1))


class Deaf(LlamaForCausalLM):
    """Attends within the whole row in memory, whatever segments it is given."""

    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers:
            layer.register_forward_pre_hook(self._without_segments, with_kwargs=True)

    @staticmethod
    def _without_segments(module, inputs, named):
        if named.pop("plan", None) is not None:
            named["attention_mask"] = None
        return inputs, named


class Engine(torch.nn.Module):
    """A wrapper like those of distributed training."""

    def __init__(self, module):
        super().__init__()
        self.module = module


def test_a_model_with_unknown_logit_changes_is_refused(batch):
    with pytest.raises(InputError, match="Tripled"):
        action_logprobs(Tripled(LlamaConfig(**SIZES)), batch)


def test_prompt_learning_adapters_are_refused(batch, llama):
    model = get_peft_model(llama, PrefixTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM"))
    with pytest.raises(InputError, match="LoRA"):
        action_logprobs(model, batch)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_window_shorter_than_a_trajectory_is_refused(layout, batch):
    windowed = Qwen3Config(**SIZES, use_sliding_window=True, sliding_window=20, max_window_layers=0)
    with pytest.raises(InputError, match="padded"):
        action_logprobs(Qwen3ForCausalLM(windowed), batch, layout=layout)


def test_a_model_that_mixes_packed_rows_is_refused(batch):
    model = Mixing(LlamaConfig(**SIZES))
    action_logprobs(model, batch)
    for _ in range(2):
        with pytest.raises(InputError, match="Mixing"):
            action_logprobs(model, batch, layout="packed")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [Mixing, Deaf])
def test_models_that_mix_packed_rows_are_refused_in_every_type(kind, dtype, batch):
    with pytest.raises(InputError, match="another trajectory's tokens"):
        action_logprobs(kind(LlamaConfig(**SIZES)).to(dtype), batch, layout="shared_prefix")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_convolutions_over_packed_rows_are_refused(dtype, batch):
    """LFM2 has layers of short convolutions, which reach into the trajectory before."""
    torch.manual_seed(0)
    model = Lfm2ForCausalLM(Lfm2Config(**SIZES, layer_types=["conv", "full_attention"]))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10.0 if parameter.ndim > 1 else 1.0)
    action_logprobs(model.to(dtype), batch)
    with pytest.raises(InputError, match="another trajectory's tokens"):
        action_logprobs(model, batch, layout="packed")


def test_a_model_in_half_precision_may_be_far_from_its_other_attention():
    """Eight layers with large weights: states under eager and sdpa attention differ by a twentieth of the largest."""
    shape = {"hidden_size": 192, "intermediate_size": 256, "head_dim": 64, "num_attention_heads": 3, "num_hidden_layers": 8}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES | shape)).bfloat16().eval()
    ids = torch.arange(24).remainder(12).view(2, 12)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10.0 if parameter.ndim > 1 else 1.0)
        eager, sdpa = (_states(model, ids, attention) for attention in ("eager", "sdpa"))
    assert (eager - sdpa).abs().max() > 0.03 * sdpa.abs().max()
    rows = [{"token_ids": row, "action_mask": [0] + [1] * 11, "logprobs": [0.0] * 12} for row in ids.tolist()]
    (only,) = micro_batches(pd.DataFrame(rows), [1.0, -1.0], 1000)
    alone, _ = action_logprobs(model, only)
    for layout in LAYOUTS:
        packed, _ = action_logprobs(model, only, layout=layout)
        assert (packed - alone).abs().mean() < 0.05 * alone.abs().mean()


def _states(model, ids, attention):
    model.set_attn_implementation(attention)
    return model.model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state.float()


def test_wrapped_models_are_unwrapped(batch, llama):
    expected, _ = action_logprobs(llama, batch)
    adapted = get_peft_model(llama, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
    for wrapped in (llama, Engine(llama), adapted, Engine(Engine(adapted))):
        assert language_model(wrapped) is llama
        assert torch.equal(action_logprobs(wrapped, batch)[0], expected)


@pytest.mark.parametrize("layout", ["padded", *LAYOUTS])
def test_checks_of_a_model_keep_random_state_and_layer_modes(layout, batch, llama):
    llama.eval()
    checkpoint_activations(llama)
    modes = [module.training for module in llama.modules()]
    assert sum(modes) == SIZES["num_hidden_layers"]
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    action_logprobs(llama, batch, layout=layout)
    assert torch.equal(torch.rand(3), expected)
    assert [module.training for module in llama.modules()] == modes
