"""LoRA's products on a base in half precision: numbers by hand, gradients beside float32's, and what stays PEFT's."""

import pandas as pd
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from tracewheel.learner.batch import micro_batches
from tracewheel.learner.kernels.language_model import checkpoint_activations
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.policy.lora_products import fuse_adapters

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8}


class One(nn.Module):
    """A model of one layer."""

    def __init__(self, bias=False):
        super().__init__()
        self.layer = nn.Linear(2, 2, bias=bias)

    def forward(self, states):
        return self.layer(states)


def one(dtype=torch.bfloat16, **settings):
    """The layer with weights [[1, 2], [3, 4]] and an adapter of rank 1: [1, -1], then [2, 1], times 4 / 1."""
    model = get_peft_model(One(), LoraConfig(**{"r": 1, "lora_alpha": 4, "target_modules": ["layer"], **settings}))
    layer = model.base_model.model.layer
    with torch.no_grad():
        layer.base_layer.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        layer.lora_A["default"].weight.copy_(torch.tensor([[1.0, -1.0]]))
        layer.lora_B["default"].weight.copy_(torch.tensor([[2.0], [1.0]]))
    layer.base_layer.to(dtype)
    return fuse_adapters(model), layer


def test_output_and_gradients_are_those_worked_out_by_hand():
    model, layer = one()
    states = torch.tensor([[[1.0, 2.0], [3.0, 1.0]]], dtype=torch.bfloat16, requires_grad=True)
    made = model(states)
    # Products 5, 11 and 5, 13; the adapter's are -1 and 2, times [8, 4].
    assert made.tolist() == [[[-3.0, 7.0], [21.0, 21.0]]]
    made.backward(torch.tensor([[[1.0, 0.0], [0.0, 2.0]]], dtype=torch.bfloat16))
    # Of the low rank [8, 8]: of the states [1, 2] and [6, 8], and [8, -8] more in each.
    assert states.grad.tolist() == [[[9.0, -6.0], [14.0, 0.0]]]
    down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    assert down.grad.tolist() == [[8.0 * 1 + 8.0 * 3, 8.0 * 2 + 8.0 * 1]]
    assert up.grad.tolist() == [[4.0 * 1 * -1], [4.0 * 2 * 2]]
    assert down.grad.dtype == up.grad.dtype == torch.float32 and layer.base_layer.weight.grad is None


@pytest.mark.parametrize(
    "change", [{}, {"lora_dropout": 0.5}, {"use_dora": True}, {"lora_bias": True}, "disabled", "two", "trained base"]
)
def test_what_is_not_plain_is_computed_by_peft_to_the_bit(change):
    dtype = torch.float32 if change == {} else torch.bfloat16
    model, layer = one(dtype, **(change if isinstance(change, dict) else {}))
    if change == "two":
        model.add_adapter("other", LoraConfig(r=1, target_modules=["layer"], init_lora_weights=False))
        model.base_model.set_adapter(["default", "other"])
    if change == "trained base":
        layer.base_layer.weight.requires_grad_(True)
    if change == "disabled":
        layer.enable_adapters(False)
    states = torch.randn(3, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    torch.manual_seed(1)
    found = model(states)
    torch.manual_seed(1)
    assert torch.equal(found, type(layer).forward(layer, states))


def adapted(kind):
    """A small Qwen3 with an adapter, in float32 (`exact`), or with a base in bfloat16 under PEFT (`peft`) or ours."""
    torch.manual_seed(0)
    config = Qwen3Config(vocab_size=61, num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, **SIZES)
    model = get_peft_model(Qwen3ForCausalLM(config), LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
        if not parameter.requires_grad:
            parameter.data = parameter.data.bfloat16() if kind != "exact" else parameter.data.bfloat16().float()
    return fuse_adapters(model) if kind == "ours" else model


def table(forks):
    """Three trajectories with a common beginning, or one with two forks."""
    draws = torch.Generator().manual_seed(2)
    common = torch.randint(3, 61, (12,), generator=draws).tolist()
    rows = []
    for length in (60,) if forks else (40, 31, 25):
        ids = common + torch.randint(3, 61, (length - 12,), generator=draws).tolist()
        row = {"token_ids": ids, "action_mask": [0] * 12 + [1] * (length - 12), "logprobs": [0.0] * length}
        rows.append(row | ({"forks": [[30, 24], [45, 40]]} if forks else {}))
    return pd.DataFrame(rows)


def gradient(kind, layout, checkpointing=False):
    """Of the adapter, after one pass, as a vector; and the bytes that the pass kept."""
    model, kept = adapted(kind), {}
    if checkpointing:
        checkpoint_activations(model)
    rows = table(layout == "forks")
    (batch,) = micro_batches(rows, [1.0, -0.5, 0.3][: len(rows)], 1000)
    layout = "packed" if layout == "forks" else layout
    action_logprobs(model, batch, layout=layout)  # a model is checked before its first pass

    def keep(tensor):
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logprobs, _ = action_logprobs(model, batch, layout=layout)
    (logprobs * batch.advantages[:, None]).sum().backward()
    found = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
    return torch.cat(found), sum(each.untyped_storage().nbytes() for each in kept.values())


@pytest.mark.parametrize("layout", ["padded", "packed", "shared_prefix", "forks"])
def test_gradients_are_off_by_bfloat16s_rounding_as_with_peft(layout):
    exact, _ = gradient("exact", layout)
    theirs, their_bytes = gradient("peft", layout)
    ours, our_bytes = gradient("ours", layout)

    def distance(found):
        return float((found - exact).norm() / exact.norm())

    assert distance(theirs) < 0.05, "the type's rounding"
    assert 0.0 < distance(ours) < max(1.3 * distance(theirs), 0.01)
    assert our_bytes < 0.85 * their_bytes


def test_recomputed_layers_give_the_same_gradient():
    assert torch.equal(gradient("ours", "packed")[0], gradient("ours", "packed", checkpointing=True)[0])
