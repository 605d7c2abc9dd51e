"""The workload of both sides of the learner's benchmark: a model, an adapter and trajectories, from a seed."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch


@dataclass(frozen=True)
class Workload:
    """A model shaped like Qwen2.5, or like Qwen3 with a `head_dim`, and `prompts` groups of `group` trajectories.

    A trajectory is the group's prompt, then turns of `action` sampled tokens and `observation` tokens of the environment, up
    to a length drawn between `shortest` and 1 times `tokens`. With `base`, a local folder, the
    model is that one; `dtype` is the type of its weights (the adapter's are float32).
    """

    vocabulary: int = 150_000
    tokens: int = 2048
    group: int = 8
    prompts: int = 1
    prompt: float = 0.25
    action: int = 96
    observation: int = 64
    shortest: float = 0.5
    hidden: int = 512
    layers: int = 4
    intermediate: int = 1408
    heads: int = 8
    key_heads: int = 2
    rank: int = 16
    head_dim: int = 0
    tied: int = 1
    seed: int = 0
    base: str = ""
    dtype: str = "float32"


def trajectories(workload: Workload) -> pd.DataFrame:
    """Columns token_ids, action_mask, prompt_length, group, reward."""
    rng = random.Random(workload.seed)
    rows = []
    for number in range(workload.prompts):
        prompt = [rng.randrange(3, workload.vocabulary) for _ in range(int(workload.prompt * workload.tokens))]
        for sample in range(workload.group):
            length = workload.tokens if sample == 0 else int(workload.tokens * rng.uniform(workload.shortest, 1.0))
            mask = [0] * len(prompt)
            while len(mask) < length:
                mask += [1] * workload.action + [0] * workload.observation
            mask = mask[:length]
            while not mask[-1]:  # a trajectory ends with sampled tokens
                mask.pop()
            ids = prompt + [rng.randrange(3, workload.vocabulary) for _ in range(len(mask) - len(prompt))]
            rows.append(
                {
                    "token_ids": ids,
                    "action_mask": mask,
                    "prompt_length": len(prompt),
                    "group": str(number),
                    "reward": float(sample % 2) if sample < 2 else float(rng.random() < 0.4),
                    "temperature": 1.0,
                }
            )
    return pd.DataFrame(rows)


def policy(workload: Workload, dtype: torch.dtype | None = None) -> Any:
    """The model with an adapter whose second factors are not zero; equal weights in every process."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(workload.seed)
    model = get_peft_model(
        _base(workload, dtype or getattr(torch, workload.dtype)),
        LoraConfig(r=workload.rank, lora_alpha=2 * workload.rank, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.02)
    return model


def _base(workload: Workload, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3Config

    if workload.base:
        return AutoModelForCausalLM.from_pretrained(workload.base, dtype=dtype, attn_implementation="sdpa")
    shape = {"head_dim": workload.head_dim} if workload.head_dim else {}
    config = (Qwen3Config if shape else Qwen2Config)(
        vocab_size=workload.vocabulary,
        hidden_size=workload.hidden,
        intermediate_size=workload.intermediate,
        num_hidden_layers=workload.layers,
        num_attention_heads=workload.heads,
        num_key_value_heads=workload.key_heads,
        max_position_embeddings=2 * workload.tokens,
        tie_word_embeddings=bool(workload.tied),
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        attn_implementation="sdpa",
        **shape,
    )
    return AutoModelForCausalLM.from_config(config, dtype=dtype)


def prepare(workload: Workload, folder: Path) -> None:
    """Write the workload and its trajectories."""
    (folder / "workload.json").write_text(json.dumps(asdict(workload)))
    trajectories(workload).to_parquet(folder / "trajectories.parquet")


def read(folder: Path) -> tuple[Workload, pd.DataFrame]:
    """Read what `prepare` wrote."""
    return Workload(**json.loads((folder / "workload.json").read_text())), pd.read_parquet(folder / "trajectories.parquet")
