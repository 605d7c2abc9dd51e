"""No kept message of an agent lacks text and calls unless the log has it so: over all readers, and over real files."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tracewheel.traces.readers.logged import RECORDS, SPANS, read
from tracewheel.core.types import Trace
from tracewheel.traces.readers.unread import CONTENT, says_something

ALL = {**{name: [record] for name, record in RECORDS.items()}, **SPANS}
SAID = "It is sunny."


def places_of(value, text, path=()):
    """The paths of keys in a record whose value is this text."""
    if isinstance(value, dict):
        for key, part in value.items():
            if part == text:
                yield (*path, key)
            yield from places_of(part, text, (*path, key))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from places_of(part, text, (*path, number))


def is_lost(item, text=SAID):
    """Whether a record was kept with an empty message of the agent, though the record has this text for it."""
    if not isinstance(item, Trace) or text in json.dumps(item.messages):
        return False
    return any(message["role"] == "assistant" and not says_something(message) for message in item.messages)


def check_other_names(name, sample):
    """What the agent says, moved to every name under which some log keeps content, and to one of nobody's."""
    for number, part in enumerate(sample):
        for *path, key in places_of(part, SAID):
            for other in [*sorted(CONTENT), "toolCalls", "what_it_said"]:
                values = copy.deepcopy(sample)
                node = values[number]
                for step in path:
                    node = node[step]
                # Attributes of spans are paths.
                other = f"{key.rpartition('.')[0]}.{other}" if "." in key else other
                if other not in node:
                    node[other] = node.pop(key)
                    assert not any(map(is_lost, read(*values, format=name))), (path, key, other)


@pytest.mark.parametrize("name", ALL)
def test_text_under_any_other_name_is_read_or_quarantined(name):
    check_other_names(name, ALL[name])


names = st.sampled_from(
    sorted({"content", "text", "parts", "toolCalls", "toolInvocations", "tool_calls", "refusal", "reasoning"})
)
texts = st.just(SAID) | st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "output_text", "thing"]), "text": st.just(SAID)})
)
messages = st.dictionaries(names | st.text("abc", min_size=1, max_size=3), texts | st.none() | st.just(""), max_size=3)


@settings(max_examples=100, derandomize=True)
@given(messages, st.sampled_from(["assistant", "ai", "model"]))
def test_made_messages_are_read_or_quarantined(message, role):
    """An agent's message with texts under any names: it is empty only if all of them are."""
    asked = {"role": "user", "content": "Rome?"}
    (item,) = read({"messages": [asked, {"role": role, **message}]})
    assert not (SAID in json.dumps(message) and is_lost(item)), item


UI = {
    "id": "m2", "role": "assistant", "content": "",
    "parts": [
        {"type": "step-start"}, {"type": "text", "text": "I look."},
        {"type": "tool-weather", "toolCallId": "c1", "state": "output-available", "input": {"city": "Rome"}, "output": "sunny"},
        {"type": "step-start"}, {"type": "text", "text": SAID},
    ],
}  # fmt: skip
INVOKED = {"state": "result", "toolCallId": "c1", "toolName": "weather", "args": {"city": "Rome"}, "result": "sunny"}
LOOKED = {"role": "assistant", "text": "I look."}
REPLY = {"role": "tool", "toolCallId": "c1", "content": "sunny"}
BEDROCK = {"toolUse": {"toolUseId": "c1", "name": "weather", "input": {"city": "Rome"}}}


@pytest.mark.parametrize(
    "messages",
    [
        [UI],
        [{"role": "assistant", "content": "I look.", "toolInvocations": [INVOKED]}, {"role": "assistant", "text": SAID}],
        [{**LOOKED, "toolCalls": [{"toolCallId": "c1", "toolName": "weather", "args": {"city": "Rome"}}]}, REPLY,
         {"role": "assistant", "content": None, "refusal": SAID}],
        [{"role": "model", "parts": [{"text": "I look."}, {"functionCall": {"name": "weather", "args": {"city": "Rome"}}}]},
         {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": "sunny"}}]},
         {"role": "model", "parts": [{"thought": True, "text": "hm"}, {"text": SAID}]}],
        [{"role": "assistant", "content": [{"text": "I look."}, BEDROCK]},
         {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "sunny"}]}}]},
         {"role": "assistant", "content": [{"text": SAID}]}],
    ],
)  # fmt: skip
def test_messages_of_other_sdks_are_read_in_openais_place(messages):
    (trace,) = read({"messages": [{"role": "user", "text": "Rome?"}, *messages], "note": 1}, format="openai")
    assert isinstance(trace, Trace), trace
    said = [(m["role"], m["content"] or "", [c["function"]["name"] for c in m.get("tool_calls") or []]) for m in trace.messages]
    assert said[0] == ("user", "Rome?", []) and ("tool", "sunny", []) in said and said[-1] == ("assistant", SAID, [])
    assert [name for _, _, calls in said for name in calls] == ["weather"]
    assert any("I look." in text for _, text, _ in said)
