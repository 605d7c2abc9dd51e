"""Answers in the form of a schema are valid in every dialect."""

import anthropic
import httpx
import openai
import pytest

from tests.tracewheel.gateway.test_answer_form import SCHEMA, USER, server, test_every_answer_is_valid  # noqa: F401


def by_responses(server, episode):  # noqa: F811
    with openai.OpenAI(base_url=server.openai_url(str(episode.number)), api_key=episode.key) as client:
        given = {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}
        yield client.responses.create(model="policy", input="hi", text={"format": given}).output_text


def by_messages(server, episode):  # noqa: F811
    with anthropic.Anthropic(base_url=server.url(str(episode.number)), api_key=episode.key) as client:
        asked = {"model": "policy", "max_tokens": 128, "messages": USER}
        given = {"format": {"type": "json_schema", "schema": SCHEMA}}
        yield client.messages.create(**asked, output_config=given).content[0].text


def by_gemini(server, episode):  # noqa: F811
    """Google's schemas name types in capitals, and have words that are not of JSON Schema."""
    url = f"{server.url(str(episode.number))}/v1beta/models/policy:generateContent"

    def ask(**schema):
        config = {"responseMimeType": "application/json", **schema}
        body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "generationConfig": config}
        found = httpx.post(url, json=body, headers={"x-goog-api-key": episode.key}, timeout=60.0).json()
        return found["candidates"][0]["content"]["parts"][0]["text"]

    yield ask(responseJsonSchema=SCHEMA)
    named = {name: {**one, "type": one.get("type", "string").upper()} for name, one in SCHEMA["properties"].items()}
    given = {**SCHEMA, "type": "OBJECT", "properties": {**named, "count": {**named["count"], "format": "int32"}}}
    yield ask(responseSchema={**given, "propertyOrdering": list(named)})


@pytest.fixture(params=[by_responses, by_messages, by_gemini])
def dialect(request):
    return request.param
