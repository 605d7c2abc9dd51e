"""Logged conversations in an order that templates are not made for are left out where the template would change them."""

import pytest

from tracewheel.chat.faithful import BROKEN_CALL, MOVED, REFUSED, why_unfaithful
from tracewheel.chat.reference import TOOLS
from tracewheel.chat.renderer import ChatRenderer
from tracewheel.core.errors import DataError

SYSTEM, ASKED = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is in /inbox?"}
HELLO, DONE = {"role": "assistant", "content": "Hello there!"}, {"role": "assistant", "content": "One file."}
LATE = {"role": "system", "content": "From now on, speak German."}
CASES = {
    "usual": ([SYSTEM, ASKED, DONE], 0),
    "the agent first": ([HELLO, ASKED, DONE], 1),
    "the agent first, after the system": ([SYSTEM, HELLO, ASKED, DONE], 2),
    "the system late": ([SYSTEM, ASKED, DONE, LATE, ASKED, DONE], 0),
}


def called(arguments):
    call = {"id": "c1", "type": "function", "function": {"name": "list_files", "arguments": arguments}}
    reply = {"role": "tool", "tool_call_id": "c1", "content": "error: invalid JSON"}
    return [SYSTEM, ASKED, {"role": "assistant", "content": None, "tool_calls": [call]}, reply, DONE]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("model", ["qwen3", "deepseek_v3"])
def test_what_real_templates_write_in_order_is_learnt_and_the_rest_is_left_out(real_tokenizer, model, name):
    renderer = ChatRenderer(real_tokenizer(model))
    messages, opening = CASES[name]
    # DeepSeek's template gathers all system messages at the beginning.
    expected = {("deepseek_v3", "the system late"): (MOVED, REFUSED)}.get((model, name), ("",))
    assert why_unfaithful(renderer, messages, TOOLS, opening) in expected


@pytest.mark.parametrize("arguments", ['{"path": ', "[1]", "", "{}"])
def test_a_call_with_broken_arguments_is_never_rendered(renderer, arguments):
    messages = called(arguments)
    if arguments == "{}":
        assert why_unfaithful(renderer, messages, TOOLS) == ""
        return
    assert why_unfaithful(renderer, messages, TOOLS) == BROKEN_CALL
    with pytest.raises(DataError, match="no template can write it"):
        renderer.conversation(messages, TOOLS)


def test_a_template_that_refuses_an_order_costs_only_that_conversation(renderer, monkeypatch):
    strict = "{% if messages[0].role == 'assistant' %}{{ raise_exception('user first') }}{% endif %}"
    monkeypatch.setattr(renderer.tokenizer, "chat_template", strict + renderer.tokenizer.chat_template)
    assert why_unfaithful(renderer, [HELLO, ASKED, DONE], TOOLS, 1) == REFUSED
    assert why_unfaithful(renderer, [ASKED, DONE], TOOLS) == ""
