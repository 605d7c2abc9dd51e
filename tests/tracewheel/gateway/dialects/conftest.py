"""A door with a script, behind a real server, and the vendors' own clients in front of it."""

import asyncio
import itertools
from collections import Counter

import anthropic
import openai
import pytest

from tracewheel.gateway.dialects.messages import assistant, call
from tracewheel.gateway.endpoint import Limits
from tracewheel.gateway.exchange import ChatReply, Refusal, SampledToken
from tracewheel.gateway.server import GatewayServer

KEY, OTHER_KEY, EPISODE = "key-of-the-first", "key-of-the-second", "first"
LIMITS = Limits(body=200_000, patience=0.05, silence=0.05)


def tokens_of(*texts):
    """A token for each text, with a log-probability of its own."""
    return tuple(
        SampledToken(100 + place, text, -0.25 * (place + 1), ((text, -0.25 * (place + 1)), ("other", -3.0)))
        for place, text in enumerate(texts)
    )


class ScriptedDoor:
    """Answers with its script, one entry a request: a reply, a refusal, another exception, or seconds to wait before one."""

    def __init__(self):
        self.script, self.requests, self.keys = [], [], []
        self.outcomes = Counter()
        self._numbers = itertools.count()

    def reply(self, text="", *, thinking="", calls=(), texts=None, wait=0.0, **fields):
        """Append a reply to the script."""
        message = assistant(text, thinking, [call(*one) for one in calls])
        spelled = texts or [f"<think>{thinking}</think>" if thinking else "", text, *(one[2] for one in calls), "<end>"]
        fields = {"finish_reason": "tool_calls" if calls else "stop", "prompt_tokens": 12, "cached_tokens": 5, **fields}
        self.script.append((wait, ChatReply(message=message, tokens=tokens_of(*filter(None, spelled)), id="", **fields)))
        return message

    def fail(self, error, wait=0.0):
        """Append a failure to the script."""
        self.script.append((wait, error))

    def admits(self, key, episode):
        return (key, episode) in {(KEY, EPISODE), (KEY, None), (OTHER_KEY, "second"), (OTHER_KEY, None)}

    def models(self, key):
        return ["tiny", "tiny/planner"]

    async def count_tokens(self, key, request):
        return sum(len(message["content"]) for message in request.messages)

    async def answer(self, key, request):
        self.requests.append(request)
        self.keys.append(key)
        wait, what = self.script.pop(0)
        try:
            await asyncio.sleep(wait)
        except asyncio.CancelledError:
            self.outcomes["cancelled"] += 1
            raise
        if isinstance(what, Exception):
            raise what
        self.outcomes["answered"] += 1
        return ChatReply(**{**vars(what), "id": f"turn{next(self._numbers)}"})


@pytest.fixture(scope="session")
def served():
    """A server whose door is replaced by each test's."""

    class Behind:
        door = ScriptedDoor()

        def __getattr__(self, name):
            return getattr(Behind.door, name)

        async def count_tokens(self, key, request):
            return await Behind.door.count_tokens(key, request)

    with GatewayServer(Behind(), limits=LIMITS) as server:
        server.behind = Behind
        yield server


@pytest.fixture
def door(served):
    """The script of this test; all of it must have been asked for."""
    served.behind.door = ScriptedDoor()
    yield served.behind.door
    assert not served.behind.door.script


@pytest.fixture
def chat(served, door):
    """OpenAI's client at the first episode's base URL; it does not retry."""
    with openai.OpenAI(base_url=served.openai_url(EPISODE), api_key=KEY, max_retries=0, timeout=20) as client:
        yield client


@pytest.fixture
def claude(served, door):
    """Anthropic's client at the first episode's base URL; it does not retry."""
    with anthropic.Anthropic(base_url=served.url(EPISODE), api_key=KEY, max_retries=0, timeout=20) as client:
        yield client


__all__ = ["EPISODE", "KEY", "LIMITS", "OTHER_KEY", "Refusal", "ScriptedDoor"]
