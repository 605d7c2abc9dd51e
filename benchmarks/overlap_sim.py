"""Overlap on one card: the next groups are generated while the update runs on the same GPU. Simulated, not built.

    python benchmarks/overlap_sim.py [--tool-seconds 0 1 5]

Rates are those of `gpu_arithmetic.py` (Qwen3-4B, LoRA 16, H100). A rollout is played step by step: episodes of 8 turns, tools
of a mean time (log-normal, sigma 0.8), as many at once as their keys fit. Modes:

- `in turn`: the rollout, then the update; what there is, with vLLM staying.
- `halves`: each side has half of the GPU while both have work, and all of it while the other waits.
- `streams`: kernels share the memory: decoding needs all of its bandwidth, the update a share of it (`memory_share`). A bound
  that no scheduler reaches.

`overlap` clips around the log-probabilities before the update, which takes a forward pass more (`recompute`).
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass

from gpu_arithmetic import (
    CACHE,
    EPISODES,
    FLOPS,
    KEY_BYTES,
    LENGTH,
    OBSERVED,
    PARAMETERS,
    PROMPT,
    SAMPLED,
    TURNS,
    iteration,
    step_seconds,
    update,
)

TICK = 0.05


@dataclass
class Episode:
    """An episode: its tokens so far, what is left of its turn, and when its tool answers."""

    tools: list[float]
    tokens: float = PROMPT
    left: float = SAMPLED
    until: float = 0.0


def simulate(tool_seconds: float, update_seconds: float, mode: str, share: float) -> float:
    """Seconds of an iteration whose rollout and update (of the rollout before) begin together, or follow each other."""
    rng = random.Random(0)
    waiting = [Episode([rng.lognormvariate(0, 0.8) * tool_seconds / 1.377 for _ in range(TURNS)]) for _ in range(EPISODES)]
    running: list[Episode] = []
    now, left = 0.0, update_seconds if mode != "in turn" else 0.0
    while waiting or running or left > 0:
        while waiting and (len(running) + 1) * LENGTH * KEY_BYTES / 2 < CACHE:
            running.append(waiting.pop())
        active = [each for each in running if each.until <= now]
        speed, pace = 1.0, 1.0
        if active and left > 0:
            speed = pace = 0.5 if mode == "halves" else 1 / (1 + share)
        if active:
            context = sum(each.tokens for each in active) / len(active)
            steps = speed * TICK / step_seconds(len(active), context)
            for each in active:
                each.tokens, each.left = each.tokens + steps, each.left - steps
                if each.left > 0:
                    continue
                read = 2.0 * PARAMETERS * OBSERVED / FLOPS  # the tool's answer is read
                each.until, each.left = now + each.tools.pop() + read, SAMPLED
                each.tokens += OBSERVED
                if not each.tools:
                    running.remove(each)
        left -= pace * TICK
        now += TICK
    return now + (update_seconds if mode == "in turn" else 0.0)


def main() -> None:
    """Print one line of JSON for each mean time of a tool and each mode."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool-seconds", type=float, nargs="+", default=[0.0, 1.0, 5.0, 20.0])
    options = parser.parse_args()
    plain, recomputed = update(True, False), update(True, True)
    seconds, longer = iteration(plain, True), iteration(recomputed, True)
    for tools in options.tool_seconds:
        found = {"in turn": simulate(tools, seconds, "in turn", plain.memory_share)}
        for mode in ("halves", "streams"):
            for name, length in ((mode, seconds), (f"{mode}, recompute", longer)):
                found[name] = simulate(tools, length, mode, plain.memory_share)
        gains = {name: round(found["in turn"] / each, 2) for name, each in found.items()}
        print(json.dumps({"tool_s": tools, "in_turn_s": round(found["in turn"], 1), "times_as_fast": gains}))


if __name__ == "__main__":
    main()
