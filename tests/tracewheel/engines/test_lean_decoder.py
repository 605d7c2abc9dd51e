"""The lean decoder gives the model's own numbers for the models that it supports, and refuses all others."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, GraniteConfig, LlamaConfig, Qwen2Config, Qwen3Config

from tracewheel.engines.lean_decoder import LeanDecoder
from tracewheel.engines.ragged_attention import use_ragged_attention
from tracewheel.engines.ragged_cache import RaggedCache

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
        (Qwen3Config(**SIZES), torch.bfloat16),
    ],
    ids=["other-architecture", "biases-of-the-mlp", "bias-of-the-output", "gelu", "bfloat16"],
)
def test_other_models_are_refused(config, dtype):
    assert not LeanDecoder.suits(model_of(config, dtype))


def test_a_model_with_an_adapter_beside_its_weights_is_refused():
    adapted = get_peft_model(model_of(Qwen3Config(**SIZES)), LoraConfig(target_modules=["v_proj"], task_type="CAUSAL_LM"))
    assert not LeanDecoder.suits(adapted.get_base_model())
