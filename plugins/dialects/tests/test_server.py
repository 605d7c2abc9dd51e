"""The server on the paths of this wheel: what the core's tests ask of Chat Completions, and counting."""

import asyncio

import anthropic
import openai
import pytest

from tests.tracewheel.gateway.dialects.conftest import EPISODE, KEY, OTHER_KEY
from tests.tracewheel.gateway.dialects.test_server import (  # noqa: F401
    CHAT,
    FAILURES,
    test_a_client_that_goes_away_ends_its_turn,
    test_a_client_that_goes_away_within_its_body,
    test_a_client_that_goes_away_within_its_stream,
    test_a_server_that_stops_cancels_what_it_does,
    test_a_slow_stream_shows_that_it_is_alive,
    test_garbage,
    test_large_bodies,
    test_other_keys_are_refused,
    told_of,
)
from tracewheel.gateway.server import GatewayServer

CLAUDE = CHAT | {"max_tokens": 9}


@pytest.mark.parametrize(("episode", "key"), [(EPISODE, KEY), (None, KEY), ("second", OTHER_KEY)])
def test_each_episode_has_a_base_url(served, door, episode, key):
    door.reply("so")
    with anthropic.Anthropic(base_url=served.url(episode), api_key=key) as client:
        assert client.messages.create(**CLAUDE).content[0].text == "so"
    assert door.keys == [key]


def test_models(claude):
    assert [model.id for model in claude.models.list()] == ["tiny", "tiny/planner"]
    assert claude.models.retrieve("tiny").id == "tiny"


def test_a_door_that_cannot_count_says_so(claude):
    with pytest.raises(anthropic.NotFoundError, match="does not count"):
        claude.messages.count_tokens(model="m", messages=CLAUDE["messages"])


def test_a_door_that_can_count(replaceable):
    class Counting:
        admits, models, answer = replaceable.admits, replaceable.models, replaceable.answer

        async def count_tokens(self, key, request):
            return len(request.messages) + 10 * len(request.tools)

    with GatewayServer(Counting()) as server, anthropic.Anthropic(base_url=server.url(EPISODE), api_key=KEY) as client:
        counted = client.messages.count_tokens(
            model="m", system="Be brief.", messages=CLAUDE["messages"], tools=[{"name": "find", "input_schema": {}}]
        )
    assert counted.input_tokens == 12


def test_other_methods(http):
    assert http.get("messages").json()["error"]["type"] == "not_found_error"


def test_an_exception_of_the_door_is_a_server_error(claude, door):
    door.fail(ZeroDivisionError("a secret of ours"))
    with pytest.raises(anthropic.InternalServerError):
        claude.messages.create(**CLAUDE)


def test_slow_streams_of_the_clients(chat, claude, door):
    for _ in range(2):
        door.reply("so", wait=0.3)
    with chat.responses.stream(model="m", input="hi") as stream:
        assert stream.get_final_response().output_text == "so"
    with claude.messages.stream(**CLAUDE) as stream:
        assert stream.get_final_text() == "so"


@FAILURES
def test_a_failure_after_the_stream_has_begun(chat, claude, door, error):
    for _ in range(2):
        door.fail(error, wait=0.3)
    with pytest.raises(openai.APIError, match=told_of(error)):
        list(chat.responses.create(model="m", input="hi", stream=True))
    with pytest.raises(anthropic.APIStatusError, match=told_of(error)), claude.messages.stream(**CLAUDE) as stream:
        stream.until_done()


def test_asynchronous_clients_ask_at_once(served, door):
    for number in range(20):
        door.reply(f"reply {number}", wait=1.0)

    async def ask_all():
        async with (
            openai.AsyncOpenAI(base_url=served.openai_url(EPISODE), api_key=KEY) as chat,
            anthropic.AsyncAnthropic(base_url=served.url(EPISODE), api_key=KEY) as claude,
        ):
            return await asyncio.gather(*(_of_chat(chat) for _ in range(10)), *(_of_claude(claude) for _ in range(10)))

    async def _of_chat(chat):
        async with chat.chat.completions.stream(**CHAT) as stream:
            return (await stream.get_final_completion()).choices[0].message.content

    async def _of_claude(claude):
        return (await claude.messages.create(**CLAUDE)).content[0].text

    texts = asyncio.run(ask_all())
    assert sorted(texts) == sorted(f"reply {number}" for number in range(20))
    assert door.most_at_once > 10


def test_raw_responses_have_the_ids_of_their_requests(claude, door):
    door.reply("so")
    raw = claude.messages.with_raw_response.create(**CLAUDE)
    assert raw.parse()._request_id == raw.headers["request-id"]
