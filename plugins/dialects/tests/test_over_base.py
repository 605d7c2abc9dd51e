"""The tiny base behind the door: an episode has the same tokens in every dialect, and as the built-in loop's."""

import json

import anthropic
import httpx
import openai
import pytest

from tests.tracewheel.gateway.test_dialects_over_base import (  # noqa: F401
    KEY,
    TURNS,
    World,
    standing,
    test_an_episode_is_the_same_in_every_dialect,
)


def by_responses(server, episode, task, stream=False):
    world = World(task)
    tools = [{"type": "function", **tool["function"]} for tool in world.tools]
    asked = {"model": "policy", "tools": tools}
    items, before = list(world.opening), None
    with openai.OpenAI(base_url=server.openai_url(str(episode.number)), api_key=episode.key) as client:
        for _ in range(TURNS):
            if stream:
                with client.responses.stream(**asked, input=items) as events:
                    answer = events.get_final_response()
                items += answer.output
            else:
                answer = client.responses.create(**asked, input=items, previous_response_id=before)
                items, before = [], answer.id
            made = [one for one in answer.output if one.type == "function_call"]
            replies = world.carry_out([(one.call_id, one.name, json.loads(one.arguments)) for one in made])
            if not replies:
                return
            items += ({"type": "function_call_output", "call_id": one, "output": text} for one, text in replies)


def by_messages(server, episode, task, stream=False):
    world = World(task)
    tools = [
        {"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]}
        | ({"description": tool["function"]["description"]} if "description" in tool["function"] else {})
        for tool in world.tools
    ]
    system = [{"type": "text", "text": one["content"]} for one in world.opening if one["role"] == "system"]
    messages = [one for one in world.opening if one["role"] != "system"]
    asked = {"model": "policy", "max_tokens": 4096, "tools": tools, **({"system": system} if system else {})}
    with anthropic.Anthropic(base_url=server.url(str(episode.number)), api_key=episode.key) as client:
        for _ in range(TURNS):
            if stream:
                with client.messages.stream(**asked, messages=messages) as events:
                    message = events.get_final_message()
            else:
                message = client.messages.create(**asked, messages=messages)
            messages.append({"role": "assistant", "content": message.content})
            replies = world.carry_out([(one.id, one.name, one.input) for one in message.content if one.type == "tool_use"])
            if not replies:
                return
            results = [{"type": "tool_result", "tool_use_id": one, "content": text} for one, text in replies]
            messages.append({"role": "user", "content": results})


def by_gemini(server, episode, task, stream=False):
    world = World(task)
    system = [{"text": one["content"]} for one in world.opening if one["role"] == "system"]
    contents = [{"role": "user", "parts": [{"text": one["content"]}]} for one in world.opening if one["role"] != "system"]
    body = {"tools": [{"functionDeclarations": [tool["function"] for tool in world.tools]}]}
    body |= {"systemInstruction": {"parts": system}} if system else {}
    url = f"{server.url(str(episode.number))}/v1beta/models/policy:{'streamGenerateContent' if stream else 'generateContent'}"
    with httpx.Client(headers={"x-goog-api-key": episode.key}, timeout=60) as client:
        for _ in range(TURNS):
            answer = client.post(url, json=body | {"contents": contents}).json()
            answers = answer if stream else [answer]
            parts = [part for one in answers for part in one["candidates"][0]["content"]["parts"]]
            calls = [part["functionCall"] for part in parts if "functionCall" in part]
            replies = world.carry_out([(one["id"], one["name"], one["args"]) for one in calls])
            if not replies:
                return
            results = [{"id": one, "name": "any", "response": {"output": text}} for one, text in replies]
            contents.append({"role": "model", "parts": parts})
            contents.append({"role": "user", "parts": [{"functionResponse": one} for one in results]})


@pytest.fixture
def agents():
    return [by_responses, by_messages, by_gemini]


def test_names_of_episodes_are_free_at_a_door_that_stays_open(standing):  # noqa: F811
    with anthropic.Anthropic(base_url=standing.url("run-7"), api_key=KEY, max_retries=0) as client:
        asked = {"model": "any", "messages": [{"role": "user", "content": "hi"}]}
        counted = client.messages.count_tokens(**asked).input_tokens
        message = client.messages.create(**asked, max_tokens=5)
    assert message.usage.output_tokens <= 5
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens == counted
    assert message.stop_reason in ("max_tokens", "end_turn", "tool_use")
