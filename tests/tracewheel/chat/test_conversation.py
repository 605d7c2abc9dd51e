"""Conversations by templates that rewrite earlier turns: each turn's row is what the template gives for that turn."""

import copy
import itertools
import json

import pytest

from tracewheel.chat.conversation import Conversation
from tracewheel.chat.renderer import ChatRenderer
from tracewheel.core.errors import ConfigError
from tracewheel.core.forks import TokenTree, ancestry

USER, LATER = ({"role": "user", "content": text} for text in ("Tidy up.", "And the rest?"))
REPLY = {"role": "tool", "tool_call_id": "c0", "name": "look", "content": "a.log"}
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}


def says(content, thinking=None):
    return {"role": "assistant", "content": content} | ({"reasoning_content": thinking} if thinking else {})


def looks(at, thinking=None):
    call = {"id": "c0", "type": "function", "function": {"name": "look", "arguments": json.dumps({"at": at})}}
    return {**says("", thinking), "tool_calls": [call]}


TOOLS_AND_USERS = [USER, looks("/a"), REPLY, looks("/b"), REPLY, says("Done."), LATER, looks("/c"), REPLY, says("Now.")]
THINKING = [
    USER, looks("/a", "First a."), REPLY, looks("/b", "Then b."), REPLY, says("Done.", "All seen."),
    LATER, looks("/c", "One more."), REPLY, says("Now."),
]  # fmt: skip
WORDS = [USER, says("What?"), LATER, says("Ah.", "I see."), USER, says("Done.")]

# A small relative of Qwen3's: thinking stays after the last user message only.
FORGETS = """{%- set last = messages | selectattr('role', 'equalto', 'user') | list | last -%}
{%- set ns = namespace(old=true) -%}
{%- for message in messages -%}
{%- if message == last -%}{%- set ns.old = false -%}{%- endif -%}
{%- set text = message.content -%}
{%- if ns.old and '</think>' in text -%}{%- set text = text.split('</think>')[-1] | trim -%}{%- endif -%}
{{- '<|im_start|>' + message.role + '\n' + text + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' + (opening or '') -}}{%- endif -%}"""


@pytest.fixture
def forgetful(renderer):
    tokenizer = copy.deepcopy(renderer.tokenizer)
    tokenizer.chat_template = FORGETS
    return tokenizer


def whole(renderer, messages, tools, options):
    """The template's text of messages up to the next turn."""
    prepared = copy.deepcopy(messages)
    for message in prepared:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return renderer.tokenizer.apply_chat_template(prepared, tools=tools, tokenize=False, add_generation_prompt=True, **options)


REAL = [
    ("qwen3", {}, TOOLS_AND_USERS, [TOOL]),
    ("qwen3", {}, THINKING, [TOOL]),
    ("qwen3", {}, WORDS, []),
    ("qwen3", {"enable_thinking": False}, TOOLS_AND_USERS, [TOOL]),
    ("llama3_1", {}, WORDS[:2] + WORDS[4:], []),
    ("gemma3", {}, WORDS[:2] + WORDS[4:], []),
    ("deepseek_v3", {}, WORDS[:2] + WORDS[4:], []),
]


@pytest.mark.parametrize(("name", "options", "messages", "tools"), REAL)
def test_each_turn_follows_what_the_template_gives_for_it(real_tokenizer, name, options, messages, tools):
    renderer = ChatRenderer(real_tokenizer(name), "hermes", options)
    rendered = renderer.conversation(messages, tools)
    said = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    assert len(rendered.turns) == len(said)
    for place, turn in zip(said, rendered.turns, strict=True):
        row = [i for piece in ancestry(rendered.forks, len(rendered.ids), turn.start - 1) for i in range(*piece)]
        assert len(row) == turn.context
        assert renderer.decode([rendered.ids[i] for i in row]) == whole(renderer, messages[:place], tools, options)
        assert rendered.ids[turn.start : turn.end] == renderer.assistant_ids(messages[place])
        assert all(rendered.mask[turn.start : turn.end])
    assert sum(rendered.mask) == sum(turn.end - turn.start for turn in rendered.turns)
    assert bool(rendered.forks) == (name == "qwen3") == any(turn.dropped for turn in rendered.turns)


@pytest.mark.parametrize(("name", "appends"), [("llama3_1", True), ("gemma3", True), ("qwen3", False)])
def test_whether_a_template_only_appends(real_tokenizer, name, appends):
    assert ChatRenderer(real_tokenizer(name)).appends == appends


def test_the_policys_own_thinking_stays_within_a_task(real_tokenizer):
    """Qwen3 keeps the thinking after the last user message: a policy that thinks forks only where a user speaks again."""
    renderer = ChatRenderer(real_tokenizer("qwen3"))
    turns = renderer.conversation(THINKING, [TOOL]).turns
    assert [bool(turn.dropped) for turn in turns] == [False, False, False, True, False]
    with pytest.raises(ConfigError, match="rewrites earlier turns"):
        renderer.conversation_ids(THINKING, [TOOL])


