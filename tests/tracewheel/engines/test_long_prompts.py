"""The transformers engine with prompts of 1 to 2,000 tokens, against the model's own log-probabilities."""

import random
from dataclasses import dataclass, field

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from tracewheel.engines import ragged_cache
from tracewheel.engines.base import Request, Sampling
from tracewheel.engines.transformers import READ_CHUNK, TransformersEngine
from tracewheel.policy.adapters import PolicyRef

VOCABULARY, STOP, TURNS, BUDGET = 97, 96, 3, 4
# SmolLM2's architecture: three queries a key head, tied embeddings; small.
CONFIG = LlamaConfig(
    vocab_size=VOCABULARY, hidden_size=72, intermediate_size=96, num_hidden_layers=3, num_attention_heads=9,
    num_key_value_heads=3, max_position_embeddings=4096, initializer_range=0.15, tie_word_embeddings=True,
    eos_token_id=STOP, bos_token_id=None, pad_token_id=None, rope_theta=100_000.0,
)  # fmt: skip
# Below, at and above each doubling of the room, which is 64 at first, and the chunk of 1,024 tokens.
EDGES = [1, 2, 60, 63, 64, 65, 127, 128, 129, 255, 256, 257, 512, 513, 1023, READ_CHUNK, 1025, 2000]


@dataclass
class Conversation:
    """Its ids, and the log-probabilities of sampled ones by position."""

    ids: list[int]
    logprobs: dict[int, float] = field(default_factory=dict)
    turns: int = 0


def converse(engine, conversations, observations):
    """Several turns of each, all at once; the observation after turn t has a length of its own."""
    for number, conversation in enumerate(conversations):
        engine.submit(Request(number, list(conversation.ids), BUDGET, seed=number))
    rng = random.Random(5)
    while not engine.idle:
        for turn in engine.step():
            conversation = conversations[turn.session]
            conversation.logprobs |= dict(enumerate(turn.logprobs, start=len(conversation.ids)))
            conversation.ids += turn.token_ids
            conversation.turns += 1
            if conversation.turns == TURNS:
                engine.close(turn.session)
                continue
            seen = [rng.randrange(VOCABULARY) for _ in range(rng.choice(observations))]
            conversation.ids += seen
            engine.submit(Request(turn.session, seen, BUDGET))


@torch.inference_mode()
def misses(model, conversations):
    """Absolute differences from the log-probabilities of the model's own passes over whole conversations."""
    found = []
    for conversation in conversations:
        own = model(input_ids=torch.tensor([conversation.ids]), use_cache=False).logits[0].float().log_softmax(-1)
        found += [abs(value - own[t - 1, conversation.ids[t]].item()) for t, value in conversation.logprobs.items()]
    return found


ALL_AT_ONCE, SMALL_BLOCKS = (64, 1 << 22), (7, 1 << 14)


@pytest.mark.parametrize(
    ("slots", "scores", "dtype"),
    [
        pytest.param(*ALL_AT_ONCE, "float32"),
        pytest.param(*SMALL_BLOCKS, "bfloat16"),
        pytest.param(*SMALL_BLOCKS, "float32", marks=pytest.mark.slow),
        pytest.param(*ALL_AT_ONCE, "bfloat16", marks=pytest.mark.slow),
    ],
)
def test_groups_with_prompts_at_every_edge(monkeypatch, slots, scores, dtype):
    """Each prompt is shared by a group of three; conversations of all lengths are in the same passes."""
    monkeypatch.setattr(ragged_cache, "BLOCK_SCORES", scores)
    torch.manual_seed(2)
    model = AutoModelForCausalLM.from_config(CONFIG, attn_implementation="sdpa", dtype=getattr(torch, dtype)).eval()
    rng = random.Random(4)
    prompts = [[rng.randrange(VOCABULARY) for _ in range(length)] for length in EDGES]
    conversations = [Conversation(list(prompt)) for prompt in prompts for _ in range(3)]
    engine = TransformersEngine(lambda _: model, PolicyRef("a model"), STOP, Sampling(), slots)
    converse(engine, conversations, observations=[1, 3, 59, 64])
    assert {conversation.turns for conversation in conversations} == {TURNS}
    found = misses(model, conversations)
    assert len(found) > 500
    if dtype == "float32":
        assert max(found) < 1e-4
    else:
        assert sum(found) / len(found) < 0.02
        assert max(found) < 0.3


@pytest.mark.parametrize("length", [1, 63, 64, 65, 128, 129, READ_CHUNK, 2000])
def test_a_group_alone_with_a_prompt_that_fills_its_room(length):
    """The buffers are made for this prompt, so it may fill them."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(CONFIG, attn_implementation="sdpa", dtype=torch.float32).eval()
    prompt = [(7 * place) % VOCABULARY for place in range(length)]
    conversations = [Conversation(list(prompt)) for _ in range(3)]
    engine = TransformersEngine(lambda _: model, PolicyRef("a model"), STOP, Sampling(), 8, longest=length + 40)
    converse(engine, conversations, observations=[1])
    assert max(misses(model, conversations)) < 1e-4
