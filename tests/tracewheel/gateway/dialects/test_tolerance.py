"""What the policy cannot be given is left out and told to the door; what says the same in another way is translated."""

import base64
import gzip
import json

import httpx
import pyarrow
import pytest

from tracewheel.gateway.exchange import Refusal

USER = {"role": "user", "content": "hi"}
BODY = {"model": "m", "messages": [USER]}
DATA = base64.b64encode(b"picture").decode()
SHOWN = "[image, image/png, 7 bytes, sha256 "
CHAT = "chat/completions"
PATCH = {
    "name": "apply_patch",
    "description": "Patch.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"},
}
DROPPED = [
    ({"tools": [{"type": "web_search"}]}, {"tools.web_search"}),
    ({"web_search_options": {"search_context_size": "low"}}, {"web_search_options"}),
    ({"frequency_penalty": 0.5, "logit_bias": {"5": -1}, "presence_penalty": 0}, {"frequency_penalty", "logit_bias"}),
    ({"top_k": 5, "min_p": 0.1, "chat_template_kwargs": {"x": 1}}, {"top_k", "min_p", "chat_template_kwargs"}),
]  # fmt: skip


def asked(http, door, path, body, **options):
    """The request that the door gets, and the answer."""
    door.reply("so")
    response = http.post(path, json=body, **options)
    assert response.status_code == 200, response.text
    return door.requests[-1], response.json()


@pytest.mark.parametrize(("change", "dropped"), DROPPED)
def test_what_is_left_out_is_told(http, door, change, dropped):
    request, _ = asked(http, door, CHAT, BODY | change)
    assert request.dropped == dropped and request.tools == []


def test_an_image_has_a_placeholder(http, door):
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}
    parts = [{"type": "text", "text": "See: "}, image]
    request, _ = asked(http, door, CHAT, BODY | {"messages": [{"role": "user", "content": parts}]})
    assert request.messages[0]["content"].startswith(f"See: {SHOWN}") and len(request.dropped) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_custom_tool_is_a_function_with_one_text(http, door, stream):
    tool = {"type": "custom", "custom": {**PATCH, "format": {"type": "grammar", "grammar": PATCH["format"]}}}
    given = '{"input":  "*** Begin"}'  # with a space more than we would write
    door.reply(calls=[("call-1", "apply_patch", given)])
    answer = http.post(CHAT, json=BODY | {"tools": [tool], "stream": stream})
    function = door.requests[-1].tools[0]["function"]
    assert function["parameters"]["required"] == ["input"] and "start: X" in function["description"]
    if stream:
        assert "*** Begin" in answer.text and "custom" in answer.text and '"arguments":"{' not in answer.text
        return
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert call == {"id": "call-1", "type": "custom", "custom": {"name": "apply_patch", "input": "*** Begin"}}
    told = {"role": "tool", "tool_call_id": "call-1", "content": "ok"}
    request, _ = asked(http, door, CHAT, BODY | {"messages": [USER, {"role": "assistant", "tool_calls": [call]}, told]})
    assert request.messages[1]["tool_calls"][0]["function"]["arguments"] == given


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_packed_bodies(http, door, spoken, coding):
    path, body = spoken
    raw = json.dumps(body).encode()
    packed = gzip.compress(raw) if coding == "gzip" else pyarrow.compress(raw, "zstd", asbytes=True)
    headers = {"content-encoding": coding, "content-type": "application/json"}
    door.reply("so")
    assert http.post(path, content=packed, headers=headers).status_code == 200
    assert http.post(path, content=b"no such thing", headers=headers).status_code == 400
    bomb = pyarrow.compress(b" " * 50_000_000, "zstd", asbytes=True) if coding == "zstd" else gzip.compress(b" " * 50_000_000)
    assert http.post(path, content=bomb, headers=headers).status_code == 413


def test_any_model_is_there(http):
    assert http.get("models/gpt-9").json()["id"] == "gpt-9"


def test_both_paths_answer(http, door, spoken):
    path, body = spoken
    door.reply("so")
    base = str(http.base_url).removesuffix("v1/")
    own = {"Authorization": http.headers["Authorization"]}
    assert httpx.post(f"{base}{path}", json=body, headers=own).status_code == 200
    assert httpx.get(f"{base}models", headers=own).status_code == 200


def test_refused_bodies_are_told_to_the_door(http, door):
    assert http.post(CHAT, json={"model": "m", "messages": [{"role": "robot", "content": ""}]}).status_code == 400
    (refusal,) = door.told
    assert isinstance(refusal, Refusal) and refusal.field == "messages.role"
