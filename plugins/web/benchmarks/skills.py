"""How much of its own text the web's tiny base has learnt: whole answers, and tokens, that are what it would say greedily.

    python plugins/web/benchmarks/skills.py data/web/base [--each 60]

Each skill's conversations are drawn from seeds that training does not use. A turn counts as right where each of its tokens is
the most likely one after the right tokens before it.
"""

from __future__ import annotations

import argparse
import random

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tracewheel.chat.renderer import ChatRenderer
from tracewheel_web.miniwob.base_text import WORLD


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("--each", type=int, default=60, help="conversations of each skill")
    options = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(options.base).eval()
    renderer = ChatRenderer(AutoTokenizer.from_pretrained(options.base))
    for skill in WORLD.skills:
        draws = random.Random(f"check-{skill}")
        right = [answered(model, renderer, draws, skill) for _ in range(options.each)]
        tokens = [one for answer in right for one in answer]
        print(f"{skill}: whole {sum(map(all, right)) / len(right):.2f}, tokens {sum(tokens) / len(tokens):.3f}", flush=True)


@torch.no_grad()
def answered(model: torch.nn.Module, renderer: ChatRenderer, draws: random.Random, skill: str) -> list[bool]:
    """Which tokens of a conversation's assistant turns the model would say."""
    ids, mask = renderer.conversation_ids(*WORLD.conversation(draws, {skill: 1}, 0.0, ()))
    said = model(torch.tensor([ids])).logits[0, :-1].argmax(-1).tolist()
    return [one == other for one, other, ours in zip(said, ids[1:], mask[1:], strict=True) if ours]


if __name__ == "__main__":
    main()
