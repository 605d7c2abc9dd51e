"""Qwen3's own tokenizer and template with small random weights: what the engine sampled, the learner computes again."""

import pandas as pd
import pytest
import torch

from tracewheel.chat.conversation import Conversation
from tracewheel.chat.renderer import ChatRenderer
from tracewheel.core.forks import TokenTree
from tracewheel.engines.base import Request, Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.environments.workspace.environment import TOOLS
from tracewheel.learner.batch import micro_batches
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.policy.adapters import PolicyRef

OPENING = [{"role": "user", "content": "Tidy up."}]
HEARD = [{"role": "tool", "content": "a.log"}, {"role": "user", "content": "And the rest?"}, {"role": "tool", "content": "b"}]


def small_qwen3(vocabulary):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 16}
    config = Qwen3Config(vocab_size=vocabulary, num_key_value_heads=1, initializer_range=0.3, **sizes)
    return Qwen3ForCausalLM(config).eval()


def play(engine, renderer, budget=6):
    """A conversation with tools and another user; random weights end no turn, so each is ended for them."""
    tree, logprobs, held, keep = TokenTree(), [], 0, 0
    tree.add(renderer.prompt_ids(OPENING, TOOLS), sampled=False)
    conversation = Conversation(renderer, OPENING, TOOLS)
    for messages in [*([message] for message in HEARD), None]:
        engine.submit(Request(0, tree.row_ids(keep), budget, seed=5, keep=keep if keep < held else None))
        turns = []
        while not turns:
            turns = engine.step()
        logprobs += [0.0] * (len(tree.ids) - len(logprobs)) + turns[0].logprobs
        tree.add(turns[0].token_ids, sampled=True)
        held = keep = len(tree.row)
        if messages is not None:
            tree.add([renderer.end_of_turn_id], sampled=False)
            conversation.add_turn([*turns[0].token_ids, renderer.end_of_turn_id])
            step = conversation.observe(messages, tree)
            tree.cut(step.keep)
            tree.add(step.ids, sampled=False)
            keep = min(held, step.keep)
    return tree, logprobs


@pytest.mark.slow
def test_the_learner_computes_what_the_engine_sampled_on_qwen3s_rows(real_tokenizer):
    renderer = ChatRenderer(real_tokenizer("qwen3"), "hermes", {"enable_thinking": False})
    model = small_qwen3(len(renderer.tokenizer))
    engine = TransformersEngine(lambda _: model, PolicyRef("qwen3"), len(renderer.tokenizer), Sampling(), slots=2)
    tree, logprobs = play(engine, renderer)
    assert len(tree.forks) == 3 and sum(tree.mask) == 4 * 6
    columns = {"token_ids": tree.ids, "action_mask": tree.mask, "logprobs": logprobs, "forks": tree.forks}
    for layout in ("padded", "packed", "shared_prefix"):
        [batch] = micro_batches(pd.DataFrame([columns]), [0.0], 10**6, layout=layout)
        with torch.no_grad():
            found = action_logprobs(model, batch, layout=layout)[0]
        gaps = (found - batch.behaviour_logprobs)[batch.action_mask == 1].abs()
        assert gaps.mean() < 1e-5 and gaps.max() < 1e-4
    flat = pd.DataFrame([{**columns, "forks": []}])
    [batch] = micro_batches(flat, [0.0], 10**6)
    with torch.no_grad():
        gaps = (action_logprobs(model, batch)[0] - batch.behaviour_logprobs)[batch.action_mask == 1].abs()
    assert gaps.max() > 0.1, "the flat order is no conversation that the policy read"
