"""Who samples in vLLM: our draws, with and without a form, and vLLM's own sampler; and how far each is from the learner.

    .venv-vllm/bin/python benchmarks/vllm_sampling.py --json benchmarks/results/vllm_sampling.json

The policy is the tiny base with a probe, so that vLLM's canary is scored in both ways. Each side samples one turn of
`--sessions` sessions after random tokens; `ours, in a form` holds each to a JSON schema. The learner's model gives the same
tokens its own log-probabilities, those of a form among what its grammar allows. Printed as each side ends.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import emit, machine, table

SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer", "minimum": 0, "maximum": 99}, "colour": {"enum": ["red", "blue"]}},
    "required": ["count", "colour"],
    "additionalProperties": False,
}
TEMPERATURE = 0.8
SIDES = (
    ("transformers", "ours"),
    ("vllm", "ours"),
    ("transformers", "ours, in a form"),
    ("vllm", "ours, in a form"),
    ("vllm", "engine"),
)
HEADINGS = ["engine", "draws", "turns", "tokens", "mean gap", "largest gap", "tokens/s", "as transformers", "valid"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=24)
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--base", default="data/base")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = compared(Path(arguments.base), Path(folder) / "base", arguments.sessions, arguments.budget)
    result = {"command": " ".join(sys.argv), "machine": machine(1), "rows": rows}
    emit(result, table(HEADINGS, [[row[heading] for heading in HEADINGS] for row in rows]), arguments.json)


def compared(source: Path, base: Path, sessions: int, budget: int) -> list[dict[str, Any]]:
    """The figures of each side."""
    import tracewheel  # noqa: F401 (before torch: it sets how torch's threads wait)
    from tracewheel.config import EngineSections, PolicyConfig, RetrainConfig
    from tracewheel.engines.base import Request
    from tracewheel.engines.making import make_engine
    from tracewheel.policy.adapters import PolicyRef
    from tracewheel.policy.loading import load_base
    from tracewheel.policy.probe import write_probe

    shutil.copytree(source, base)
    model = load_base(PolicyConfig(base=str(base)), str(base))
    write_probe(model, base)
    dice = random.Random(4)
    openings = [[dice.randrange(400) for _ in range(20 + dice.randrange(40))] for _ in range(sessions)]
    rows: list[dict[str, Any]] = []
    found: dict[str, dict[int, list[int]]] = {}
    for kind, draws in SIDES:
        settings = {"kind": kind, "slots": 64} | (
            {"kv_cache_gib": 0.25, "draws": draws.split(",")[0]} if kind == "vllm" else {}
        )
        rollout = {"engine": settings, "max_tokens": 400, "max_turn_tokens": 48, "temperature": TEMPERATURE}
        profile = {"name": "sampling", "threads": 1, "policy": {"base": str(base)}, "rollout": rollout}
        config = EngineSections.of(RetrainConfig.model_validate(profile))
        engine, renderer = make_engine(config, PolicyRef(str(base)), greedy=False, slots=64)
        held = "form" in draws
        began = time.perf_counter()
        for number, ids in enumerate(openings):
            engine.submit(Request(number, list(ids), budget, seed=number, grammar=form(renderer) if held else None))
        turns: dict[int, Any] = {}
        while len(turns) < sessions:
            turns |= {turn.session: turn for turn in engine.step()}
        seconds = time.perf_counter() - began
        for number in turns:
            engine.close(number)
        gaps, valid = [], 0
        for number, turn in turns.items():
            fresh = learners(model, renderer, openings[number], turn.token_ids, held)
            gaps += [abs(one - other) for one, other in zip(turn.logprobs, fresh, strict=True)]
            valid += held and turn.ended_by == "stop" and is_valid(renderer.decode(turn.token_ids[:-1]))
        said = {number: turn.token_ids for number, turn in turns.items()}
        first = found.setdefault(draws, said)
        rows.append(
            {
                "engine": kind,
                "draws": draws,
                "turns": sessions,
                "tokens": len(gaps),
                "mean gap": sum(gaps) / len(gaps),
                "largest gap": max(gaps),
                "tokens/s": len(gaps) / seconds,
                "as transformers": None if draws == "engine" else sum(first[number] == said[number] for number in said),
                "valid": valid if held else None,
            }
        )
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def form(renderer: Any) -> Any:
    """The beginning of a turn in the schema's form."""
    from tracewheel.gateway.answer_form import begun
    from tracewheel.gateway.exchange import AnswerForm, ChatRequest

    given = AnswerForm(json.dumps(SCHEMA), "response_format")
    return begun(renderer, ChatRequest([{"role": "user", "content": "hi"}], form=given))


def is_valid(text: str) -> bool:
    """Whether a text is of the schema."""
    import jsonschema

    try:
        jsonschema.validate(json.loads(text), SCHEMA)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def learners(model: Any, renderer: Any, opening: list[int], said: list[int], held: bool) -> list[float]:
    """The learner's log-probabilities of a turn, among what its grammar allows where it was held."""
    import torch

    from tracewheel.policy.allowed_tokens import with_masks

    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*opening, *said]]), use_cache=False).logits[0, len(opening) - 1 : -1].float()
    if held:
        masks = renderer.grammars.masks(form(renderer).grammar, said)
        logits = with_masks(logits, range(len(said)), torch.stack([torch.from_numpy(mask.copy()) for mask in masks]))
    scores = torch.log_softmax(logits / TEMPERATURE, dim=-1)
    found: list[float] = scores.gather(1, torch.tensor(said)[:, None])[:, 0].tolist()
    return found


if __name__ == "__main__":
    main()
