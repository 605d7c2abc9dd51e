"""`serve` under load beside the same engine called directly, and whether its log is whole and says what the learner computes.

    python benchmarks/serve_load.py --rounds 3

Each round has two processes, one after the other. In the first, 64 clients, each on a connection of its own, have conversations
of six turns with a door that serves the tiny base; it logs them. In the second, the same engine without a door is given the
same contexts, 64 at once, with the same seeds: what a program pays for HTTP, matching, rendering and logging is the difference.
Both say tokens a second over the whole, and what a turn took. Every eighth client goes back to its third turn later on and says
something else there: a fork.

At the end `tracewheel ingest` reads the logs, and the learner's forward pass computes every sampled token's log-probability
again. Prints JSON and a table; `--json FILE` writes them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import emit, environment, machine, table
from serve_doors import KEY, asked, at

CLIENTS, TURNS, FORKED, BASE, TEMPERATURE, LONGEST = 64, 6, 8, "data/base", 1.2, 48
SYSTEM = {"role": "system", "content": "You are a file-management agent."}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--direct", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
    elif options.direct:
        direct(options.direct)
    else:
        with tempfile.TemporaryDirectory() as folder:
            rounds = [one_round(Path(folder) / str(number)) for number in range(options.rounds)]
            result = {"machine": machine(1), "rounds": rounds, "log": checked(Path(folder))}
        emit(result, rows(result), options.json)


def one_round(folder: Path) -> dict[str, Any]:
    """Served, then direct."""
    folder.mkdir()
    script = [sys.executable, __file__]
    server = subprocess.Popen([*script, "--serve", str(folder)], env=environment(1), stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        begun = time.perf_counter()
        waits = asyncio.run(clients(port))
        took = time.perf_counter() - begun
        server.send_signal(signal.SIGTERM)
        cpu = float(server.stdout.readline())
        server.wait(600)
    finally:
        server.kill()
    sampled = sum(sum(record["tokens"]["action_mask"]) for record in records(folder))
    served = {"turns": len(waits), "tokens_s": sampled / took, "p50_ms": at(waits, 0.5), "p95_ms": at(waits, 0.95)}
    served |= {"cpu_ms": 1000 * cpu / len(waits)}
    told = subprocess.run([*script, "--direct", str(folder)], env=environment(1), stdout=subprocess.PIPE, text=True, check=True)
    alone = json.loads(told.stdout)
    print(served, alone, os.getloadavg()[0], file=sys.stderr, flush=True)
    return {"served": served, "direct": alone, "load": os.getloadavg()[0]}


async def clients(port: int) -> list[float]:
    """Have all conversations; gives the seconds of each turn."""
    waits: list[float] = []
    await asyncio.gather(*(converse(port, number, waits) for number in range(CLIENTS)))
    return waits


async def converse(port: int, number: int, waits: list[float]) -> None:
    """One conversation."""
    messages: list[dict[str, Any]] = [SYSTEM, {"role": "user", "content": f"Move all .txt files from /box{number} to /vault."}]
    connection = await asyncio.open_connection("127.0.0.1", port)
    for turn in range(TURNS):
        if turn == TURNS - 2 and number % FORKED == 0:
            said = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
            messages = [*messages[: said[2]], {"role": "user", "content": "Rather the .csv files."}]
        begun = time.perf_counter()
        status, reply = await asked(connection, json.dumps({"model": "policy", "messages": messages}).encode())
        waits.append(time.perf_counter() - begun)
        assert status == 200, reply
        message = json.loads(reply)["choices"][0]["message"]
        messages.append(message)
        calls = message.get("tool_calls") or ()
        messages += [{"role": "tool", "tool_call_id": one["id"], "content": "a.txt\nb.txt"} for one in calls]
        messages += [] if calls else [{"role": "user", "content": "Go on."}]
    connection[1].close()


def engine() -> tuple[Any, Any]:
    """The engine over the base, and its renderer."""
    from transformers import AutoTokenizer

    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.config import PolicyConfig
    from tracewheel.engines.base import Sampling
    from tracewheel.engines.transformers import TransformersEngine
    from tracewheel.policy.adapters import PolicyRef
    from tracewheel.policy.loading import load_base

    renderer = ChatRenderer(AutoTokenizer.from_pretrained(BASE))
    model = load_base(PolicyConfig(base=BASE), BASE)
    sampling = Sampling(temperature=TEMPERATURE)
    return TransformersEngine(lambda _: model, PolicyRef(BASE), renderer.end_of_turn_ids, sampling, CLIENTS), renderer


def serve(folder: Path) -> None:
    """The door, until SIGTERM."""
    from tracewheel.config import RedactionConfig, RolloutConfig
    from tracewheel.gateway.conversation_log import ConversationLog, LogRedaction
    from tracewheel.gateway.engine_thread import EngineThread
    from tracewheel.gateway.server import GatewayServer
    from tracewheel.gateway.serving import Served, ServingDoor

    made, renderer = engine()
    thread = EngineThread(made)
    config = RolloutConfig(max_tokens=4000, max_turn_tokens=LONGEST, temperature=TEMPERATURE)
    log = ConversationLog(folder / "log")
    redaction = LogRedaction(RedactionConfig(enabled=False), renderer)  # of what a tiny base says some looks like an address
    door = ServingDoor(Served(thread, "base"), renderer, config, log, frozenset([KEY]), redaction)
    signal.signal(signal.SIGTERM, lambda *_: None)
    with GatewayServer(door) as server:
        print(server.port, flush=True)
        begun = time.process_time()
        signal.pause()
        print(time.process_time() - begun, flush=True)
    door.end_idle(0.0)
    log.close()
    thread.close()


def records(folder: Path) -> list[dict[str, Any]]:
    """The logged conversations."""
    return [json.loads(line) for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().splitlines()]


def direct(folder: Path) -> None:
    """Give the engine what the door gave it: each turn's context as soon as the turn before it has ended."""
    from tracewheel.core.forks import rows as rows_of
    from tracewheel.core.types import content_hash
    from tracewheel.engines.base import Request

    made, _ = engine()
    waiting: dict[int, list[Request]] = {}
    logged: dict[int, list[list[int]]] = {}
    for number, record in enumerate(records(folder)):
        tokens, forks, seen = record["tokens"], record["info"].get("forks") or [], set[int]()
        for place, row in enumerate(rows_of(forks, len(tokens["token_ids"]))):
            session, new = number * 10 + place, list[int]()
            first = int(content_hash([record["id"]], 15), 16)
            seed = int(content_hash([first, place], 15), 16) if place else first
            acted = [bool(tokens["action_mask"][index]) and index not in seen for index in row]
            seen.update(row)
            for index, (at_token, acts) in enumerate(zip(row, acted, strict=True)):
                if acts and not acted[index - 1]:
                    waiting.setdefault(session, []).append(Request(session, new, LONGEST, seed, TEMPERATURE))
                    logged.setdefault(session, []).append([])
                    new = []
                logged[session][-1].append(tokens["token_ids"][at_token]) if acts else new.append(tokens["token_ids"][at_token])
    begun, cpu = time.perf_counter(), time.process_time()
    asked_at, took, sampled, same = dict[int, float](), list[float](), 0, 0
    turns = sum(map(len, waiting.values()))

    def submit(session: int) -> None:
        asked_at[session] = time.perf_counter()
        made.submit(waiting[session].pop(0))

    for session in [*waiting][:CLIENTS]:
        submit(session)
    later = [*waiting][CLIENTS:]
    while not made.idle:
        for generation in made.step():
            took.append(time.perf_counter() - asked_at[generation.session])
            sampled += len(generation.token_ids)
            same += generation.token_ids == logged[generation.session].pop(0)
            if waiting[generation.session]:
                submit(generation.session)
            elif later:
                submit(later.pop())
    seconds = time.perf_counter() - begun
    cpu = time.process_time() - cpu
    told = {
        "turns": turns,
        "cpu_ms": 1000 * cpu / turns,
        "tokens_s": sampled / seconds,
        "p50_ms": at(took, 0.5),
        "p95_ms": at(took, 0.95),
        "same_turns": same,
    }
    print(json.dumps(told))


