"""The lean decoder gives the model's own numbers for the models that it supports, and refuses all others."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, GraniteConfig, LlamaConfig, Qwen2Config, Qwen3Config

from tracewheel.engines import products
from tracewheel.engines.lean_decoder import LeanDecoder
from tracewheel.engines.products import OutputLogits, Product, packs
from tracewheel.engines.ragged_cache import RaggedCache, use_ragged_attention

SIZES = {
    "vocab_size": 48, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128, "initializer_range": 0.3,
    "pad_token_id": None, "eos_token_id": 5, "bos_token_id": None,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}


def model_of(config, dtype=torch.float32):
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=dtype).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:  # gains and biases that differ from 1 and 0
            torch.nn.init.normal_(parameter, 1.0 if "norm" in name else 0.0, 0.5)
    use_ragged_attention(model)
    return model


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SIZES),
        LlamaConfig(**SIZES, rope_parameters=YARN),
        LlamaConfig(**SIZES | {"num_key_value_heads": 4, "rms_norm_eps": 0.1}),
        Qwen2Config(**SIZES, use_sliding_window=False),
        Qwen3Config(**SIZES, tie_word_embeddings=True),
    ],
    ids=["llama", "llama-yarn", "llama-epsilon", "qwen2-biases", "qwen3-head-norms"],
)
@torch.inference_mode()
def test_hidden_states_are_the_models_own(config):
    """Rows of different lengths in one pass, the first of them read in two pieces."""
    model = model_of(config)
    assert LeanDecoder.suits(model)
    lean, cache = LeanDecoder(model), RaggedCache(model)
    long, short = torch.arange(21) % 48, torch.tensor([7, 3, 40, 3])
    rows = [cache.take_row(), cache.take_row()]
    lean(long[:9], cache.begin(rows[:1], [9]), cache)
    hidden = lean(torch.cat([short, long[9:]]), cache.begin(rows[::-1], [4, 12]), cache)
    for mine, ids in ((hidden[:4], short), (hidden[4:], long)):
        own = model.base_model(input_ids=ids[None], use_cache=False).last_hidden_state[0, -len(mine) :]
        torch.testing.assert_close(mine, own, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        (GraniteConfig(**SIZES), torch.float32),
        (LlamaConfig(**SIZES, mlp_bias=True), torch.float32),
        (LlamaConfig(**SIZES, attention_bias=True), torch.float32),
        (LlamaConfig(**SIZES, hidden_act="gelu"), torch.float32),
        (Qwen3Config(**SIZES), torch.float16),
    ],
    ids=["other-architecture", "biases-of-the-mlp", "bias-of-the-output", "gelu", "float16"],
)
def test_other_models_are_refused(config, dtype):
    assert not LeanDecoder.suits(model_of(config, dtype))


def adapted(dtype, **settings):
    """A model with an adapter beside its weights, which changes its outputs, and the engine's view of it."""
    torch.manual_seed(5)
    targets = ["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"]
    options = {"r": 3, "lora_alpha": 7, "target_modules": targets, "task_type": "CAUSAL_LM", **settings}
    model = get_peft_model(model_of(Qwen2Config(**SIZES, use_sliding_window=False), dtype), LoraConfig(**options))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, 0.0, 0.5)
    return model.eval().get_base_model()


@torch.inference_mode()
def differences(model, ids):
    """Mean absolute differences of hidden states from the model in float32: the lean decoder's, and the model's own."""
    lean, cache = LeanDecoder(model), RaggedCache(model)
    mine = lean(ids, cache.begin([cache.take_row()], [len(ids)]), cache)
    own = model.base_model(input_ids=ids[None], use_cache=False).last_hidden_state[0]
    exact = model.float().base_model(input_ids=ids[None], use_cache=False).last_hidden_state[0]
    return float((mine.float() - exact).abs().mean()), float((own.float() - exact).abs().mean()), float(exact.abs().mean())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("with_adapter", [False, True])
def test_half_precision_and_adapters_are_as_exact_as_the_models_own_layers(dtype, with_adapter):
    model = adapted(dtype) if with_adapter else model_of(Qwen3Config(**SIZES), dtype)
    assert LeanDecoder.suits(model)
    mine, own, size = differences(model, torch.arange(40) % 48)
    assert mine <= (1e-5 * size if dtype == torch.float32 else 1.1 * own)


@pytest.mark.parametrize("settings", [{"use_dora": True}, {"bias": "none", "modules_to_save": ["norm", "input_layernorm"]}])
def test_other_adapters_are_refused(settings):
    assert not LeanDecoder.suits(adapted(torch.float32, **settings))


@pytest.mark.parametrize("old_processor", [False, True])
@torch.inference_mode()
def test_large_weights_are_laid_out_anew_with_the_same_products(old_processor, monkeypatch):
    """Above the smallest size that oneDNN gets; with biases, adapters' shapes and many or few rows.

    A processor without AVX-512 lays out no bfloat16, and multiplies as torch does.
    """
    if old_processor:
        monkeypatch.setattr(products, "lays_out", lambda dtype: dtype == torch.float32)
    torch.manual_seed(0)
    for dtype, close in ((torch.float32, 1e-4), (torch.bfloat16, 0.02)):
        weight, bias = torch.randn(520, 256).to(dtype), torch.randn(520).to(dtype)
        assert packs(weight) == products.lays_out(dtype) and products.lays_out(torch.float32)
        for rows in (1, 3, 65):
            states, added = torch.randn(rows, 256).to(dtype), torch.randn(rows, 520).to(dtype)
            exact = states.double() @ weight.double().T
            assert ((Product(weight, bias)(states) - exact - bias).abs() <= close * (1 + exact.abs())).all()
            assert ((Product(weight).plus(states, added) - exact - added).abs() <= close * (1 + exact.abs())).all()


@torch.inference_mode()
@pytest.mark.parametrize("copied", [True, False], ids=["copied", "in tiles"])
def test_logits_of_half_precision_are_in_float32(monkeypatch, copied):
    """Logits of 30 to 40: in bfloat16 they would be 0.25 apart."""
    monkeypatch.setattr(products, "FULL_COPY_BYTES", 1 << 30 if copied else 0)
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SIZES | {"vocab_size": 5000}), dtype=torch.bfloat16)
    model.lm_head.weight.normal_(0.0, 1.0)
    states = 3 * torch.randn(7, 32).bfloat16()
    exact = states.double() @ model.lm_head.weight.double().T
    assert exact.abs().max() > 30
    torch.testing.assert_close(OutputLogits(model)(states).double(), exact, atol=1e-4, rtol=0)
