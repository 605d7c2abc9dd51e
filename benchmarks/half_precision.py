"""bfloat16 against float32 on a real base: log-probabilities, loss and the gradient of an adapter.

    python benchmarks/half_precision.py BASE

`BASE` is a local folder of a causal language model with its tokenizer. The scored text is the model's own greedy answers.
The adapter's second factors are random, not zero. Prints JSON and a table; `--json FILE` writes them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from learner_workload import Workload, policy
from measuring import emit, machine, table

PROMPTS = (
    "What is the capital of France?",
    "Count from one to twenty in words.",
    "Write the alphabet in order, separated by commas.",
    'Repeat this JSON: {"order": 1234, "item": "lamp"}',
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("--new-tokens", type=int, default=60)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = [parity(arguments)]
    text = table(list(rows[0]), [list(row.values()) for row in rows])
    emit({"machine": machine(1), "base": Path(arguments.base).name, "rows": rows}, text, arguments.json)


def parity(arguments: argparse.Namespace) -> dict[str, Any]:
    """Differences of bfloat16 from float32 on the model's own greedy answers."""
    from tracewheel.learner.batch import micro_batches
    from tracewheel.learner.kernels.token_logprobs import action_logprobs

    found = {}
    for dtype in ("bfloat16", "float32"):
        model = policy(Workload(base=arguments.base, dtype=dtype)).eval()
        if not found:
            (batch,) = micro_batches(answers(model, arguments), [1.0] * len(PROMPTS), 10**6)
        logprobs, entropy = action_logprobs(model, batch, layout="shared_prefix")
        kept = batch.action_mask.bool()
        loss = -(logprobs * torch.linspace(-1, 2, len(PROMPTS)).unsqueeze(-1))[kept].mean()
        loss.backward()
        gradient = torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])
        found[dtype] = (logprobs.detach()[kept], entropy.detach()[kept], loss.item(), gradient)
        del model
    (half, half_entropy, half_loss, half_gradient), (whole, whole_entropy, loss, gradient) = found.values()
    return {
        "tokens": len(whole),
        "mean log-probability": whole.mean().item(),
        "difference, mean": (half - whole).abs().mean().item(),
        "difference, max": (half - whole).abs().max().item(),
        "entropy difference, mean": (half_entropy - whole_entropy).abs().mean().item(),
        "loss, relative": abs(half_loss / loss - 1),
        "gradient cosine": torch.cosine_similarity(half_gradient, gradient, dim=0).item(),
        "gradient norm, ratio": (half_gradient.norm() / gradient.norm()).item(),
    }


def answers(model: Any, arguments: argparse.Namespace) -> pd.DataFrame:
    """The model's greedy answers, without its adapter."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(arguments.base)
    rows = []
    for prompt in PROMPTS:
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )["input_ids"]
        with model.disable_adapter(), torch.no_grad():
            out = model.generate(ids, max_new_tokens=arguments.new_tokens, do_sample=False)[0].tolist()
        prompt_length = ids.shape[1]
        mask = [0] * prompt_length + [1] * (len(out) - prompt_length)
        rows.append({"token_ids": out, "action_mask": mask, "logprobs": [0.0] * len(out)})
    return pd.DataFrame(rows)


if __name__ == "__main__":
    main()
