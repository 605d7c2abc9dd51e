"""Models whose logits the engine would compute wrongly are refused, all others are accepted."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from tracewheel.core.errors import InputError
from tracewheel.engines.base import Request, Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.policy.adapters import PolicyRef

SIZES = {
    "vocab_size": 48, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 128, "initializer_range": 0.5,
    "pad_token_id": None, "eos_token_id": 5, "bos_token_id": None,
}  # fmt: skip


def engine_of(config, longest=None, change=None):
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    if change:
        change(model)
    engine = TransformersEngine(lambda _: model, PolicyRef("a model"), 5, Sampling(greedy=True), slots=1, longest=longest)
    return engine, model


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (CohereConfig(**SIZES), "multiplies its logits \\(logit_scale = 0.0625\\)"),
        (GraniteConfig(**SIZES, logits_scaling=8.0), "multiplies its logits \\(logits_scaling = 8.0\\)"),
        (Gemma2Config(**SIZES, sliding_window=64), "caps its logits \\(final_logit_softcapping = 30.0\\)"),
        (MistralConfig(**SIZES, sliding_window=16), "see only the last 16 tokens \\(sliding_window\\)"),
        (Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=16, max_window_layers=1), "see only the last 16 tokens"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_a_model_with_other_logits_is_refused(config, message):
    with pytest.raises(InputError, match=message):
        engine_of(config, longest=100)


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SIZES),
        Qwen3Config(**SIZES),
        GraniteConfig(**SIZES),
        MistralConfig(**SIZES, sliding_window=None),
        Qwen2Config(**SIZES, use_sliding_window=False, sliding_window=16),
    ],
    ids=lambda config: type(config).__name__,
)
def test_a_model_with_equal_logits_is_accepted(config):
    engine, model = engine_of(config)
    ids = [3, 1, 4, 1, 7, 9, 2, 6]
    engine.submit(Request(0, ids, 1))
    [turn] = engine.step()
    with torch.no_grad():
        own = torch.log_softmax(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float(), dim=-1)
    assert turn.token_ids == [int(own.argmax())]
    assert turn.logprobs == pytest.approx([float(own.max())], abs=1e-4)


def test_a_window_is_accepted_while_conversations_fit_into_it():
    config = MistralConfig(**SIZES, sliding_window=16)
    engine, model = engine_of(config, longest=16)
    prompt = [3, 1, 4, 1, 7, 9, 2, 6]
    engine.submit(Request(0, prompt, 8))
    turns = []
    while not turns:
        turns = engine.step()
    ids = prompt + turns[0].token_ids
    with torch.no_grad():
        own = torch.log_softmax(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float(), dim=-1)
    for t, logprob in enumerate(turns[0].logprobs, start=len(prompt)):
        assert own[t - 1].argmax() == ids[t]
        assert logprob == pytest.approx(own[t - 1, ids[t]].item(), abs=1e-4)
    for longest in (17, None):
        with pytest.raises(InputError, match="set rollout.max_tokens to at most 16"):
            engine_of(config, longest=longest)


def test_the_probe_finds_what_the_config_does_not_show():
    """A head that scales its logits inside the forward pass."""

    def scaled(model):
        forward = model.forward

        def scaled_forward(*args, **kwargs):
            output = forward(*args, **kwargs)
            output.logits = output.logits * 1.05
            return output

        model.forward = scaled_forward

    with pytest.raises(InputError, match="LlamaForCausalLM: the engine's logits for 15 prompts differ from the model's own"):
        engine_of(LlamaConfig(**SIZES), change=scaled)
