"""Answers of the tiny base to real JSON schemas, over HTTP as a program asks for them: what is refused, and what validates.

    python benchmarks/grammar_schemas.py maskbench/data --every 113

The folder is that of guidance-ai/jsonschemabench; every so many of its schemas are asked for, each some times. An answer is
completed where the policy ended it, and is checked by `jsonschema`, formats too. One that is cut off at the limit of tokens is
no answer. A refusal counts as true where the place that it names is in the schema and holds what the refusal names.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import jsonschema
from measuring import emit, machine, table

ROOT = Path(__file__).parents[1]
KEY, ASKERS, PATIENCE = "a-key-of-the-benchmark", 8, 300.0
PARAM = "response_format.json_schema.schema"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schemas", type=Path)
    parser.add_argument("--every", type=int, default=113)
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=768, help="the most of an answer")
    parser.add_argument("--base", type=Path, default=ROOT / "data" / "base")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    cases = {file.stem: json.loads(file.read_text())["schema"] for file in sorted(given.schemas.glob("*.json"))[:: given.every]}
    started = time.perf_counter()
    answers = served(cases, given)
    rows = {name: judged(schema, answers[name]) for name, schema in cases.items()}
    result = {"schemas": len(rows), "seconds": round(time.perf_counter() - started), "machine": machine(1), "rows": rows}
    emit(result, shown(rows), given.json)


def served(cases: dict[str, Any], given: argparse.Namespace) -> dict[str, list[httpx.Response | Exception]]:
    """What a gateway over the base says to each schema."""
    import tracewheel  # noqa: F401 (before torch: it sets how torch's threads wait)
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.config import RolloutConfig, load_config
    from tracewheel.engines.base import Sampling
    from tracewheel.engines.transformers import TransformersEngine
    from tracewheel.gateway.engine_thread import EngineThread
    from tracewheel.gateway.gateway import Gateway, StandingDoor
    from tracewheel.gateway.server import GatewayServer
    from tracewheel.policy.adapters import PolicyRef
    from tracewheel.policy.loading import load_base, load_tokenizer

    model = load_base(load_config(ROOT / "configs" / "tiny.yaml").policy, str(given.base))
    renderer = ChatRenderer(load_tokenizer(str(given.base)))
    engine = TransformersEngine(lambda _: model, PolicyRef(str(given.base)), renderer.end_of_turn_ids, Sampling(), ASKERS)
    thread = EngineThread(engine)
    caps = RolloutConfig(max_tokens=given.tokens + 1000, max_turn_tokens=given.tokens)
    try:
        with GatewayServer(StandingDoor(Gateway(thread, renderer, caps), KEY)) as server:
            return asyncio.run(asked(f"{server.openai_url()}/chat/completions", cases, given.samples))
    finally:
        thread.close()


async def asked(url: str, cases: dict[str, Any], samples: int) -> dict[str, list[httpx.Response | Exception]]:
    """The responses, or what a request failed of."""
    turnstile = asyncio.Semaphore(ASKERS)

    async def ask(client: httpx.AsyncClient, name: str, number: int) -> httpx.Response | Exception:
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": cases[name], "strict": True}}
        body = {"messages": [{"role": "user", "content": f"{name} {number}"}], "model": "policy", "response_format": form}
        async with turnstile:
            try:
                return await client.post(url, json=body)
            except httpx.HTTPError as error:
                return error

    async with httpx.AsyncClient(timeout=PATIENCE, headers={"authorization": f"Bearer {KEY}"}) as client:
        found = {name: [ask(client, name, number) for number in range(samples)] for name in cases}
        return {name: list(await asyncio.gather(*asks)) for name, asks in found.items()}


def judged(schema: Any, answers: list[httpx.Response | Exception]) -> dict[str, Any]:
    """The outcome of a schema: its answers' endings, or why it was refused."""
    found: Counter[str] = Counter()
    row: dict[str, Any] = {}
    for answer in answers:
        if not isinstance(answer, httpx.Response):
            found[f"no response: {type(answer).__name__}"] += 1
        elif answer.status_code != 200:
            error = answer.json()["error"]
            kind = "refused" if answer.status_code == 400 else f"failed with {answer.status_code}"
            found[kind] += 1
            row |= {"message": error["message"], "param": error["param"], "true": is_true(schema, error)}
        else:
            choice = answer.json()["choices"][0]
            if choice["finish_reason"] != "stop":
                found["cut off"] += 1
            elif why := wrong(schema, choice["message"]["content"]):
                found["invalid"] += 1
                row["invalid"] = why
            else:
                found["valid"] += 1
    return {**found, **row}


def wrong(schema: Any, text: str) -> str:
    """Why an answer is not of a schema; "" where it is."""
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind(schema, format_checker=kind.FORMAT_CHECKER).validate(json.loads(text))
    except (jsonschema.ValidationError, ValueError) as error:
        return f"{str(error).splitlines()[0]:.200}: {text:.200}"
    return ""


def is_true(schema: Any, error: dict[str, Any]) -> bool:
    """Whether the place that a refusal names is in the schema, and what it names there stands in it."""
    place = schema
    for step in (error["param"] or "").removeprefix(PARAM).lstrip(".").split("."):
        try:
            place = place if not step else place[int(step)] if isinstance(place, list) else place[step]
        except (KeyError, IndexError, ValueError, TypeError):
            return False
    named = re.findall(r'"([^"]+)"', error["message"])
    inside = json.dumps(place, ensure_ascii=False) + (error["param"] or "")
    return all(name in inside for name in named)


def shown(rows: dict[str, dict[str, Any]]) -> str:
    refused = [row for row in rows.values() if row.get("refused")]
    count = {name: sum(row.get(name, 0) for row in rows.values()) for name in ("valid", "invalid", "cut off")}
    other = sum(number for row in rows.values() for name, number in row.items() if name.startswith(("no response", "failed")))
    lines = [
        ["schemas", len(rows)],
        ["accepted", len(rows) - len(refused)],
        ["refused", len(refused)],
        ["of them with a reason that is in the schema", sum(row["true"] for row in refused)],
        ["answers completed", count["valid"] + count["invalid"]],
        ["of them valid", count["valid"]],
        ["answers cut off at the limit", count["cut off"]],
        ["without an answer", other],
    ]
    return table(["", "number"], lines)


if __name__ == "__main__":
    main()