def test_the_demonstrations_turns_follow_a_closed_thought(real_tokenizer):
    renderer = ChatRenderer(real_tokenizer("qwen3"), "hermes", {"enable_thinking": False})
    assert renderer.decode(renderer.assistant_ids(says("Done.", "All seen."))) == "Done.<|im_end|>"


def test_the_tiny_template_only_appends(renderer):
    assert renderer.appends
    rendered = renderer.conversation(TOOLS_AND_USERS, [TOOL])
    assert rendered.forks == [] and (rendered.ids, rendered.mask) == renderer.conversation_ids(TOOLS_AND_USERS, [TOOL])


def play(renderer, texts, observed):
    """A policy that says these texts, character by character; the tree, and each turn's ids."""
    tree, said = TokenTree(), []
    tree.add(renderer.prompt_ids([USER], []), sampled=False)
    conversation = Conversation(renderer, [USER], [])
    for text, messages in zip(texts, [*observed, None], strict=True):
        ids = [token for character in text for token in renderer.tokenizer.encode(character, add_special_tokens=False)]
        said.append([*ids, renderer.end_of_turn_id])
        tree.add(said[-1], sampled=True)
        conversation.add_turn(said[-1])
        if messages is not None:
            step = conversation.observe(messages, tree)
            tree.cut(step.keep)
            tree.add(step.ids, sampled=False)
    return tree, said


def test_sampled_ids_stay_where_the_text_does(forgetful):
    renderer = ChatRenderer(forgetful)
    assert not renderer.appends
    tree, said = play(renderer, ["<think>\nHm.\n</think>\n\nOne /inbox ü.", "Two."], [[LATER]])
    spelled = [token for character in "One /inbox ü." for token in forgetful.encode(character, add_special_tokens=False)]
    row = tree.row_ids()
    assert renderer.tokenizer.encode("One /inbox ü.", add_special_tokens=False) != spelled, (
        "the policy's own spelling is another"
    )
    at = next(at for at in range(len(row)) if row[at : at + len(spelled)] == spelled)
    assert renderer.decode(row[:at]) == whole(renderer, [USER], [], {})
    assert len(tree.forks) == 1 and said[0] == tree.ids[len(renderer.prompt_ids([USER], [])) :][: len(said[0])]
    assert "Hm." not in renderer.decode(row)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name":"look",\n"arguments":{}}</tool_call>',
        "<think>Hm.</think>Done.",
        "<think>\n\nHm.</think>  <tool_call>\n{}",
        "<think>never closed",
        "Done.   ",
    ],
)
def test_a_turns_own_spelling_and_white_space_make_no_fork(real_tokenizer, text):
    """Replies of tools alone rewrite no thinking of Qwen3's."""
    renderer = ChatRenderer(real_tokenizer("qwen3"))
    tree, said = play(renderer, [text, text, "Done."], [[REPLY], [REPLY]])
    assert tree.forks == []
    assert [token for token, sampled in zip(tree.ids, tree.mask, strict=True) if sampled] == [*itertools.chain(*said)]


@pytest.mark.parametrize(
    "text", ["", " ", "<think>\n\n</think>\n\n", "a</think>b</think>c", "\ue010 \ue0120.0", "<|im_start|>"]
)
def test_odd_turns_are_rendered_all_the_same(real_tokenizer, text):
    renderer = ChatRenderer(real_tokenizer("qwen3"))
    tree, said = play(renderer, [text, text, "Done."], [[REPLY], [LATER]])
    assert tree.row_ids()[-len(said[-1]) :] == said[-1]
    assert renderer.decode(tree.row_ids()).count("<|im_start|>user") == 3


def test_a_prompt_may_open_the_thinking(forgetful):
    renderer = ChatRenderer(forgetful, "hermes", {"opening": "<think>\n"})
    call = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    assert renderer.parse(f"I could {call}").calls == []
    parsed = renderer.parse(f"I could {call}.\n</think>\n\n{call}")
    assert [made.name for made in parsed.calls] == ["look"] and parsed.thinking == f"I could {call}."
    message = renderer.assistant_message("", parsed, "c")
    assert message["reasoning_content"] == parsed.thinking and message["content"] is None
    tree, said = play(renderer, ["Hm.\n</think>\n\nOne.", "Hm.\n</think>\n\nTwo.", "Three."], [[REPLY], [LATER]])
    before = [USER, says("<think>\nHm.\n</think>\n\nOne."), REPLY, says("<think>\nHm.\n</think>\n\nTwo."), LATER]
    expected = whole(renderer, before, [], {"opening": "<think>\n"}) + "Three.<|im_end|>"
    assert renderer.decode(tree.row_ids()) == expected
    assert len(tree.forks) == 1, "the reply of a tool leaves the thinking as it was"
    assert sum(tree.mask) == sum(map(len, said))
