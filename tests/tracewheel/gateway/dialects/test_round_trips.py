"""What the policy said and a program sends back is the very same message again, in each dialect."""

import json

import pytest

CALLS = (("call-1", "find", '{"a":  1.0,\t"b": "é"}'), ("call-2", "find", "{}"))
MORE = (("call-1", "find", '{"a": 2}'),)  # ids need not be unique over an episode
SAID = [
    {"thinking": "First I look.\n", "text": " I look. ", "calls": CALLS},
    {"calls": MORE},
    {"text": "Done,\nI think. "},
    {"thinking": "What now?", "text": "Good bye."},
]
RESULTS = [("call-1", "seven"), ("call-2", "")], [("call-1", "eight")]


def expected(messages):
    """The history that the last request should have."""
    results = [[{"role": "tool", "tool_call_id": one, "content": text} for one, text in each] for each in RESULTS]
    first, last = {"role": "user", "content": "hi"}, {"role": "user", "content": "And now?"}
    return [first, messages[0], *results[0], messages[1], *results[1], messages[2], last]


@pytest.fixture
def said(door):
    """The messages that the door will say."""
    return [door.reply(**one) for one in SAID]


@pytest.mark.parametrize("way", ["as objects", "as JSON", "written anew", "streamed"])
def test_chat(chat, door, said, way):
    history = [{"role": "user", "content": "hi"}]

    def ask():
        if way == "streamed":
            with chat.chat.completions.stream(model="m", messages=history) as stream:
                message = stream.get_final_completion().choices[0].message
        else:
            message = chat.chat.completions.create(model="m", messages=history).choices[0].message
        if way == "as objects":
            return history.append(message)
        sent = message.to_dict()
        for call in sent.get("tool_calls") or () if way == "written anew" else ():
            call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), separators=(",", ":"))
        return history.append(sent)

    for results in (*RESULTS, None):
        ask()
        if results:
            history += ({"role": "tool", "tool_call_id": one, "content": text} for one, text in results)
    history.append({"role": "user", "content": "And now?"})
    ask()
    assert door.requests[-1].messages == expected(said)


@pytest.mark.parametrize("way", ["as objects", "as JSON", "block by block", "streamed"])
def test_anthropic(claude, door, said, way):
    history = [{"role": "user", "content": "hi"}]

    def ask():
        if way == "streamed":
            with claude.messages.stream(model="m", max_tokens=50, messages=history) as stream:
                message = stream.get_final_message()
        else:
            message = claude.messages.create(model="m", max_tokens=50, messages=history)
        content = message.content if way == "as objects" else message.to_dict()["content"]
        pieces = [[block] for block in content] if way == "block by block" else [content]
        history.extend({"role": "assistant", "content": piece} for piece in pieces)

    for results in (*RESULTS, None):
        ask()
        if results:
            found = [{"type": "tool_result", "tool_use_id": one, "content": text} for one, text in results]
            history.append({"role": "user", "content": found})
    history.append({"role": "user", "content": [{"type": "text", "text": "And "}, {"type": "text", "text": "now?"}]})
    ask()
    assert door.requests[-1].messages == expected(said)


@pytest.mark.parametrize("way", ["as objects", "as JSON", "encrypted", "summarised", "ids only", "streamed", "by reference"])
def test_responses(chat, door, said, way):
    history = [{"role": "user", "content": "hi"}]
    asked = {"include": ["reasoning.encrypted_content"], "store": False} if way == "encrypted" else {}

    def sent(item):
        if item.type == "reasoning" and way == "encrypted":
            return {"type": "reasoning", "id": item.id, "summary": [], "encrypted_content": item.encrypted_content}
        if item.type == "reasoning" and way == "summarised":
            return {"type": "reasoning", "summary": [{"type": "summary_text", "text": part.text} for part in item.content]}
        if item.type == "reasoning" and way == "ids only":
            return {"type": "reasoning", "id": item.id, "summary": []}
        if way == "by reference":
            return {"type": "item_reference", "id": item.id}
        return item.to_dict() if way == "as JSON" else item

    def ask():
        if way == "streamed":
            with chat.responses.stream(model="m", input=history) as stream:
                output = stream.get_final_response().output
        else:
            output = chat.responses.create(model="m", input=history, **asked).output
        history.extend(map(sent, output))

    for results in (*RESULTS, None):
        ask()
        if results:
            history += ({"type": "function_call_output", "call_id": one, "output": text} for one, text in results)
    history.append({"role": "user", "content": "And now?"})
    ask()
    assert door.requests[-1].messages == expected(said)


def test_responses_that_name_the_one_before(chat, door, said):
    made = chat.responses.create(model="m", input="hi", instructions="Be brief.")
    for results in RESULTS:
        outputs = [{"type": "function_call_output", "call_id": one, "output": text} for one, text in results]
        made = chat.responses.create(model="m", input=outputs, previous_response_id=made.id)
    chat.responses.create(model="m", input="And now?", previous_response_id=made.id, instructions="Be kind.")
    assert door.requests[0].messages[0] == {"role": "system", "content": "Be brief."}
    assert door.requests[1].messages[0]["role"] == "user"
    assert door.requests[-1].messages == [{"role": "system", "content": "Be kind."}, *expected(said)]


@pytest.mark.parametrize("broken", ['{"a": 1', "[1]", "", "nan", '{"a": NaN}'])
def test_broken_arguments_come_back_as_they_were(claude, chat, door, broken):
    said = []
    for _ in range(2):
        said.append(door.reply(calls=(("call-1", "find", broken),)))
        door.reply("so")
    first = {"role": "user", "content": "hi"}
    message = claude.messages.create(model="m", max_tokens=50, messages=[first])
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call-1", "content": "?"}]}
    claude.messages.create(
        model="m", max_tokens=50, messages=[first, {"role": "assistant", "content": message.content}, result]
    )
    answer = chat.chat.completions.create(model="m", messages=[first]).choices[0].message
    reply = {"role": "tool", "tool_call_id": "call-1", "content": "?"}
    chat.chat.completions.create(model="m", messages=[first, answer, reply])
    assert [request.messages[1] for request in door.requests[1::2]] == said
