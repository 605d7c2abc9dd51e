"""A gateway over the tiny base, and programs that talk to it."""

import asyncio
import json

import pytest

from tracewheel.config import RolloutConfig
from tracewheel.engines.base import Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.environments import make_environment, opening_messages
from tracewheel.gateway.engine_thread import EngineThread
from tracewheel.gateway.exchange import ChatRequest
from tracewheel.gateway.gateway import Gateway
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.loading import PolicyWeights, load_base

LIMITS = RolloutConfig(max_tokens=400, max_turn_tokens=48)


@pytest.fixture(scope="session")
def model(config, base):
    return load_base(config.policy, base)


@pytest.fixture
def thread(config, model, base, renderer):
    """Makes engine threads over the tiny base, or a policy on it; they end with the test."""
    made = []

    def make(slots=8, most=None, policy=None):
        model_of = PolicyWeights(config.policy).load if policy else lambda _: model
        engine = TransformersEngine(model_of, policy or PolicyRef(base), renderer.end_of_turn_ids, Sampling(), slots)
        made.append(EngineThread(engine, most))
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
