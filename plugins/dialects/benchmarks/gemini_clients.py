"""Google's own clients before the gateway and a scripted policy: is every turn that they send back found again?

    python -m venv ../google && ../google/bin/pip install google-genai google-adk
    PYTHONPATH=benchmarks python plugins/dialects/benchmarks/gemini_clients.py --python ../google/bin/python

`--tokenizer ../qwen3` has a template with thinking.

Each case is one episode: three questions with text, calls one by one and in parallel, sub-agents. The client is another
process, with the other interpreter. Gemini CLI is tested by its recipe (`make test-harnesses`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

QUESTIONS = ("one", "two", "three")
CASES = ("genai-whole", "genai-stream", "genai-thoughts", "adk-whole", "adk-stream", "adk-agents", "adk-transfer")


def call(name: str, **arguments: str) -> str:
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


ROME, OSLO, BERN = (call("find", city=city) for city in ("Rome", "Oslo", "Bern"))
ACTS = [f"Looking.\n{ROME}", f"{OSLO}\n{BERN}", "It is sunny.", "Second.", ROME, "Third it is."]
EXPERT = [
    call("expert", request="Rome?"),
    ROME,
    "Rome is sunny.",
    "Sunny.",
    OSLO,
    "Two.",
    call("expert", request="Bern?"),
    BERN,
]
TRANSFER = [
    call("transfer_to_agent", agent_name="expert"),
    ROME,
    "Sunny.",
    "Two.",
    call("transfer_to_agent", agent_name="root"),
]
SCRIPTS = {"adk-agents": [*EXPERT, "Bern is sunny.", "Three."], "adk-transfer": [*TRANSFER, "Three."]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with google-genai and google-adk")
    parser.add_argument("--tokenizer", type=Path, help="of a policy that thinks (default: the tiny base's, without thinking)")
    parser.add_argument("--client", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        ask = with_genai if options.client.startswith("genai") else with_adk
        asyncio.run(ask(options.client.partition("-")[2]))
        return
    from measuring import table

    rows = [[name, *map(str, played(name, options))] for name in CASES]
    print(table(["client", "turns", "refused", "unmatched", "branches"], rows))


def played(name: str, options: argparse.Namespace) -> list[Any]:
    """One episode: turns, refused requests, requests with a reply that was not found, and why histories parted."""
    from transformers import AutoTokenizer

    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.config import RolloutConfig
    from tracewheel.gateway.engine_thread import EngineThread
    from tracewheel.gateway.gateway import Gateway
    from tracewheel.gateway.live_episode import Draw
    from tracewheel.gateway.server import GatewayServer

    texts = SCRIPTS.get(name, ACTS)
    if options.tokenizer:
        texts = [f"<think>\nI think so.\n</think>\n\n{text}" for text in texts]
    renderer = ChatRenderer(AutoTokenizer.from_pretrained(options.tokenizer or "data/base"))
    thread = EngineThread(Script(renderer, texts))  # type: ignore[arg-type]
    gateway = Gateway(thread, renderer, RolloutConfig(max_tokens=100_000, max_turn_tokens=2000))
    with GatewayServer(gateway) as server:
        gateway.address = server.url()
        episode = gateway.open(Draw())
        own = {"GOOGLE_GEMINI_BASE_URL": episode.anthropic_url, "GEMINI_API_KEY": episode.key}
        variables = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **own}
        subprocess.run([options.python, "-P", __file__, "--client", name], env=variables, check=True, stdout=subprocess.DEVNULL)
        found = episode.record()
    thread.close()
    assert len(found.turns) == len(texts), name
    reasons = " ".join(branch["reason"] for branch in found.branches[1:])
    return [len(found.turns), found.requests["refused"], found.requests["unmatched"], reasons]


class Script:
    """An engine that says texts in turn."""

    policy_version = 0

    def __init__(self, renderer: Any, texts: list[str]) -> None:
        self._renderer, self._texts, self._asked = renderer, deque(texts), deque[Any]()

    @property
    def idle(self) -> bool:
        """Whether nothing is asked for."""
        return not self._asked

    def submit(self, request: Any) -> None:
        """Take a request."""
        self._asked.append(request)

    def step(self) -> list[Any]:
        """Say the next text."""
        from tracewheel.engines.base import Generation

        ids = self._renderer.tokenizer.encode(self._texts.popleft(), add_special_tokens=False)
        ids.append(self._renderer.end_of_turn_id)
        return [Generation(self._asked.popleft().session, ids, [-0.5] * len(ids), "stop", [0] * len(ids))]

    def close(self, session: int) -> None:
        """Forget nothing."""


def find(city: str) -> str:
    """Finds the weather of a city.

    Args:
        city: Its name.
    """
    return f"sunny in {city}"


async def with_genai(way: str) -> None:
    """A chat of google-genai, which carries out the calls."""
    from google import genai
    from google.genai import types

    client = genai.Client()
    thinking = types.ThinkingConfig(include_thoughts=way == "thoughts")
    chat = client.aio.chats.create(model="policy", config=types.GenerateContentConfig(tools=[find], thinking_config=thinking))
    for question in QUESTIONS:
        if way == "whole":
            await chat.send_message(question)
        else:
            [chunk async for chunk in await chat.send_message_stream(question)]


async def with_adk(way: str) -> None:
    """A session of Google ADK, with a sub-agent as a tool or to hand over to."""
    from google.adk.agents import LlmAgent, RunConfig
    from google.adk.agents.run_config import StreamingMode
    from google.adk.models import Gemini
    from google.adk.runners import InMemoryRunner
    from google.adk.tools.agent_tool import AgentTool
    from google.genai import types

    expert = LlmAgent(name="expert", model="gemini-2.5-flash", description="Knows cities.", tools=[find])
    tools: list[Any] = [find, *([AgentTool(agent=expert)] if way == "agents" else [])]
    handed = [expert] if way == "transfer" else []
    root = LlmAgent(name="root", model=Gemini(model="policy"), instruction="Help.", tools=tools, sub_agents=handed)
    runner = InMemoryRunner(agent=root, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="one")
    config = RunConfig(streaming_mode=StreamingMode.SSE if way == "stream" else StreamingMode.NONE)
    for question in QUESTIONS:
        said = types.UserContent(question)
        [event async for event in runner.run_async(user_id="one", session_id=session.id, new_message=said, run_config=config)]


if __name__ == "__main__":
    main()
