"""Anthropic's client asks for messages."""

import pytest
from anthropic.types import Message, RawMessageStreamEvent

ASKED = [{"role": "user", "content": "hi"}]
TOOL = {"name": "find", "description": "Finds.", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
CALLS = (("call-1", "find", '{"a":  1}'), ("call-2", "find", '{"b":"é", "a": [2,3]}'))
REPLIES = {
    "text": ({"text": "Hello there.", "texts": ["Hel", "lo there.", "<end>"]}, "end_turn"),
    "call": ({"calls": CALLS[:1]}, "tool_use"),
    "thought": ({"thinking": "a word", "calls": CALLS, "texts": ["<think>a", " word</think>", "{}", "<end>"]}, "tool_use"),
    "text and calls": ({"text": "I look.", "calls": CALLS}, "tool_use"),
    "cut": ({"text": "Hel", "texts": ["Hel"], "finish_reason": "length"}, "max_tokens"),
    "stopped": ({"text": "Hel", "texts": ["Hel"], "stop_sequence": "lo"}, "stop_sequence"),
    "nothing": ({"text": ""}, "end_turn"),
    "broken arguments": ({"calls": (("call-1", "find", '{"a": 1'), ("call-2", "find", "[1]"))}, "tool_use"),
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_stream_adds_up_to_the_whole_answer(claude, door, name):
    for _ in range(2):
        message = door.reply(**REPLIES[name][0])
    asked = {"model": "m", "max_tokens": 50, "messages": ASKED, "tools": [TOOL]}
    whole = claude.messages.create(**asked)
    with claude.messages.stream(**asked) as stream:
        added = stream.get_final_message()
    shown, expected = added.to_dict(exclude_none=True), whole.to_dict(exclude_none=True)
    for body in (shown, expected):
        body.pop("id")
        for block in body["content"]:
            block.pop("signature", None)
    assert shown == expected
    assert (whole.stop_reason, whole.stop_sequence) == (REPLIES[name][1], "lo" if name == "stopped" else None)
    assert "".join(block.text for block in whole.content if block.type == "text") == (message["content"] or "")
    calls = [(block.id, block.name) for block in whole.content if block.type == "tool_use"]
    assert calls == [(call["id"], call["function"]["name"]) for call in message.get("tool_calls", [])]
    assert (whole.usage.input_tokens, whole.usage.cache_read_input_tokens) == (7, 5)


@pytest.mark.parametrize("name", REPLIES)
def test_bodies_are_the_vendors(http, door, exactly, events_of, name):
    for _ in range(2):
        door.reply(**REPLIES[name][0])
    asked = {"model": "m", "max_tokens": 50, "messages": ASKED}
    exactly(Message, http.post("messages", json=asked).json())
    events = events_of(http.post("messages", json=asked | {"stream": True}).text)
    assert all(name == data["type"] for name, data in events)
    assert events.pop(1)[0] == "ping"
    made = [exactly(RawMessageStreamEvent, data) for _, data in events]
    kinds = [event.type for event in made]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    blocks = [event for event in made if event.type.startswith("content_block")]
    assert [event.index for event in blocks] == sorted(event.index for event in blocks)
    starts = [event.index for event in blocks if event.type == "content_block_start"]
    assert starts == [event.index for event in blocks if event.type == "content_block_stop"] == [*range(len(starts))]


def test_settings_reach_the_door(claude, door):
    door.reply("so")
    claude.messages.create(
        model="policy/planner",
        max_tokens=7,
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=12ab"},
            {"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "brief."},
        ],
        messages=ASKED,
        tools=[TOOL | {"cache_control": {"type": "ephemeral"}, "type": "custom"}],
        tool_choice={"type": "tool", "name": "find", "disable_parallel_tool_use": True},
        stop_sequences=["\n", "x"],
        thinking={"type": "enabled", "budget_tokens": 1024},
        metadata={"user_id": "someone"},
        # What this client has no arguments for: older ones' sampling, and what Claude Code sends beside.
        extra_body={
            "temperature": 0.5,
            "top_p": 0.9,
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        },
    )
    [request] = door.requests
    assert request.messages == [{"role": "system", "content": "Be brief."}, *ASKED]
    function = {"name": "find", "description": "Finds.", "parameters": TOOL["input_schema"]}
    assert request.tools == [{"type": "function", "function": function}]
    assert (request.tool, request.must_call, request.parallel) == ("find", True, False)
    assert (request.max_tokens, request.temperature, request.top_p, request.stop) == (7, 0.5, 0.9, ("\n", "x"))
    assert request.agent == "planner"


@pytest.mark.parametrize(
    ("choice", "tools", "must"), [({"type": "any"}, 2, True), ({"type": "auto"}, 2, False), ({"type": "none"}, 0, False)]
)
def test_tool_choices(claude, door, choice, tools, must):
    door.reply("so")
    both = [TOOL, TOOL | {"name": "keep"}]
    claude.messages.create(model="m", max_tokens=7, messages=ASKED, tools=both, tool_choice=choice)
    [request] = door.requests
    assert (len(request.tools), request.tool, request.must_call) == (tools, None, must)


def test_results_of_tools_come_before_what_the_user_says(claude, door):
    door.reply("so")
    uses = [{"type": "tool_use", "id": f"call-{number}", "name": "find", "input": {}} for number in (1, 2, 3)]
    image_free = [{"type": "text", "text": "one "}, {"type": "text", "text": "line"}]
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "A page. "}}
    results = [
        {"type": "tool_result", "tool_use_id": "call-2", "content": image_free},
        {"type": "tool_result", "tool_use_id": "call-1", "content": "no such file", "is_error": True},
        {"type": "tool_result", "tool_use_id": "call-3", "is_error": True},
    ]
    said = [{"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}}]
    messages = [*ASKED, {"role": "assistant", "content": uses}, {"role": "user", "content": [document, *results, *said]}]
    claude.messages.create(model="m", max_tokens=7, messages=messages)
    [request] = door.requests
    assert request.messages[2:] == [
        {"role": "tool", "tool_call_id": "call-2", "content": "one line"},
        {"role": "tool", "tool_call_id": "call-1", "content": "no such file"},
        {"role": "tool", "tool_call_id": "call-3", "content": "error"},
        {"role": "user", "content": "A page. Go on."},
    ]


def test_messages_of_the_assistant_that_follow_each_other_are_one(claude, door):
    door.reply("so")
    parts = [{"type": "text", "text": "I "}], "look.", [{"type": "tool_use", "id": "use-1", "name": "find", "input": {"a": 1}}]
    result = {"type": "tool_result", "tool_use_id": "use-1", "content": "7"}
    messages = [*ASKED, *({"role": "assistant", "content": part} for part in parts), {"role": "user", "content": [result]}]
    claude.messages.create(model="m", max_tokens=7, messages=messages)
    function = {"name": "find", "arguments": '{"a": 1}'}
    calls = [{"id": "use-1", "type": "function", "function": function}]
    assert door.requests[0].messages[1:-1] == [{"role": "assistant", "content": "I look.", "tool_calls": calls}]
