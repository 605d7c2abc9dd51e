"""vLLM with a real model: log-probabilities against the learner's, and tokens drawn from them, with 49,152 words.

Set TRACEWHEEL_SMOLLM2 to a folder with SmolLM2-135M-Instruct (`make demo-smollm2` makes one).
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tracewheel.config import LoraConfig, PolicyConfig, RetrainConfig
from tracewheel.engines.base import Request
from tracewheel.engines.draws import Draws
from tracewheel.engines.making import make_engine
from tracewheel.engines.token_distribution import TokenDistribution
from tracewheel.policy.adapters import PolicyRef, peft_config, write_adapter
from tracewheel.policy.loading import load_base
from tracewheel.policy.probe import write_probe

pytestmark = [pytest.mark.slow, pytest.mark.vllm]
# Log-probabilities of vLLM and learner, nats: the largest mean and the largest single difference. vLLM's CPU build rounds its
# logits to bfloat16, and its body in bfloat16 differs from float32 by 0.02 to 0.03 on these tokens, few of which are sure.
AGREE = {"float32": (1e-4, 2e-3), "bfloat16": (5e-2, 0.6)}
TEMPERATURE = 1.0
ASKED = [
    "Name three rivers of Europe.",
    "Refund the blue kettle of order 1042 and cancel order 977.",
    'Reply with JSON: {"name": "refund", "arguments": {"order": 12}}',
    "Write a function in Python that reverses a list.",
    "What is 17 times 3?",
    "Continue: once upon a time there was a",
]


@pytest.fixture(scope="module")
def smollm2():
    folder = os.environ.get("TRACEWHEEL_SMOLLM2", "")
    if not (Path(folder) / "model.safetensors").is_file():
        pytest.skip("no SmolLM2: set TRACEWHEEL_SMOLLM2 to its folder")
    return folder


@pytest.fixture(scope="module", params=AGREE)
def sampled(request, smollm2, tmp_path_factory):
    """Conversations sampled in vLLM from a base with an adapter: its type, the learner's model, and the table of them."""
    from peft import get_peft_model

    dtype = request.param
    torch.manual_seed(3)
    policy = PolicyConfig(base=smollm2, dtype=dtype)
    model = get_peft_model(load_base(policy, smollm2), peft_config(LoraConfig(rank=16, alpha=32))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.01)
    folder = tmp_path_factory.mktemp(dtype) / "adapter"
    write_adapter(model, folder, "default", smollm2, version=1)
    write_probe(model, folder)
    profile = RetrainConfig.model_validate(
        {
            "name": "real",
            "threads": 2,
            "policy": policy,
            "rollout": {"temperature": TEMPERATURE, "max_tokens": 512, "engine": {"kind": "vllm", "kv_cache_gib": 0.5}},
        }
    )
    ref = PolicyRef(smollm2, str(folder), 1)
    engine, renderer = make_engine(profile, ref, greedy=False, slots=16)
    rows = {}
    prompts = [renderer.prompt_ids([{"role": "user", "content": words}], []) for words in ASKED]
    for turn in range(2):
        for number in range(len(ASKED)):
            new = prompts[number] if turn == 0 else renderer.tokenizer.encode("\nNow in one word:", add_special_tokens=False)
            ids, mask, logprobs = rows.setdefault(number, ([], [], []))
            ids += new
            mask += [0] * len(new)
            logprobs += [0.0] * len(new)
            engine.submit(Request(number, new, 48, seed=number))
        answered = set()
        while len(answered) < len(ASKED):
            for generation in engine.step():
                answered.add(generation.session)
                ids, mask, logprobs = rows[generation.session]
                ids += generation.token_ids
                mask += [1] * len(generation.token_ids)
                logprobs += generation.logprobs
    columns = ("token_ids", "action_mask", "logprobs")
    table = pd.DataFrame([dict(zip(columns, row, strict=True)) for row in rows.values()])
    return dtype, model, table.assign(temperature=TEMPERATURE)


def test_log_probabilities_are_the_learners(sampled):
    from tracewheel.learner.batch import micro_batches
    from tracewheel.learner.kernels.token_logprobs import action_logprobs

    dtype, model, table = sampled
    differences = []
    for batch in micro_batches(table, [0.0] * len(table), 2048, layout="shared_prefix"):
        with torch.no_grad():
            found, _ = action_logprobs(model, batch, layout="shared_prefix")
        differences.append((found - batch.behaviour_logprobs)[batch.action_mask.bool()].abs())
    all_of_them = torch.cat(differences)
    mean, most = all_of_them.mean().item(), all_of_them.max().item()
    print(f"{dtype}: {len(all_of_them)} tokens, mean {mean:.5f}, max {most:.5f} nats")
    assert mean < AGREE[dtype][0] and most < AGREE[dtype][1]


def test_tokens_are_drawn_from_the_sessions_own_numbers(sampled):
    """The inverse transform over the learner's probabilities gives the sampled tokens, but for those at an edge."""
    dtype, model, table = sampled
    same = count = 0
    for number, row in table.iterrows():
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([row.token_ids])).logits[0].float()
        places = np.flatnonzero(row.action_mask)
        distribution = TokenDistribution(logits[places - 1], torch.full((len(places), 1), TEMPERATURE))
        uniforms = torch.tensor(Draws(seed=number).uniforms(len(places)), dtype=torch.float64)[:, None]
        top_p = torch.ones(len(places), 1, dtype=torch.float64)
        drawn = distribution.draw(uniforms, top_p, torch.zeros(len(places), 1, dtype=torch.bool))[:, 0]
        same += (drawn == torch.tensor([row.token_ids[place] for place in places])).sum().item()
        count += len(places)
    print(f"{dtype}: {same} of {count} tokens")
    assert same / count > (0.99 if dtype == "float32" else 0.6)
