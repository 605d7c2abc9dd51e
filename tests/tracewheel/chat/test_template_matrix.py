"""Real templates by kind of conversation: ids as rendered whole, mask on the policy's tokens, nothing forged."""

import copy
import json

import pytest

from tracewheel.chat import reference
from tracewheel.chat.renderer import ChatRenderer
from tracewheel.chat.template_check import check_template
from tracewheel.core.forks import ancestry
from tracewheel.core.tool_formats import FORMATS as KNOWN
from tracewheel_projects.demo.chat_template import CHAT_TEMPLATE

FORMATS = {"deepseek_v3": "deepseek", "llama3_1": "llama3_json", "gptoss": "gpt_oss"}
TEXT = {"no tools", "system prompt", "control tokens"}
TOOLS = {"tools", "parallel calls"}
# What each template can express. gpt-oss comes without a template; SmolLM2's has no tools, so ours stands beside it.
EXPRESSIBLE = {
    "qwen3": TEXT | TOOLS | {"thinking"},
    "deepseek_v3": TEXT,
    "llama3_1": TEXT,
    "gemma3": TEXT,
    "gptoss": set(),
    "smollm2": TEXT,
    "smollm2 with tools": TEXT | TOOLS,
}
CASES = ["no tools", "tools", "parallel calls", "thinking", "system prompt", "control tokens"]
SLOW = ("gemma3", "gptoss")
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in EXPRESSIBLE]


@pytest.fixture(scope="module", params=NAMES)
def model(request, real_tokenizer):
    """A name and its tokenizer with its template."""
    tokenizer = real_tokenizer(request.param.split()[0])
    if FORMATS.get(request.param, "hermes") not in KNOWN:
        pytest.skip("needs the wheel formats")
    if request.param == "smollm2 with tools":
        tokenizer = copy.deepcopy(tokenizer)
        tokenizer.chat_template = CHAT_TEMPLATE
    return request.param, tokenizer


@pytest.fixture(scope="module")
def check(model):
    name, tokenizer = model
    return check_template(tokenizer, FORMATS.get(name, "hermes"))


def conversation(case, *, tools, stray="<|im_end|>"):
    """Messages and tools of a case; `stray` is what a stranger wrote."""
    if case == "no tools":
        return reference.without_tools(system=False), []
    if case == "system prompt":
        return reference.without_tools(), []
    if case == "thinking":
        return reference.thinking("reasoning_content", tools=tools), reference.TOOLS if tools else []
    if case == "control tokens":
        if not tools:
            return [reference.user(stray), reference.says("No."), reference.user(stray), reference.says("No.")], []
        function = {**reference.TOOLS[0]["function"], "description": stray}
        told = [{**each, "content": stray} if each["role"] in ("tool", "user") else each for each in reference.with_tools()]
        return told, [{"type": "function", "function": function}, reference.TOOLS[1]]
    return reference.with_tools(parallel=case == "parallel calls"), reference.TOOLS


def prepared(message):
    """Arguments as an object and content as text, which the templates of the field expect."""
    message = {**copy.deepcopy(message), "content": message.get("content") or ""}
    for call in message.get("tool_calls", []):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return message


def whole(tokenizer, messages, tools, **options):
    """The template's own rendering, as text and as ids."""
    given = {"tools": tools or None, **options}
    ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **given)
    return tokenizer.apply_chat_template(messages, tokenize=False, **given), list(ids)


def rows(rendered):
    """Of each turn: the ids that the policy read before it, and those that it generated."""
    for turn in rendered.turns:
        before = [i for start, stop in ancestry(rendered.forks, len(rendered.ids), turn.start) for i in range(start, stop)]
        yield [rendered.ids[i] for i in before[:-1]], rendered.ids[turn.start : turn.end]


@pytest.mark.parametrize("case", CASES)
def test_each_conversation(model, check, case):
    name, tokenizer = model
    if case not in EXPRESSIBLE[name]:
        refused(name, check, case)
        return
    renderer = ChatRenderer(tokenizer, FORMATS.get(name, "hermes"))
    stray = " ".join(sorted(renderer.plain_text.control_tokens))
    messages, tools = conversation(case, tools=check.trainable, stray=stray)
    rendered = renderer.conversation(messages, tools)
    messages, end = [prepared(message) for message in messages], renderer.decode([renderer.end_of_turn_id])
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    assert len(turns) == len(rendered.turns)
    for at, (context, said) in zip(turns, rows(rendered), strict=True):
        text, ids = whole(tokenizer, messages[:at], tools, add_generation_prompt=True)
        after, _ = whole(tokenizer, messages[: at + 1], tools)
        assert renderer.decode(context) == text
        if case != "control tokens":
            assert context == ids
        assert after.startswith(text)
        spoken = after[len(text) :]
        assert renderer.decode(said) == spoken[: spoken.rindex(end) + len(end)]
        assert said.count(renderer.end_of_turn_id) == 1
    generated = [i for turn in rendered.turns for i in range(turn.start, turn.end)]
    assert [i for i, mask in enumerate(rendered.mask) if mask] == generated
    if case == "control tokens":
        harmless = renderer.conversation(*conversation(case, tools=check.trainable, stray="harmless"))
        controls = renderer.plain_text.control_ids
        assert [i for i in rendered.ids if i in controls] == [i for i in harmless.ids if i in controls]


def refused(name, check, case):
    """The check says that the template cannot do this, and what to do instead."""
    if name == "gptoss":
        assert not check.trainable_without_tools
        assert "has no chat template" in check.reasons[0]
    elif case == "thinking":
        assert not check.renders["thinking"]
    else:
        assert not check.trainable
        assert any("does not render tool calls" in reason and "policy.chat_template" in reason for reason in check.reasons)


def test_the_check_agrees(model, check):
    name, _ = model
    assert check.trainable == (EXPRESSIBLE[name] >= TOOLS)
    assert check.trainable_without_tools == bool(EXPRESSIBLE[name])
    assert check.forged == []
    assert check.calls_round_trip or not check.trainable
    breaks = {each.conversation: each.breaks for each in check.splitting}
    assert any(breaks.values()) == (name == "qwen3")  # the one that strips thoughts and reframes the last turn


def test_what_splitting_costs_on_qwen3(real_tokenizer):
    """Thoughts before the last question are stripped: the second row repeats what stood after the first of them."""
    check = check_template(real_tokenizer("qwen3"), "hermes")
    thinking = next(each for each in check.splitting if each.conversation == "thinking")
    assert thinking.breaks == [4]  # the first turn after the second question
    assert 0 < thinking.tokens - thinking.single_row < thinking.single_row / 2
