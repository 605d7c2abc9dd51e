"""OpenAI's client asks for chat completions."""

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

ASKED = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": {"type": "object"}}}
CALLS = (("call-1", "find", '{"a":  1}'), ("call-2", "find", '{"b":"é", "a": [2,3]}'))
THOUGHT = {"thinking": "a word", "calls": CALLS, "texts": ["<think>a", " word</think>", "{}", "<end>"]}
REPLIES = {
    "text": {"text": "Hello there.", "texts": ["Hel", "lo there.", "<end>"]},
    "unspelled": {"text": "Héllo, there you are. ", "texts": ["H\ufffd", "\ufffdllo", "<end>"]},
    "call": {"calls": CALLS[:1]},
    "thought": THOUGHT,
    "text and calls": {"text": "I look.", "calls": CALLS},
    "cut": {"text": "Hel", "texts": ["Hel"], "finish_reason": "length"},
    "nothing": {"text": ""},
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_stream_adds_up_to_the_whole_answer(chat, door, name):
    for _ in range(2):
        message = door.reply(**REPLIES[name])
    asked = {"model": "m", "messages": ASKED, "tools": [TOOL], "logprobs": True, "top_logprobs": 1}
    whole = chat.chat.completions.create(**asked)
    with chat.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
        stream.until_done()
        added = stream.current_completion_snapshot
    shown = added.to_dict(exclude_none=True)
    for choice in shown["choices"]:
        choice["message"].pop("parsed", None)
        for call in choice["message"].get("tool_calls") or ():
            call.pop("index")
            call["function"].pop("parsed_arguments", None)
    expected = whole.to_dict(exclude_none=True)
    for body in (shown, expected):
        body.pop("id"), body.pop("created")
    assert shown == expected
    said = whole.choices[0].message
    assert (said.content, said.to_dict().get("reasoning_content")) == (message["content"], message.get("reasoning_content"))
    assert [one.to_dict() for one in said.tool_calls or ()] == message.get("tool_calls", [])


@pytest.mark.parametrize("name", REPLIES)
def test_bodies_are_the_vendors(http, door, exactly, events_of, name):
    for _ in range(2):
        door.reply(**REPLIES[name])
    asked = {"model": "m", "messages": ASKED, "logprobs": True, "top_logprobs": 1}
    exactly(ChatCompletion, http.post("chat/completions", json=asked).json(), {"reasoning_content"})
    asked |= {"stream": True, "stream_options": {"include_usage": True}}
    events = events_of(http.post("chat/completions", json=asked).text)
    assert events[-1] == (None, "[DONE]")
    chunks = [exactly(ChatCompletionChunk, event, {"reasoning_content"}) for _, event in events[:-1]]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [bool(chunk.choices) for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert len({chunk.id for chunk in chunks}) == 1


def test_settings_reach_the_door(chat, door):
    door.reply("so", texts=["so"], stop_sequence="\n")
    chat.chat.completions.create(
        model="policy/planner",
        messages=[
            {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]},
            *ASKED,
        ],
        tools=[TOOL],
        tool_choice={"type": "function", "function": {"name": "find"}},
        parallel_tool_calls=False,
        max_completion_tokens=7,
        temperature=0.5,
        top_p=0.9,
        stop="\n",
        seed=3,
        reasoning_effort="low",
        user="someone",
    )
    [request] = door.requests
    assert request.messages == [{"role": "system", "content": "Be brief."}, *ASKED]
    assert request.tools == [TOOL]
    assert (request.tool, request.must_call, request.parallel) == ("find", True, False)
    assert (request.max_tokens, request.temperature, request.top_p, request.seed) == (7, 0.5, 0.9, 3)
    assert (request.stop, request.logprobs, request.agent) == (("\n",), None, "planner")


@pytest.mark.parametrize(
    ("choice", "names", "tool", "must"),
    [
        (None, ["find", "keep"], None, False),
        ("auto", ["find", "keep"], None, False),
        ("none", [], None, False),
        ("required", ["find", "keep"], None, True),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TOOL]}}, ["find"], None, False),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOL]}}, ["find"], "find", True),
    ],
)
def test_tool_choices(chat, door, choice, names, tool, must):
    door.reply("so")
    keep = {"type": "function", "function": {"name": "keep"}}
    chat.chat.completions.create(model="m", messages=ASKED, tools=[TOOL, keep], **({"tool_choice": choice} if choice else {}))
    [request] = door.requests
    assert [one["function"]["name"] for one in request.tools] == names
    assert (request.tool, request.must_call) == (tool, must)


def test_how_the_server_is_to_decode_is_no_part_of_a_tool(chat, door):
    door.reply("so")
    asked = {**TOOL, "function": {**TOOL["function"], "strict": True}}  # as Pydantic AI asks
    chat.chat.completions.create(model="m", messages=ASKED, tools=[asked])
    assert door.requests[0].tools == [TOOL]


def test_several_answers_have_seeds_of_their_own(chat, door):
    for text in ("one", "two", "three"):
        door.reply(text, texts=[text])
    answer = chat.chat.completions.create(model="m", messages=ASKED, n=3, seed=5)
    assert sorted(choice.message.content for choice in answer.choices) == ["one", "three", "two"]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert [request.seed for request in door.requests] == [5, 6, 7]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (12, 3)


def test_a_stream_of_several_answers(chat, door):
    for text in ("one", "two"):
        door.reply(text)
    texts = {0: "", 1: ""}
    for chunk in chat.chat.completions.create(model="m", messages=ASKED, n=2, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == {0: "one", 1: "two"}


def test_logprobs_are_those_of_the_text(chat, door):
    door.reply("Hello", thinking="Hello", texts=["<think>", "Hello", "</think>\n", "\nHel", "lo", "<end>"])
    answer = chat.chat.completions.create(model="m", messages=ASKED, logprobs=True)
    assert [(one.token, one.logprob, one.top_logprobs) for one in answer.choices[0].logprobs.content] == [
        ("\nHel", -1.0, []),
        ("lo", -1.25, []),
    ]
    assert answer.usage.completion_tokens_details.reasoning_tokens == 1
    assert door.requests[0].logprobs == 0


@pytest.mark.parametrize("stream", [False, True])
def test_trainers_may_ask_for_all_ids(http, door, events_of, stream):
    door.reply("Hello", texts=["Hel", "lo", "<end>"])
    asked = {"model": "m", "messages": ASKED, "logprobs": True, "return_token_ids": True, "stream": stream}
    response = http.post("chat/completions", json=asked)
    if stream:
        events = [event for _, event in events_of(response.text)[:-1]]
        first, last = events[0], events[-1]["choices"][0]
    else:
        first, last = response.json(), response.json()["choices"][0]
    assert first["prompt_token_ids"] == [7, 8]
    assert last["token_ids"] == [100, 101, 102]
    assert [one["token"] for one in last["logprobs"]["content"]] == ["Hel", "lo", "<end>"]