def checked(folder: Path) -> dict[str, Any]:
    """The log as ingest reads it, and the log-probabilities as the learner computes them."""
    import pandas as pd
    import torch

    from tracewheel.config import IngestSections, PolicyConfig, RetrainConfig
    from tracewheel.learner.batch import micro_batches
    from tracewheel.learner.kernels.token_logprobs import action_logprobs
    from tracewheel.policy.loading import load_base
    from tracewheel.traces.ingest import ingest

    read = {"paths": [f"{folder}/*/log/*.jsonl"], "redaction": {"enabled": False}}
    profile = {"name": "load", "policy": {"base": BASE}, "environment": {"kind": "workspace"}, "ingest": read}
    ingest(IngestSections.of(RetrainConfig.model_validate(profile)).ingest, folder / "ingested")
    traces = pd.read_parquet(folder / "ingested" / "traces.parquet")
    quarantined = len((folder / "ingested" / "quarantine.jsonl").read_text().splitlines())
    infos, tokens = traces["info"].map(json.loads), traces["tokens"].map(json.loads)
    frame = pd.DataFrame({name: tokens.map(lambda one, name=name: one[name]) for name in tokens.iloc[0]})
    frame = frame.assign(
        temperature=infos.map(lambda one: one["temperature"]), forks=infos.map(lambda one: one.get("forks") or [])
    )
    model, most = load_base(PolicyConfig(base=BASE), BASE), 0.0
    with torch.no_grad():
        for batch in micro_batches(frame, [0.0] * len(frame), 16_384):
            again = action_logprobs(model, batch)[0]
            most = max(most, float((again - batch.behaviour_logprobs).abs()[batch.action_mask.bool()].max()))
    return {
        "conversations": len(traces),
        "quarantined": quarantined,
        "whole": int(sum(len(info["turns"]) == TURNS for info in infos)),
        "forked": int(sum(bool(forks) for forks in frame["forks"])),
        "unmatched": int(sum(info["requests"]["unmatched"] for info in infos)),
        "tokens": int(sum(map(sum, frame["action_mask"]))),
        "most_difference": most,
    }


def rows(result: dict[str, Any]) -> str:
    """The table: medians of the rounds."""

    def middle(side: str, name: str) -> float:
        return statistics.median(one[side][name] for one in result["rounds"])

    names = [
        ("tokens_s", "tokens a second"),
        ("p50_ms", "a turn, median, ms"),
        ("p95_ms", "a turn, p95, ms"),
        ("cpu_ms", "CPU of a turn, ms"),
    ]
    lines = []
    for name, told in names:
        alone, served = middle("direct", name), middle("served", name)
        lines.append([told, f"{alone:.0f}", f"{served:.0f}", f"{served / alone:.2f}"])
    log = [[name, f"{value:g}"] for name, value in result["log"].items()]
    return table(["", "engine alone", "served", "ratio"], lines) + "\n\n" + table(["the log", ""], log)


if __name__ == "__main__":
    main()
