"""A door with a script, behind a real server, and clients in front of it."""

import asyncio
import itertools
import json
from collections import Counter

import httpx
import openai
import pytest
from pydantic import BaseModel, TypeAdapter

from tracewheel.gateway.endpoint import Limits
from tracewheel.gateway.exchange import ChatReply, SampledToken, ToolCall, chat_message
from tracewheel.gateway.server import GatewayServer

KEY, OTHER_KEY, EPISODE = "key-of-the-first", "key-of-the-second", "first"
LIMITS = Limits(body=200_000, patience=0.1, silence=0.05)


def tokens_of(texts):
    """A token for each text, with a log-probability of its own and an alternative."""
    chances = [(text, -0.25 * (place + 1)) for place, text in enumerate(texts)]
    return tuple(SampledToken(100 + place, *one, (one, ("other", -3.0))) for place, one in enumerate(chances))


class ScriptedDoor:
    """Answers with its script, one entry a request: seconds to wait, and a reply or an exception."""

    def __init__(self):
        self.script, self.requests, self.keys, self.told = [], [], [], []
        self.outcomes = Counter()
        self.at_once = self.most_at_once = 0
        self._numbers = itertools.count()

    def reply(self, text="", *, thinking="", calls=(), texts=None, wait=0.0, **fields):
        """Append a reply to the script; returns its message. Calls are ids, names and texts of arguments."""
        message = chat_message("assistant", text, reasoning=thinking, calls=[ToolCall(*one) for one in calls])
        thought = (f"<think>{thinking}", "</think>") if thinking else ()
        spelled = texts or [*thought, text, *(one[2] for one in calls), "<end>"]
        ended = "tool_calls" if calls else "stop"
        fields = {"finish_reason": ended, "prompt_tokens": 12, "cached_tokens": 5, "prompt_ids": (7, 8), **fields}
        self.script.append((wait, ChatReply(message=message, tokens=tokens_of([*filter(None, spelled)]), id="", **fields)))
        return message

    def fail(self, error, wait=0.0):
        """Append a failure to the script."""
        self.script.append((wait, error))

    def admits(self, key, episode):
        return (key, episode) in {(KEY, EPISODE), (KEY, None), (OTHER_KEY, "second"), (OTHER_KEY, None)}

    def refused(self, key, refusal):
        self.told.append(refusal)

    def models(self, key):
        return ["tiny", "tiny/planner"]

    async def answer(self, key, request):
        self.requests.append(request)
        self.keys.append(key)
        wait, what = self.script.pop(0)
        number = next(self._numbers)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await asyncio.sleep(wait)
        except asyncio.CancelledError:
            self.outcomes["cancelled"] += 1
            raise
        finally:
            self.at_once -= 1
        if isinstance(what, Exception):
            raise what
        self.outcomes["answered"] += 1
        return ChatReply(**{**vars(what), "id": f"turn{number}"})


class Replaceable:
    """A door that is another one in each test, so that one server does for all."""

    def __init__(self):
        self.door = ScriptedDoor()

    def admits(self, key, episode):
        return self.door.admits(key, episode)

    def refused(self, key, refusal):
        self.door.refused(key, refusal)

    def models(self, key):
        return self.door.models(key)

    async def answer(self, key, request):
        return await self.door.answer(key, request)


@pytest.fixture(scope="session")
def replaceable():
    return Replaceable()


@pytest.fixture(scope="session")
def served(replaceable):
    """The server."""
    with GatewayServer(replaceable, limits=LIMITS) as server:
        yield server


@pytest.fixture
def door(replaceable):
    """The script of this test; all of it must have been asked for."""
    replaceable.door = ScriptedDoor()
    yield replaceable.door
    assert not replaceable.door.script


@pytest.fixture(scope="session")
def clients(served):
    """OpenAI's client and one without a vendor, at the first episode's base URL; they do not retry."""
    own = {"Authorization": f"Bearer {KEY}"}
    with (
        openai.OpenAI(base_url=served.openai_url(EPISODE), api_key=KEY, max_retries=0, timeout=20) as chat,
        httpx.Client(base_url=f"{served.url(EPISODE)}/v1/", headers=own, timeout=20) as http,
    ):
        yield chat, http


@pytest.fixture
def chat(clients, door):
    """OpenAI's client before this test's door."""
    return clients[0]


@pytest.fixture
def http(clients, door):
    """A client without a vendor before this test's door."""
    return clients[1]


@pytest.fixture(params=["chat/completions"])
def spoken(request):
    """A path that asks for a turn, and a sound body. The wheel of dialects plays the same tests on its paths."""
    return request.param, {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="session")
def events_of():
    """The events of a stream as pairs of name and data; comments are left out."""

    def read(text):
        events = []
        for block in text.strip().split("\n\n"):
            lines = [line.partition(": ") for line in block.split("\n") if not line.startswith(":")]
            fields = {name: value for name, _, value in lines}
            if fields:
                data = fields["data"]
                events.append((fields.get("event"), data if data == "[DONE]" else json.loads(data)))
        return events

    return read


@pytest.fixture(scope="session")
def exactly():
    """Checks JSON with a vendor's own model, in strict form and without any field that the model has not."""

    def check(form, value, beside=frozenset()):
        made = TypeAdapter(form).validate_json(json.dumps(value), strict=True)
        assert extras(made) <= set(beside)
        return made

    def extras(value):
        if isinstance(value, BaseModel):
            inner = {*(value.model_extra or {})}
            return inner.union(*(extras(getattr(value, name)) for name in type(value).model_fields))
        if isinstance(value, list):
            return set().union(*map(extras, value))
        return set()

    return check
