"""What the policy said and a program sends back is the very same message again."""

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


BROKEN = pytest.mark.parametrize("broken", ['{"a": 1', "[1]", "", "nan", '{"a": NaN}'])


@BROKEN
def test_broken_arguments_come_back_as_they_were(chat, door, broken):
    said = door.reply(calls=(("call-1", "find", broken),))
    door.reply("so")
    first = {"role": "user", "content": "hi"}
    answer = chat.chat.completions.create(model="m", messages=[first]).choices[0].message
    reply = {"role": "tool", "tool_call_id": "call-1", "content": "?"}
    chat.chat.completions.create(model="m", messages=[first, answer, reply])
    assert door.requests[1].messages[1] == said
