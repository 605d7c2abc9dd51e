"""Gemini's dialect: what its clients send is read, and what they are sent comes back as the very same messages."""

import base64
import json

import httpx
import pytest

from tracewheel.gateway.exchange import Refusal
from tracewheel.gateway.server import GatewayServer

KEY, EPISODE = "key-of-the-first", "first"  # as in conftest.py
HI = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
PATH = "models/policy:generateContent"
CALLS = (("call-1", "find", '{"a":  1.0,\t"b": "é"}'), ("call-2", "find", "{}"))
SAID = [
    {"thinking": "First I look.\n", "text": " I look. ", "calls": CALLS},
    {"calls": (("call-3", "lose", '{"a": 2'),)},  # no JSON
    {"thinking": "What now?", "text": "Good bye."},
]
RESULTS = [("call-1", "find", {"output": "seven"}), ("call-2", "find", {})], [("call-3", "lose", {"error": 8, "x": None})]


@pytest.fixture
def gemini(served, door):
    with httpx.Client(base_url=f"{served.url(EPISODE)}/v1beta/", headers={"x-goog-api-key": KEY}, timeout=20) as client:
        yield client


def parts_of(response, way):
    """The parts of an answer, in the ways in which clients put them together."""
    if way == "whole":
        return response.json()["candidates"][0]["content"]["parts"]
    chunks = response.json() if way == "listed" else [json.loads(line[6:]) for line in response.text.split("\n") if line]
    assert chunks[-1]["candidates"][0]["finishReason"] == "STOP" and "usageMetadata" in chunks[-1]
    parts = []
    for part in (part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]):
        texts = [one.keys() - {"thoughtSignature"} == {"text"} for one in (part, *parts[-1:])]
        if way == "streamed" and texts == [True, True]:  # as Gemini CLI, which keeps the first's rest
            parts[-1] = parts[-1] | {"text": parts[-1]["text"] + part["text"]}
        else:
            parts.append(part)
    return parts


@pytest.mark.parametrize("ids", ["ours", "theirs", "none"])
@pytest.mark.parametrize("way", ["whole", "streamed", "listed"])
@pytest.mark.parametrize("thoughts", [False, True])
def test_what_was_said_comes_back(gemini, door, way, ids, thoughts):
    said = [door.reply(**one) for one in SAID]
    contents = [*HI["contents"]]
    url = PATH if way == "whole" else f"models/policy:streamGenerateContent{'?alt=sse' * (way == 'streamed')}"
    for results in (*RESULTS, None):
        body = {"contents": contents, "generationConfig": {"thinkingConfig": {"includeThoughts": thoughts}}}
        parts = parts_of(gemini.post(url, json=body), way)
        assert thoughts or not any(part.get("thought") for part in parts)
        parts = [part for part in parts if not part.get("thought")]
        for call in (part["functionCall"] for part in parts if "functionCall" in part):
            call["id"] = {"ours": call["id"], "theirs": f"{call['name']}__{call['id']}", "none": None}[ids]
        answers = [{"name": name, "response": told} for _, name, told in results or ()]
        if ids != "none":
            given = [part["functionCall"]["id"] for part in parts if "functionCall" in part]
            answers = [answer | {"id": one} for answer, one in zip(answers, given, strict=True)]
        contents += [{"role": "model", "parts": parts}]
        contents += [{"role": "user", "parts": [{"functionResponse": answer} for answer in answers]}] if results else []
    door.reply("so")
    gemini.post(PATH, json={"contents": [*contents, {"parts": {"text": "And now?"}}]})
    replies = [("call-1", "seven"), ("call-2", ""), ("call-3", '{"error": 8, "x": null}')]
    tools = [{"role": "tool", "tool_call_id": one, "content": text} for one, text in replies]
    first, last = {"role": "user", "content": "hi"}, {"role": "user", "content": "And now?"}
    assert door.requests[-1].messages == [first, said[0], *tools[:2], said[1], tools[2], said[2], last]


def test_a_request_is_read(gemini, door):
    declared = {
        "name": "find",
        "description": "Finds.",
        "parameters": {"type": "OBJECT", "properties": {"a_b": {"type": "STRING"}}},
    }
    body = {
        "contents": [
            {"role": "user", "parts": [{"text": "see"}, {"inline_data": {"mime_type": "image/png", "data": "AAAA"}}]},
            {"role": "model", "parts": [{"functionCall": {"name": "find", "args": {"a_b": 1}}}]},
            {"role": "function", "parts": [{"functionResponse": {"name": "find", "response": {"a": 1, "b": 2}}}]},
            {"role": "user", "parts": [{"text": "go"}]},
        ],
        "system_instruction": {"parts": {"text": "Be brief."}},
        "tools": [{"functionDeclarations": [declared, {"name": "lose", "parametersJsonSchema": {}}]}, {"googleSearch": {}}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["find"]}},
        "generationConfig": {"temperature": 0.5, "topK": 5, "stopSequences": ["x"], "maxOutputTokens": 7, "candidateCount": 1},
    }  # fmt: skip
    door.reply("so")
    assert gemini.post("models/policy/planner:generateContent", json=body).status_code == 200
    (request,) = door.requests
    assert (request.agent, request.max_tokens, request.temperature, request.stop) == ("planner", 7, 0.5, ("x",))
    assert (request.tool, request.dropped) == ("find", {"tools.googleSearch", "inlineData", "top_k"})
    schema = {"type": "object", "properties": {"a_b": {"type": "string"}}}
    assert request.tools == [{"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": schema}}]
    system, user, call, result, last = request.messages
    assert system == {"role": "system", "content": "Be brief."} and last["content"] == "go"
    assert user["content"].startswith("see[file, image/png, 3 bytes, sha256 ")
    assert call["tool_calls"][0]["function"]["arguments"] == '{"a_b": 1}'
    assert (result["tool_call_id"], result["content"]) == (call["tool_calls"][0]["id"], '{"a": 1, "b": 2}')


