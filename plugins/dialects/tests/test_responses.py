"""OpenAI's client asks for responses."""

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent

TOOL = {"type": "function", "name": "find", "description": "Finds.", "parameters": {"type": "object"}, "strict": False}
CALLS = (("call-1", "find", '{"a":  1}'), ("call-2", "find", '{"b":"é", "a": [2,3]}'))
REPLIES = {
    "text": {"text": "Hello there.", "texts": ["Hel", "lo there.", "<end>"]},
    "call": {"calls": CALLS[:1]},
    "thought": {"thinking": "a word", "calls": CALLS, "texts": ["<think>a", " word</think>", "{}", "<end>"]},
    "text and calls": {"text": "I look.", "calls": CALLS},
    "thought and text": {"thinking": "a word", "text": "So."},
    "cut": {"text": "Hel", "texts": ["Hel"], "finish_reason": "length"},
    "nothing": {"text": ""},
}
ASKED = {"model": "m", "input": "hi", "tools": [TOOL], "include": ["message.output_text.logprobs"], "top_logprobs": 1}
BESIDE = {"store", "name"}  # what the vendor sends, and its models of today do not declare


@pytest.mark.parametrize("name", REPLIES)
def test_a_stream_adds_up_to_the_whole_answer(chat, door, name):
    for _ in range(2):
        message = door.reply(**REPLIES[name])
    whole = chat.responses.create(**ASKED)
    with chat.responses.stream(**ASKED) as stream:
        last = [*stream][-1]
    added, expected = last.response.to_dict(exclude_none=True), whole.to_dict(exclude_none=True)
    for body in (added, expected):
        body.pop("created_at"), body.pop("completed_at", None), body.pop("id")
        for item in body["output"]:
            item.pop("id")
    assert added == expected
    assert last.type == ("response.incomplete" if name == "cut" else "response.completed")
    assert whole.output_text == (message["content"] or "")
    calls = [(item.call_id, item.name, item.arguments) for item in whole.output if item.type == "function_call"]
    assert calls == list(REPLIES[name].get("calls", ()))
    assert whole.incomplete_details == (
        None if name != "cut" else openai.types.responses.response.IncompleteDetails(reason="max_output_tokens")
    )


@pytest.mark.parametrize("name", REPLIES)
def test_bodies_are_the_vendors(http, door, exactly, events_of, name):
    for _ in range(2):
        door.reply(**REPLIES[name])
    exactly(Response, http.post("responses", json=ASKED).json(), BESIDE)
    events = events_of(http.post("responses", json=ASKED | {"stream": True}).text)
    assert all(name == data["type"] for name, data in events)
    made = [exactly(ResponseStreamEvent, data, BESIDE) for _, data in events]
    assert [event.sequence_number for event in made] == [*range(len(made))]
    assert [event.type for event in made[:2]] == ["response.created", "response.in_progress"]
    added = [event.item.id for event in made if event.type == "response.output_item.added"]
    assert added == [event.item.id for event in made if event.type == "response.output_item.done"]
    assert added == [item.id for item in made[-1].response.output]
    texts = {}
    for event in made:
        if event.type.endswith(".delta"):
            texts[event.item_id] = texts.get(event.item_id, "") + event.delta
    whole = {
        item.id: item.arguments if item.type == "function_call" else item.content[0].text for item in made[-1].response.output
    }
    assert texts == {identity: text for identity, text in whole.items() if text}


def test_settings_reach_the_door(chat, door):
    door.reply("so")
    answer = chat.responses.create(
        model="policy/planner",
        instructions="Be brief.",
        input=[{"role": "developer", "content": "Now."}, {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        tools=[TOOL],
        tool_choice={"type": "function", "name": "find"},
        parallel_tool_calls=False,
        max_output_tokens=17,
        temperature=0.5,
        top_p=0.9,
        reasoning={"effort": "low"},
        metadata={"run": "1"},
        text={"format": {"type": "text"}},
        truncation="disabled",
        extra_body={"client_metadata": {"session": "1"}},  # Codex's
    )
    [request] = door.requests
    said = [("system", "Be brief."), ("system", "Now."), ("user", "hi")]
    assert request.messages == [{"role": role, "content": content} for role, content in said]
    function = {"name": "find", "description": "Finds.", "parameters": {"type": "object"}}
    assert request.tools == [{"type": "function", "function": function}]
    assert (request.tool, request.must_call, request.parallel, request.max_tokens) == ("find", True, False, 17)
    assert (request.temperature, request.top_p, request.logprobs, request.agent) == (0.5, 0.9, None, "planner")
    assert (answer.metadata, answer.max_output_tokens, answer.reasoning.effort) == ({"run": "1"}, 17, "low")
    assert (answer.parallel_tool_calls, answer.tool_choice.name, answer.tools[0].name) == (False, "find", "find")


def test_a_stored_response_is_found_again_and_deleted(chat, door):
    door.reply("so")
    made = chat.responses.create(model="m", input="hi")
    assert chat.responses.retrieve(made.id) == made
    chat.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        chat.responses.retrieve(made.id)


def test_what_is_not_stored_is_not_found(chat, door):
    door.reply("so")
    made = chat.responses.create(model="m", input="hi", store=False)
    with pytest.raises(openai.BadRequestError) as error:
        chat.responses.create(model="m", input="go on", previous_response_id=made.id)
    assert (error.value.param, error.value.code) == ("previous_response_id", "previous_response_not_found")
