"""A gateway over the tiny base, and programs that talk to it."""

import asyncio
import json
from collections import deque

import pytest

from tracewheel.config import RolloutConfig
from tracewheel.engines.base import Generation, Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.environments import make_environment, opening_messages
from tracewheel.gateway.engine_thread import EngineThread
from tracewheel.gateway.exchange import ChatRequest
from tracewheel.gateway.gateway import Gateway
from tracewheel.gateway.live_episode import Draw
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.loading import PolicyWeights, load_base

LIMITS = RolloutConfig(max_tokens=400, max_turn_tokens=48)


class Script:
    """An engine that says given texts in turn; each session must be asked for exactly what its context lacks."""

    policy_version = 4

    def __init__(self, renderer, texts):
        self._renderer, self._texts, self._asked, self.held = renderer, deque(texts), deque(), {}

    @property
    def idle(self):
        return not self._asked

    def submit(self, request):
        held = self.held.setdefault(request.session, [])
        self.held[request.session] = held[: request.keep] + request.new_ids
        self._asked.append(request)

    def step(self):
        request = self._asked.popleft()
        ids = [*self._renderer.tokenizer.encode(self._texts.popleft(), add_special_tokens=False), self._renderer.end_of_turn_id]
        self.held[request.session] += ids
        return [Generation(request.session, ids, [-0.5] * len(ids), "stop", [4] * len(ids))]

    def close(self, session):
        del self.held[session]


class Talk:
    """One program and what it was told."""

    def __init__(self, renderer, texts, **limits):
        self.thread = EngineThread(Script(renderer, texts))
        self.gateway = Gateway(self.thread, renderer, RolloutConfig(**limits))
        self.episode = self.gateway.open(Draw(1, 1.0))
        self.replies = []

    def ask(self, messages, model="policy", **more):
        reply = asyncio.run(self.gateway.answer(self.episode.key, ChatRequest(messages, model=model, **more)))
        self.replies.append(reply)
        return reply.message


@pytest.fixture
def talk_with():
    """Starts a talk of one program with a policy that says given texts."""
    made = []

    def start(renderer, *texts, **limits):
        made.append(Talk(renderer, texts, **limits))
        return made[-1]

    yield start
    for each in made:
        each.thread.close()


@pytest.fixture(scope="session")
def model(config, base):
    return load_base(config.policy, base)


@pytest.fixture
def thread(config, model, base, renderer):
    """Makes engine threads over the tiny base, or a policy on it; they end with the test."""
    made = []

    def make(slots=8, policy=None):
        model_of = PolicyWeights(config.policy).load if policy else lambda _: model
        engine = TransformersEngine(model_of, policy or PolicyRef(base), renderer.end_of_turn_ids, Sampling(), slots)
        made.append(EngineThread(engine))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def gateway(thread, renderer):
    return Gateway(thread(), renderer, LIMITS)


@pytest.fixture(scope="session")
def limits():
    return LIMITS


@pytest.fixture(scope="session")
def plain_agent():
    """The built-in loop as a program: a history that only grows."""

    async def agent(ask, task, max_turns=20):
        environment = make_environment(task.environment)
        environment.reset(task)
        messages, tools = opening_messages(environment, task), environment.tools()
        for _ in range(max_turns):
            message = (await ask(ChatRequest(list(messages), tools))).message
            messages.append(message)
            for call in message.get("tool_calls") or []:
                observation = environment.step(call["function"]["name"], json.loads(call["function"]["arguments"]))
                if observation.done:
                    return
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": observation.text})
            if messages[-1] is message:
                return

    return agent


@pytest.fixture(scope="session")
def together():
    """Runs programs at the same time."""

    async def gathered(agents):
        return await asyncio.gather(*agents)

    return lambda *agents: asyncio.run(gathered(agents))
