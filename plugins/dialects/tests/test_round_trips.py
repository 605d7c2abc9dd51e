"""What the policy said and a program sends back is the very same message again."""

import pytest

from tests.tracewheel.gateway.dialects.test_round_trips import BROKEN, RESULTS, expected, said  # noqa: F401


@pytest.mark.parametrize("way", ["as objects", "as JSON", "block by block", "streamed"])
def test_anthropic(claude, door, said, way):  # noqa: F811
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
def test_responses(chat, door, said, way):  # noqa: F811
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


def test_responses_that_name_the_one_before(chat, door, said):  # noqa: F811
    made = chat.responses.create(model="m", input="hi", instructions="Be brief.")
    for results in RESULTS:
        outputs = [{"type": "function_call_output", "call_id": one, "output": text} for one, text in results]
        made = chat.responses.create(model="m", input=outputs, previous_response_id=made.id)
    chat.responses.create(model="m", input="And now?", previous_response_id=made.id, instructions="Be kind.")
    assert door.requests[0].messages[0] == {"role": "system", "content": "Be brief."}
    assert door.requests[1].messages[0]["role"] == "user"
    assert door.requests[-1].messages == [{"role": "system", "content": "Be kind."}, *expected(said)]


@BROKEN
def test_broken_arguments_come_back_as_they_were(claude, door, broken):
    broken_call = door.reply(calls=(("call-1", "find", broken),))
    door.reply("so")
    first = {"role": "user", "content": "hi"}
    message = claude.messages.create(model="m", max_tokens=50, messages=[first])
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call-1", "content": "?"}]}
    claude.messages.create(
        model="m", max_tokens=50, messages=[first, {"role": "assistant", "content": message.content}, result]
    )
    assert door.requests[1].messages[1] == broken_call
