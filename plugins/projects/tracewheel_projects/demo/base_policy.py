"""The stage that trains the tiny base policy from random weights on generic tool-use text.

It writes a Hugging Face folder (Qwen3 architecture, safetensors, tokenizer with chat template), `replay.parquet`, a sample
of the same text for replay in later stages, and `base.json` with the config and the training's figures.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tracewheel import ChatRenderer, ConfigError, write_token_ids
from tracewheel_projects.demo.base_tokenizer import CONTEXT_LENGTH, build_tokenizer
from tracewheel_projects.demo.config import BasePhaseConfig, BasePolicyConfig
from tracewheel_projects.demo.worlds import world_of

if TYPE_CHECKING:
    import torch
    from transformers import Qwen3ForCausalLM

WARM_UP_STEPS, PRINT_EVERY = 50, 100

Example = tuple[list[int], list[int]]


def train_base_policy(config: BasePolicyConfig, out: Path) -> dict[str, float]:
    """Train the base policy and write it to `out`. Returns the figures of the training.

    Muon (Jordan et al. 2024) updates the weight matrices, AdamW the embeddings and norms, both with
    a linear warm-up and a linear fall to zero.

    Raises:
        ConfigError: there is no such world, or a phase names a skill that does not exist.
    """
    import torch

    world = world_of(config.world)
    unknown = {skill for phase in config.phases for skill in phase.skills} - set(world.skills)
    if unknown:
        raise ConfigError(f"phases.skills: no such skill: {', '.join(sorted(unknown))}; there are {', '.join(world.skills)}")
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    tokenizer = build_tokenizer(world.pieces())
    renderer = ChatRenderer(tokenizer)
    model = _new_model(config, len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id)
    for number in range(len(config.phases)):
        loss_value = train_phase(model, renderer, config, number)
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    _write_replay(config, renderer, out / "replay.parquet")
    figures = {"parameters": float(model.num_parameters()), "final_loss": loss_value}
    (out / "base.json").write_text(json.dumps({"config": config.as_written(), "figures": figures}, indent=2) + "\n")
    return figures


def train_phase(model: Qwen3ForCausalLM, renderer: ChatRenderer, config: BasePolicyConfig, number: int) -> float:
    """Train on one phase's text with fresh optimisers; returns the last step's loss."""
    import torch

    phase = config.phases[number]
    examples = _examples(config, renderer, number, phase.conversations, stream=str(number))
    optimizers = _optimizers(model, phase)
    started = time.perf_counter()
    loss_value = float("nan")
    for step, batch in zip(range(phase.steps), _batches(examples, config), strict=False):
        scale = min(1.0, (step + 1) / WARM_UP_STEPS) * (1.0 - step / phase.steps)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * scale
            optimizer.zero_grad()
        loss = _loss(model, batch, config.prompt_weight)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        loss_value = loss.item()
        if step % PRINT_EVERY == 0:
            seconds = time.perf_counter() - started
            print(
                f"phase {number + 1} step {step}/{phase.steps} loss {loss_value:.4f} {seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    return loss_value


def _examples(config: BasePolicyConfig, renderer: ChatRenderer, number: int, count: int, stream: str) -> list[Example]:
    rng = random.Random(f"base-text-{config.seed}-{stream}")
    skills = config.phases[number].skills
    world = world_of(config.world)
    made = (world.conversation(rng, skills, config.complete_share, config.complete_families) for _ in range(count))
    return [renderer.conversation_ids(conversation, tools) for conversation, tools in made]


def _new_model(config: BasePolicyConfig, vocabulary: int, padding: int, end: int) -> Qwen3ForCausalLM:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=-(-vocabulary // 16) * 16,
            hidden_size=config.hidden_size,
            intermediate_size=config.feed_forward,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            head_dim=config.hidden_size // config.heads,
            max_position_embeddings=CONTEXT_LENGTH,
            tie_word_embeddings=True,
            pad_token_id=padding,
            eos_token_id=end,
            bos_token_id=None,
            use_cache=True,
        )
    )


def _optimizers(model: Qwen3ForCausalLM, phase: BasePhaseConfig) -> list[torch.optim.Optimizer]:
    import torch

    matrices: list[torch.nn.Parameter] = []
    rest: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (matrices if parameter.ndim == 2 and "embed" not in name else rest).append(parameter)
    muon = torch.optim.Muon(matrices, lr=phase.muon_learning_rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(rest, lr=phase.learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
    for optimizer in (muon, adamw):
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return [muon, adamw]


def _batches(examples: list[Example], config: BasePolicyConfig) -> Iterator[list[Example]]:
    """Endless batches of examples of similar length, each of about `batch_tokens` padded tokens."""
    rng = random.Random(f"base-batches-{config.seed}")
    while True:
        order = sorted(range(len(examples)), key=lambda i: (len(examples[i][0]) // 8, rng.random()))
        batches: list[list[Example]] = [[]]
        for index in order:
            if (len(batches[-1]) + 1) * len(examples[index][0]) > config.batch_tokens:
                batches.append([])
            batches[-1].append(examples[index])
        rng.shuffle(batches)
        yield from batches


def _loss(model: Qwen3ForCausalLM, batch: list[Example], prompt_weight: float) -> torch.Tensor:
    """Weighted next-token cross-entropy: assistant tokens count 1, all others `prompt_weight`."""
    import torch

    longest = max(len(ids) for ids, _ in batch)
    ids = torch.tensor([row + [0] * (longest - len(row)) for row, _ in batch])
    weights = torch.tensor([[1.0 if m else prompt_weight for m in mask] + [0.0] * (longest - len(mask)) for _, mask in batch])[
        :, 1:
    ]
    logits = model(input_ids=ids).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return (losses * weights.flatten()).sum() / weights.sum()


def _write_replay(config: BasePolicyConfig, renderer: ChatRenderer, path: Path) -> None:
    examples = _examples(config, renderer, len(config.phases) - 1, config.replay_rows, stream="replay")
    rows = [{"input_ids": ids, "assistant_masks": mask} for ids, mask in examples]
    write_token_ids(rows, path, str(path.parent))