def test_an_answer_is_written(gemini, door):
    door.reply("so", finish_reason="length")
    asked = HI | {"generationConfig": {"responseLogprobs": True, "logprobs": 2}}
    answer = gemini.post(PATH, json=asked).json()
    candidate, usage = answer["candidates"][0], answer["usageMetadata"]
    assert candidate["content"] == {"parts": [{"text": "so"}], "role": "model"} and candidate["finishReason"] == "MAX_TOKENS"
    assert candidate["logprobsResult"]["chosenCandidates"] == [{"token": "so", "tokenId": 100, "logProbability": -0.25}]
    assert (usage["promptTokenCount"], usage["candidatesTokenCount"], usage["cachedContentTokenCount"]) == (12, 2, 5)
    assert answer["modelVersion"] == "policy" and answer["responseId"].startswith("turn")


def called(*parts):
    call = {"role": "model", "parts": [{"functionCall": {"name": "find", "args": {}}}]}
    return {"contents": [*HI["contents"], call, {"role": "user", "parts": [*parts]}]}


REFUSED = [
    ({"contents": None}, "contents"),
    ({"contents": "hi"}, "contents"),
    ({"contents": [{"role": "robot", "parts": []}]}, "contents[0].role"),
    ({"contents": [{"parts": [{"executableCode": {"code": "1"}}]}]}, "contents[0].parts[0].executableCode"),
    (called({"text": "no result"}), "contents"),
    (called({"functionResponse": {"name": "lose", "response": {}}}), "contents"),
    ({"tools": [{"functionDeclarations": [{}]}]}, "tools[0].functionDeclarations[0].name"),
    ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, "toolConfig.functionCallingConfig"),
    ({"cachedContent": "cachedContents/1"}, "cachedContent"),
    ({"generationConfig": {"responseMimeType": "text/x.enum"}}, "generationConfig.responseMimeType"),
    ({"generationConfig": {"responseSchema": {"type": "STRING"}}}, "generationConfig.responseMimeType"),
    ({"generationConfig": {"responseFormat": {"text": {}}}}, "generationConfig.responseFormat"),
    ({"generationConfig": {"responseModalities": ["IMAGE"]}}, "generationConfig.responseModalities"),
    ({"generationConfig": {"temperature": 3}}, "generationConfig.temperature"),
    ({"temperature": 1}, "temperature"),
]


@pytest.mark.parametrize(("change", "field"), REFUSED)
def test_what_is_wrong_is_refused(gemini, door, change, field):
    response = gemini.post(PATH, json=HI | change)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert error["details"][0]["fieldViolations"][0]["field"] == field == door.told[0].param


def test_errors_have_the_vendors_form(gemini, door, served):
    for kind, status, word in (("overloaded", 503, "UNAVAILABLE"), ("context_length_exceeded", 400, "INVALID_ARGUMENT")):
        door.fail(Refusal(kind, "why"))
        response = gemini.post(PATH, json=HI)
        error = response.json()["error"]
        assert (response.status_code, error["status"]) == (status, word) and "why" in error["message"]
    door.fail(Refusal("server_error", "why"), wait=0.3)
    text = gemini.post("models/policy:streamGenerateContent?alt=sse", json=HI).text
    assert text.startswith("\n") and json.loads(text.strip().removeprefix("data: "))["error"]["status"] == "INTERNAL"
    missing = gemini.post("models/policy:embedContent", json={})
    assert (missing.status_code, missing.json()["error"]["status"]) == (404, "NOT_FOUND")
    other = httpx.post(f"{served.url(EPISODE)}/v1beta/{PATH}", json=HI, params={"key": "nobody's"})
    assert (other.status_code, other.json()["error"]["status"]) == (401, "UNAUTHENTICATED")


def test_models(gemini):
    names = [model["name"] for model in gemini.get("models").json()["models"]]
    assert names == ["models/tiny", "models/tiny/planner"]
    assert gemini.get("models/gemini-9").json()["name"] == "models/gemini-9"


def test_tokens_are_counted(replaceable):
    class Counting:
        admits, models, answer = replaceable.admits, replaceable.models, replaceable.answer

        async def count_tokens(self, key, request):
            return len(request.messages)

    with GatewayServer(Counting()) as server:
        url = f"{server.url(EPISODE)}/v1beta/models/policy:countTokens?key={KEY}"
        inner = {"generateContentRequest": HI | {"model": "models/policy", "systemInstruction": {"parts": [{"text": "Be."}]}}}
        assert [httpx.post(url, json=body).json() for body in (HI, inner)] == [{"totalTokens": 1}, {"totalTokens": 2}]


def test_a_signature_of_others_is_none_of_ours(gemini, door):
    part = {"text": "said", "thoughtSignature": base64.b64encode(b"of another").decode()}
    marked = {"functionCall": {"name": "find", "args": {}}, "thoughtSignature": "skip_thought_signature_validator"}
    door.reply("so")
    result = {"functionResponse": {"name": "find", "response": {"output": "x"}}}
    contents = [*HI["contents"], {"role": "model", "parts": [part, marked]}, {"role": "user", "parts": [result]}]
    assert gemini.post(PATH, json={"contents": contents}).status_code == 200
    assert door.requests[-1].messages[1]["content"] == "said" and "reasoning_content" not in door.requests[-1].messages[1]
