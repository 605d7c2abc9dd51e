"""What the policy cannot be given is left out and told to the door; what says the same in another way is translated."""

import pytest

from tests.tracewheel.gateway.dialects.test_tolerance import (  # noqa: F401
    DATA,
    PATCH,
    SHOWN,
    USER,
    asked,
    test_both_paths_answer,
    test_packed_bodies,
)
from tracewheel import Refusal

CLEAR = "context_management"
BODIES = {
    "messages": {"model": "m", "max_tokens": 9, "messages": [USER]},
    "responses": {"model": "m", "input": "hi"},
}
IMAGES = {
    "messages": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}],
    "responses": [{"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"}],
}
DROPPED = [
    ("responses", {"tools": [{"type": "namespace", "tools": []}, {"type": "mcp"}]}, {"tools.namespace", "tools.mcp"}),
    ("responses", {"truncation": "auto"}, {"truncation"}),
    ("messages", {"top_k": 5, "container": "c-1", "mcp_servers": [{"url": "u"}]}, {"top_k", "container", "mcp_servers"}),
    ("messages", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, {"tools.web_search_20250305"}),
    ("messages", {CLEAR: {"edits": [{"type": "clear_tool_uses_20250919"}]}}, {f"{CLEAR}.clear_tool_uses_20250919"}),
    ("messages", {CLEAR: {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}, set()),
]  # fmt: skip


@pytest.mark.parametrize(("path", "change", "dropped"), DROPPED)
def test_what_is_left_out_is_told(http, door, path, change, dropped):
    request, _ = asked(http, door, path, BODIES[path] | change)
    assert request.dropped == dropped and request.tools == []


@pytest.mark.parametrize("path", IMAGES)
def test_an_image_has_a_placeholder(http, door, path):
    parts = [{"type": "input_text" if path == "responses" else "text", "text": "See: "}, *IMAGES[path]]
    name = "input" if path == "responses" else "messages"
    request, _ = asked(http, door, path, BODIES[path] | {name: [{"role": "user", "content": parts}]})
    assert request.messages[0]["content"].startswith(f"See: {SHOWN}") and len(request.dropped) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_custom_tool_is_a_function_with_one_text(http, door, stream):
    given = '{"input":  "*** Begin"}'  # with a space more than we would write
    door.reply(calls=[("call-1", "apply_patch", given)])
    answer = http.post("responses", json=BODIES["responses"] | {"tools": [{"type": "custom", **PATCH}], "stream": stream})
    function = door.requests[-1].tools[0]["function"]
    assert function["parameters"]["required"] == ["input"] and "start: X" in function["description"]
    if stream:
        assert "*** Begin" in answer.text and "custom" in answer.text and '"arguments":"{' not in answer.text
        return
    call = answer.json()["output"][-1]
    assert (call["type"], call["input"]) == ("custom_tool_call", "*** Begin")
    back = [USER, call, {"type": "custom_tool_call_output", "call_id": "call-1", "output": "ok"}]
    request, _ = asked(http, door, "responses", BODIES["responses"] | {"input": back})
    assert request.messages[1]["tool_calls"][0]["function"]["arguments"] == given


def test_a_custom_call_that_is_no_json_comes_back_as_it_was(http, door):
    door.reply(calls=[("call-2", "apply_patch", "*** Begin")])
    call = http.post("responses", json=BODIES["responses"] | {"tools": [{"type": "custom", **PATCH}]}).json()["output"][-1]
    back = [USER, call, {"type": "custom_tool_call_output", "call_id": "call-2", "output": "ok"}]
    request, _ = asked(http, door, "responses", BODIES["responses"] | {"input": back})
    assert request.messages[1]["tool_calls"][0]["function"]["arguments"] == "*** Begin"


def test_tools_that_a_program_carries_out_have_their_schemas(http, door):
    tools = [{"type": "bash_20250124", "name": "bash"}, {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}]
    request, _ = asked(http, door, "messages", BODIES["messages"] | {"tools": tools})
    assert [tool["function"]["name"] for tool in request.tools] == ["bash", "str_replace_based_edit_tool"]
    assert "command" in request.tools[0]["function"]["parameters"]["properties"] and not request.dropped


def test_tools_that_are_found_or_added_later_are_offered_from_the_beginning(http, door):
    find = {"type": "function", "name": "find", "parameters": {}}
    added = {"type": "additional_tools", "role": "developer", "tools": [find, {**find, "name": "lose"}]}
    items = [{"role": "user", "content": "hi"}, added]
    request, _ = asked(
        http, door, "responses", BODIES["responses"] | {"tools": [find, {"type": "tool_search"}], "input": items}
    )
    assert [tool["function"]["name"] for tool in request.tools] == ["find", "lose"] and request.messages == [USER]
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "search", "input": {}}]}
    found = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference", "tool_name": "find"}]}
    news = {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "find"}}]}
    request, _ = asked(
        http, door, "messages", BODIES["messages"] | {"messages": [USER, call, {"role": "user", "content": [found]}, news]}
    )
    assert request.messages[-1] == {"role": "tool", "tool_call_id": "a", "content": "find"}


def test_the_assistant_last_begins_the_turn(http, door):
    door.reply("I am fine.")
    body = BODIES["messages"] | {"messages": [USER, {"role": "assistant", "content": "I am"}]}
    answer = http.post("messages", json=body).json()
    assert door.requests[-1].prefill == "I am" and door.requests[-1].messages == [USER]
    assert answer["content"][0]["text"] == " fine."


def test_what_came_before_a_compaction_is_not_read(http, door):
    compacted = {
        "role": "assistant",
        "content": [{"type": "compaction", "content": "We said hi."}, {"type": "text", "text": "Yes?"}],
    }
    request, _ = asked(
        http, door, "messages", BODIES["messages"] | {"messages": [USER, compacted, {"role": "user", "content": "go"}]}
    )
    assert [message["content"] for message in request.messages] == ["We said hi.", "Yes?", "go"]


def test_refused_bodies_are_told_to_the_door(http, door):
    assert http.post("responses", json={"model": "m", "input": [{"type": "computer_call"}]}).status_code == 400
    (refusal,) = door.told
    assert isinstance(refusal, Refusal) and refusal.field == "input.type"
