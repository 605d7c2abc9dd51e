"""The doors of `serve`: what a request takes outside the engine, alone and beside clients that mean harm.

    python benchmarks/serve_doors.py                          # this checkout
    python benchmarks/serve_doors.py --code ../other-checkout # the same clients before another one, as before a change

A server in a process of its own answers over real sockets: the serving door with the tiny base's renderer, and an engine that
waits `--engine` seconds for each turn and says how long it really held it. 64 clients go on with conversations
of 30 messages up to 50, with tools, and pause between two turns. What a client waited,
less what the engine held the turn, is the time outside the engine: connection, parsing, hashing, rendering, recording, and the
clients' own process. A client's first turn has 30 messages to tokenise that nobody has seen; it is reported apart.

The hostile mix goes on beside the clients: 1,000 connections that send half a request or nothing and are opened again when they
are closed, a request of 4,001 short messages every second, and a body of 600,001 messages every 5 seconds. At its end SIGTERM
ends the server. Prints JSON and a table; `--json FILE` writes them.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import emit, environment, machine, table

KEY = "a-key-of-the-benchmark"
CLIENTS, FIRST, MESSAGES, HALF_SENT, LATE = 64, 32, 50, 1000, 60.0
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "Reads a file, or a part of it, and gives its lines with their numbers. " * 4,
            "parameters": {"type": "object", "properties": {name: {"type": "string"} for name in ("path", "first", "last")}},
        },
    }
    for number in range(8)
]
HEAD = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n"
HALVES = (
    "",
    "POST /v1/chat/comp",
    HEAD,
    HEAD + "content-length: 1000\r\n\r\n{",
    HEAD + "transfer-encoding: chunked\r\n\r\n1\r\n{",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code", type=Path, default=Path.cwd(), help="the checkout whose server is measured")
    parser.add_argument("--engine", type=float, default=1.0, help="seconds of a turn (1)")
    parser.add_argument("--pause", type=float, default=2.0, help="the most seconds between two turns (2)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--hostile", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.engine)
    elif options.hostile:
        asyncio.run(hostile(options.hostile))
    else:
        result: dict[str, Any] = {"machine": machine(1), "load_before": os.getloadavg()}
        for side in ("alone", "hostile mix"):
            result[side] = measured(options, side == "hostile mix")
            print(side, result[side], file=sys.stderr, flush=True)
        emit(result, rows(result), options.json)


def measured(options: argparse.Namespace, with_hostile: bool) -> dict[str, Any]:
    """One server and its clients."""
    with tempfile.TemporaryDirectory() as folder:
        script, variables = [sys.executable, __file__, "--engine", str(options.engine)], environment(1)
        theirs = variables | {"PYTHONPATH": os.pathsep.join([str(options.code.resolve()), variables["PYTHONPATH"]])}
        server = subprocess.Popen([*script, "--serve", folder], env=theirs, stdout=subprocess.PIPE, text=True)
        others = None
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            if with_hostile:
                others = subprocess.Popen([*script, "--hostile", str(port)], env=variables)
                time.sleep(1)
            waits, probes, failed = asyncio.run(clients(port, options.pause))
            server.send_signal(signal.SIGTERM)
            begun = time.monotonic()
            try:
                server.wait(20)
                ended = time.monotonic() - begun
            except subprocess.TimeoutExpired:
                ended = float("inf")
        finally:
            server.kill()
            if others is not None:
                others.kill()
                others.wait()
            server.wait()
    first, later = ([wait for goes_on, wait in waits if goes_on is known] for known in (False, True))
    return {
        "turns": len(waits),
        "failed": failed,
        "outside_ms": {"p50": at(later, 0.5), "p95": at(later, 0.95), "p99": at(later, 0.99), "most": at(later, 1)},
        "first_ms": {"p50": at(first, 0.5), "p95": at(first, 0.95)},
        "health_ms": {"p50": at(probes, 0.5), "p99": at(probes, 0.99), "most": at(probes, 1)},
        "sigterm_s": round(ended, 2),
        "load": os.getloadavg()[0],
    }


def at(values: list[float], share: float) -> float | None:
    """A quantile, in milliseconds."""
    return round(1000 * sorted(values)[min(len(values) - 1, int(share * len(values)))], 1) if values else None


async def clients(port: int, pause: float) -> tuple[list[tuple[bool, float]], list[float], int]:
    """Play all conversations: of turns whether they go on and their seconds outside the engine, probes, and failures."""
    waits: list[tuple[bool, float]] = []
    probes: list[float] = []
    watch = asyncio.ensure_future(probe(port, probes))
    played = await asyncio.gather(
        *(asyncio.wait_for(play(port, number, pause, waits), LATE) for number in range(CLIENTS)), return_exceptions=True
    )
    watch.cancel()
    return waits, probes, sum(isinstance(one, BaseException) for one in played)


async def play(port: int, number: int, pause: float, waits: list[tuple[bool, float]]) -> None:
    """One conversation, with a connection of its own."""
    rng = random.Random(number)
    messages = [{"role": "system", "content": f"You mend program {number}. " * 30}]
    while len(messages) < FIRST:
        messages.append({"role": ("assistant", "user")[len(messages) % 2], "content": lines(rng)})
    await asyncio.sleep(rng.uniform(0, pause))
    connection = await asyncio.open_connection("127.0.0.1", port)
    while len(messages) <= MESSAGES:
        body = json.dumps({"model": "policy", "messages": messages, "tools": TOOLS}).encode()
        begun = time.perf_counter()
        status, reply = await asked(connection, body)
        took = time.perf_counter() - begun
        assert status == 200, reply
        message = json.loads(reply)["choices"][0]["message"]
        waits.append((len(messages) > FIRST, took - int(re.findall("[0-9]+", message["content"])[-1]) / 1e6))
        messages.append({"role": "assistant", "content": message["content"]})
        messages.append({"role": "user", "content": lines(rng)})
        await asyncio.sleep(rng.uniform(0, pause))
    connection[1].close()


def lines(rng: random.Random) -> str:
    """A part of a file."""
    words = ("def", "return", "path", "for line in text:", "value", "= None", "# why it is so", "self.", "(name)", "import")
    return "\n".join(" ".join(rng.choices(words, k=6)) for _ in range(20))


async def probe(port: int, probes: list[float]) -> None:
    """Ask for the health every 20 ms."""
    connection = await asyncio.open_connection("127.0.0.1", port)
    while True:
        begun = time.perf_counter()
        connection[1].write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        await answer(connection[0])
        probes.append(time.perf_counter() - begun)
        await asyncio.sleep(0.02)


async def asked(connection: Any, body: bytes) -> tuple[int, bytes]:
    """Post a body."""
    connection[1].write(f"{HEAD}content-length: {len(body)}\r\n\r\n".encode() + body)
    return await answer(connection[0])


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = re.search("content-length: ([0-9]+)", head, re.IGNORECASE)
    assert length is not None, head
    return int(head.split()[1]), await reader.readexactly(int(length[1]))


async def hostile(port: int) -> None:
    """Harm until killed."""
    roles = ("user", "assistant")
    short = [{"role": roles[place % 2], "content": f"short {place}"} for place in range(4001)]
    many = [{"role": "user", "content": "x"}] * 600_001
    bodies = [json.dumps({"model": "policy", "messages": messages}).encode() for messages in (short, many)]
    await asyncio.gather(
        *(half_sent(port, HALVES[number % len(HALVES)]) for number in range(HALF_SENT)),
        again(port, bodies[0], 1.0),
        again(port, bodies[1], 5.0),
    )


async def half_sent(port: int, text: str) -> None:
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text.encode())
            while await reader.read(4096):
                pass
            writer.close()
        except OSError:
            pass
        await asyncio.sleep(1)


async def again(port: int, body: bytes, pause: float) -> None:
    while True:
        try:
            connection = await asyncio.open_connection("127.0.0.1", port)
            await asked(connection, body)
            connection[1].close()
        except (OSError, asyncio.IncompleteReadError):
            pass  # refused before all was sent
        await asyncio.sleep(pause)


class WaitingEngine:
    """Holds each turn for a time without work, and says for how many microseconds it did."""

    policy_version = 1

    def __init__(self, renderer: Any, seconds: float) -> None:
        self._renderer, self._seconds = renderer, seconds
        self._held: list[tuple[float, int]] = []

    @property
    def idle(self) -> bool:
        """Whether no turn is held."""
        return not self._held

    def submit(self, request: Any) -> None:
        """Hold a turn."""
        self._held.append((time.perf_counter(), request.session))

    def step(self) -> list[Any]:
        """End the turns whose time has come."""
        from tracewheel.engines.base import Generation

        time.sleep(0.002)
        made, now = [], time.perf_counter()
        while self._held and now - self._held[0][0] >= self._seconds:
            begun, session = self._held.pop(0)
            text = f"I have looked at it, and it took {int(1e6 * (time.perf_counter() - begun))}"
            ids = [*self._renderer.tokenizer.encode(text, add_special_tokens=False), self._renderer.end_of_turn_id]
            made.append(Generation(session, ids, [-0.5] * len(ids), "stop", [1] * len(ids)))
        return made

    def close(self, session: int) -> None:
        """Forget a session."""


def serve(folder: Path, seconds: float) -> None:
    """The server, until SIGTERM."""
    from transformers import AutoTokenizer

    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.config import RolloutConfig
    from tracewheel.gateway.conversation_log import ConversationLog
    from tracewheel.gateway.engine_thread import EngineThread
    from tracewheel.gateway.server import GatewayServer
    from tracewheel.gateway.serving import Served, ServingDoor
    from tracewheel.gateway.serving_routes import serving_routes

    renderer = ChatRenderer(AutoTokenizer.from_pretrained("data/base"))
    engine = EngineThread(WaitingEngine(renderer, seconds))  # type: ignore[arg-type]
    config = RolloutConfig(max_tokens=100_000, max_turn_tokens=512)
    log = ConversationLog(folder / "log")
    door = ServingDoor(Served(engine, "waiting"), renderer, config, log, frozenset([KEY]))
    signal.signal(signal.SIGTERM, lambda *_: None)
    with GatewayServer(door, routes=serving_routes(door)) as server:
        print(server.port, flush=True)
        signal.pause()
    door.end_idle(0.0, *(() if "within" not in inspect.signature(door.end_idle).parameters else (5.0,)))
    log.close()
    engine.close()


def rows(result: dict[str, Any]) -> str:
    """The table."""
    sides = ("alone", "hostile mix")
    named: list[tuple[str, tuple[str, ...]]] = [("turns", ("turns",)), ("clients that failed", ("failed",))]
    named += [(f"outside the engine, {name}, ms", ("outside_ms", name)) for name in ("p50", "p95", "p99", "most")]
    named += [(f"the first turn of each, {name}, ms", ("first_ms", name)) for name in ("p50", "p95")]
    named += [(f"/health, {name}, ms", ("health_ms", name)) for name in ("p50", "p99", "most")]
    named += [("SIGTERM to the end, s", ("sigterm_s",)), ("load", ("load",))]

    def value(side: str, path: tuple[str, ...]) -> str:
        found: Any = result[side]
        for name in path:
            found = found[name]
        return str(found)

    return table(["", *sides], [[name, *(value(side, path) for side in sides)] for name, path in named])


if __name__ == "__main__":
    main()
