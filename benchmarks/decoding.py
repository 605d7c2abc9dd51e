"""What a decoding step of the transformers engine costs: drawing tokens, products with weights, whole steps.

    python benchmarks/decoding.py                              # drawing and products, at real sizes
    python benchmarks/decoding.py --base FOLDER                # whole steps of a model too, with and without the lean decoder
    python benchmarks/decoding.py --base FOLDER --dtypes bfloat16 --rows 8 32 64
    python benchmarks/decoding.py --skip-parts --base 135m --device cuda --rows 64 256    # random weights, by wall time

Each figure is the least CPU time per call of several interleaved rounds, one thread. "before" is what the engine did until
2026-11-23: a log-softmax, exponentials in float64, and a cumulated sum and for top-p a sort over the whole vocabulary;
products by the weights as they are; the model's own layers where the lean decoder did not support the model.
Weights, logits and prompts are random with seed 0.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measuring import emit, machine, table

from tracewheel.engines.base import Request, Sampling
from tracewheel.engines.lean_decoder import LeanDecoder
from tracewheel.engines.products import Product
from tracewheel.engines.token_distribution import TokenDistribution
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.policy.adapters import PolicyRef

VOCABULARIES = (49_152, 151_936)
SHAPES = ((576, 3072), (1536, 576), (576, 49_152))  # SmolLM2-135M's: into and out of an MLP, and the output embedding
ROUND_S, ROUNDS = 0.15, 3
PROMPT = 98


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="a folder, or '135m' for random weights in SmolLM2-135M's shape")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of whole steps")
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 32, 64])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--adapter", action="store_true", help="put a LoRA adapter of rank 16 beside all projections")
    parser.add_argument("--skip-parts", action="store_true", help="only whole steps")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {"machine": machine(1)}
    with torch.inference_mode():
        if not arguments.skip_parts:
            result["draw_ms"] = [drawing(size, rows) for size in VOCABULARIES for rows in arguments.rows]
            result["product_ms"] = [
                product(dtype, shape, rows) for dtype in arguments.dtypes for shape in SHAPES for rows in arguments.rows
            ]
        if arguments.base:
            result["steps"] = [found for dtype in arguments.dtypes for found in steps(arguments, dtype)]
    tables = [table(list(rows[0]), [list(row.values()) for row in rows]) for rows in result.values() if isinstance(rows, list)]
    emit(result, "\n\n".join(tables), arguments.json)


def least_ms(sides: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """CPU milliseconds of a call of each side."""
    least = dict.fromkeys(sides, float("inf"))
    for call in sides.values():
        call()
    for _ in range(ROUNDS):
        for name, call in sides.items():
            begun, calls = time.process_time(), 0
            while time.process_time() - begun < ROUND_S:
                call()
                calls += 1
            least[name] = min(least[name], 1000 * (time.process_time() - begun) / calls)
    return least


def drawing(vocabulary: int, rows: int) -> dict[str, Any]:
    """Tokens and their log-probabilities from logits."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(rows, vocabulary, generator=generator)
    uniforms = torch.rand(rows, 1, generator=generator, dtype=torch.float64)
    ones, greedy = torch.ones(rows, 1), torch.zeros(rows, 1, dtype=torch.bool)

    def now(share: float) -> Callable[[], Any]:
        def call() -> torch.Tensor:
            distribution = TokenDistribution(logits, ones)
            return distribution.logprobs(distribution.draw(uniforms, torch.full_like(uniforms, share), greedy))

        return call

    found = least_ms(
        {
            "before": lambda: _before(logits, ones, uniforms, 1.0),
            "now": now(1.0),
            "top-p 0.9 before": lambda: _before(logits, ones, uniforms, 0.9),
            "top-p 0.9 now": now(0.9),
        }
    )
    return {"draw, ms": "", "vocabulary": vocabulary, "rows": rows, **found}


def _before(logits: torch.Tensor, temperatures: torch.Tensor, uniforms: torch.Tensor, top_p: float) -> torch.Tensor:
    logprobs = torch.log_softmax(logits / temperatures, dim=-1)
    logprobs.argmax(dim=-1, keepdim=True)
    probabilities = logprobs.double().exp()
    if top_p < 1.0:
        descending, order = probabilities.sort(dim=-1, descending=True, stable=True)
        before = descending.cumsum(dim=-1) - descending
        probabilities = torch.zeros_like(probabilities).scatter(1, order, descending * (before < top_p))
    mass = probabilities.cumsum(dim=-1)
    return logprobs.gather(1, torch.searchsorted(mass, uniforms * mass[:, -1:], right=True))


def product(dtype: str, shape: tuple[int, int], rows: int) -> dict[str, Any]:
    """One product; the weights of several layers take turns, so they come from memory as in a pass."""
    copies = max(2, 20_000_000 // (shape[0] * shape[1]))
    weights = [torch.randn(shape[1], shape[0], dtype=getattr(torch, dtype)) for _ in range(copies)]
    packed = [Product(weight) for weight in weights]
    states, calls = torch.randn(rows, shape[0], dtype=getattr(torch, dtype)), [0]

    def plain() -> torch.Tensor:
        calls[0] = (calls[0] + 1) % copies
        return torch.nn.functional.linear(states, weights[calls[0]])

    def laid_out() -> torch.Tensor:
        calls[0] = (calls[0] + 1) % copies
        return packed[calls[0]](states)

    found = least_ms({"before": plain, "now": laid_out})
    return {"product, ms": f"{shape[0]} x {shape[1]}, {dtype}", "rows": rows, **found}


def _model(base: str, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.manual_seed(0)
    if base != "135m":
        return AutoModelForCausalLM.from_pretrained(base, dtype=dtype, attn_implementation="sdpa")
    shape = LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    )
    return AutoModelForCausalLM.from_config(shape, dtype=dtype, attn_implementation="sdpa")


def steps(arguments: argparse.Namespace, dtype: str) -> list[dict[str, Any]]:
    """Decoding steps of the engine: sampled tokens per CPU second."""
    model = _model(arguments.base, getattr(torch, dtype)).to(arguments.device).eval()
    if arguments.adapter:
        from peft import LoraConfig, get_peft_model

        adapted = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
        model = adapted.eval().get_base_model()
    # A GPU works while the process waits for it, so there it is the wall clock that counts.
    clock, second = (time.process_time, "CPU s") if arguments.device == "cpu" else (time.perf_counter, "s")
    suits, found = LeanDecoder.suits, []
    for rows in arguments.rows:
        row: dict[str, Any] = {"steps": dtype + (", adapter" if arguments.adapter else ""), "rows": rows}
        for name, allowed in (("own layers", lambda _: False), ("lean", suits)):
            LeanDecoder.suits = staticmethod(allowed)  # type: ignore[method-assign, assignment]
            engine = TransformersEngine(lambda _: model, PolicyRef("a model"), 2, Sampling(), rows)
            rng = random.Random(0)
            prompt = [rng.randrange(3, 40_000) for _ in range(PROMPT)]
            for number in range(rows):
                engine.submit(Request(number, list(prompt), 4 * arguments.steps, seed=number))
            engine.step()
            engine.step()
            begun, tokens = clock(), 0
            for _ in range(arguments.steps):
                tokens += len(engine._generating)
                engine.step()
            row[f"{name}: sampled tokens/{second}"] = tokens / (clock() - begun)
        LeanDecoder.suits = staticmethod(suits)  # type: ignore[method-assign]
        found.append(row)
    return found


if __name__ == "__main__":
    main()
