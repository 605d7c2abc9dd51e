"""Pieces of a conversation as token ids: their text, and that they join to the template's text."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.chat.formats import WELL_FORMED, ParsedCall
from tracewheel.chat.renderer import ChatRenderer
from tracewheel.core.errors import ConfigError
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import TOOLS, play

SYSTEM = {"role": "system", "content": "You are an agent."}
USER = {"role": "user", "content": "Tidy up."}
TOOL = {"type": "function", "function": {"name": "look", "description": "Über <b>", "parameters": {"type": "object"}}}


def calls(*named, content=None):
    made = [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}}
        for i, (name, arguments) in enumerate(named)
    ]
    return {"role": "assistant", "content": content, "tool_calls": made}


def says(content):
    return {"role": "assistant", "content": content}


def reply(content, call_id="c0"):
    return {"role": "tool", "tool_call_id": call_id, "name": "look", "content": content}


CONVERSATIONS = {
    "one call a turn": [SYSTEM, USER, calls(("look", {"at": "/inbox"})), reply("a.log\nb.txt"), calls(("finish", {}))],
    "several calls a turn": [
        SYSTEM,
        USER,
        calls(("look", {"at": "/a"}), ("look", {})),
        reply("a"),
        reply("b", "c1"),
        says("Done."),
    ],
    "words": [SYSTEM, USER, says("What?"), {"role": "user", "content": "That."}, says("Ah.")],
    "words and calls": [SYSTEM, USER, calls(("look", {"n": [1, "ü"]}), content="I look."), reply("<b>é</b>"), says("Done.")],
    "no system message": [USER, calls(("look", {})), reply("a"), says("Done.")],
    "two assistant turns in a row": [SYSTEM, USER, says("One."), says("Two."), calls(("look", {})), reply("a"), says("Three.")],
    "an empty reply": [SYSTEM, USER, calls(("look", {})), reply(None), says("")],
    "cut before the last reply": [SYSTEM, USER, says("One."), {"role": "user", "content": "Never answered."}],
}


def template_text(renderer, messages, tools):
    """The template's rendering of the whole conversation, cut after the last assistant turn."""
    last = max(i for i, message in enumerate(messages) if message["role"] == "assistant")
    prepared = copy.deepcopy(messages[: last + 1])
    for message in prepared:
        message["content"] = message["content"] or ""
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    text = renderer.tokenizer.apply_chat_template(prepared, tools=tools, tokenize=False)
    return text.removesuffix("\n")


@pytest.mark.parametrize("tools", [[], [TOOL], TOOLS], ids=["no tools", "one tool", "the workspace"])
@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_the_pieces_join_to_the_whole(renderer, messages, tools):
    ids, mask = renderer.conversation_ids(messages, tools)
    assert len(ids) == len(mask)
    assert renderer.decode(ids) == template_text(renderer, messages, tools)


def test_the_pieces_of_real_episodes_join_to_the_whole(renderer, tasks):
    for task in tasks:
        messages = play(task, solution(task))
        assert renderer.decode(renderer.conversation_ids(messages, TOOLS)[0]) == template_text(renderer, messages, TOOLS)


@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_the_mask_covers_assistant_turns_with_their_end_tokens(renderer, messages):
    ids, mask = renderer.conversation_ids(messages, [TOOL])
    spoken, current = [], []
    for token, marked in zip(ids, mask, strict=True):
        if marked:
            current.append(token)
        if marked and token == renderer.end_of_turn_id:
            spoken.append(current)
            current = []
    assert not current
    assert spoken == [renderer.assistant_ids(message) for message in messages if message["role"] == "assistant"]
    assert sum(mask) == sum(map(len, spoken))


def test_opening_messages_are_context(renderer):
    messages = [SYSTEM, USER, says("Hello."), USER, calls(("look", {})), reply("a.log"), says("Done.")]
    ids, mask = renderer.conversation_ids(messages, [TOOL], opening=3)
    assert ids == renderer.conversation_ids(messages, [TOOL])[0]
    own = [renderer.assistant_ids(message) for message in (messages[4], messages[6])]
    assert [token for token, marked in zip(ids, mask, strict=True) if marked] == own[0] + own[1]
    assert ids[: mask.index(1)] == renderer.prompt_ids(messages[:4], [TOOL]), "the prompt that a policy gets"


def test_the_wire_format_is_qwens(renderer):
    messages = [
        SYSTEM, USER, calls(("look", {"at": "/a", "all": True}), ("look", {}), content="I look."),
        reply("a.log"), reply("(empty)", "c1"), says("Done."),
    ]  # fmt: skip
    ids, _ = renderer.conversation_ids(messages, [TOOL])
    assert renderer.decode(ids) == (
        "<|im_start|>system\n"
        "You are an agent.\n"
        "\n"
        "# Tools\n"
        "\n"
        "You may call one or more functions to assist with the user query.\n"
        "\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n"
        "<tools>\n"
        '{"type": "function", "function": {"name": "look", "description": "Über <b>", "parameters": {"type": "object"}}}\n'
        "</tools>\n"
        "\n"
        "For each function call, return a json object with function name and arguments "
        "within <tool_call></tool_call> XML tags:\n"
        "<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n'
        "</tool_call><|im_end|>\n"
        "<|im_start|>user\n"
        "Tidy up.<|im_end|>\n"
        "<|im_start|>assistant\n"
        "I look.\n"
        "<tool_call>\n"
        '{"name": "look", "arguments": {"at": "/a", "all": true}}\n'
        "</tool_call>\n"
        "<tool_call>\n"
        '{"name": "look", "arguments": {}}\n'
        "</tool_call><|im_end|>\n"
        "<|im_start|>user\n"
        "<tool_response>\n"
        "a.log\n"
        "</tool_response>\n"
        "<tool_response>\n"
        "(empty)\n"
        "</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
        "Done.<|im_end|>"
    )


def test_each_piece_of_a_turn(renderer):
    assert renderer.decode(renderer.prompt_ids([SYSTEM, USER], [])) == (
        "<|im_start|>system\nYou are an agent.<|im_end|>\n<|im_start|>user\nTidy up.<|im_end|>\n<|im_start|>assistant\n"
    )
    call = calls(("finish", {}))
    spoken = renderer.assistant_ids(call)
    assert renderer.decode(spoken) == '<tool_call>\n{"name": "finish", "arguments": {}}\n</tool_call><|im_end|>'
    assert spoken[-1] == renderer.end_of_turn_id
    assert renderer.end_of_turn_id not in spoken[:-1]
    assert renderer.decode(renderer.observation_ids([reply("ok")])) == (
        "\n<|im_start|>user\n<tool_response>\nok\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_observations_that_differ_have_other_ids(renderer):
    pairs = [([reply("a"), reply("b")], [reply("a\x00b")]), ([reply("a")], [{"role": "user", "content": "a"}])]
    for one, other in pairs:
        assert renderer.observation_ids(one) != renderer.observation_ids(other)


def test_ids_become_a_message_and_the_same_ids_again(renderer):
    for message in (calls(("look", {"at": "ü"}), ("look", {})), calls(("look", {}), content="I look."), says("Done.")):
        text = renderer.decode(renderer.assistant_ids(message)[:-1])
        made = renderer.assistant_message(text, renderer.parse(text), "call-1")
        assert renderer.assistant_ids(made) == renderer.assistant_ids(message)
        ids = [call["id"] for call in made.get("tool_calls", [])]
        assert ids == [f"call-1-{i}" for i in range(len(ids))]


def test_a_malformed_turn_keeps_its_text(renderer):
    text = 'x <tool_call>{"name": "a", "arguments": {}}</tool_call> <tool_call>{'
    parsed = renderer.parse(text)
    assert parsed.calls[0] == ParsedCall("a", {}) and parsed.calls[1].malformed
    made = renderer.assistant_message(text, parsed, "call-1")
    assert made == {"role": "assistant", "content": text, WELL_FORMED: [["a", {}]]}
    alone = renderer.assistant_message("<tool_call>{", renderer.parse("<tool_call>{"), "call-1")
    assert alone == {"role": "assistant", "content": "<tool_call>{"}


@given(text=st.text())
def test_any_text_survives_the_round_trip(renderer, text):
    assert renderer.decode(renderer.tokenizer.encode(text, add_special_tokens=False)) == text


@given(data=st.data())
def test_text_between_known_pieces_survives_the_round_trip(renderer, data):
    pieces = sorted(renderer.tokenizer.get_added_vocab())
    text = "".join(data.draw(st.lists(st.sampled_from(pieces) | st.text(max_size=3), max_size=6)))
    assert renderer.decode(renderer.tokenizer.encode(text, add_special_tokens=False)) == text


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool["function"]["name"])
def test_the_head_of_a_call_is_one_token(renderer, tool):
    function = tool["function"]
    required = function["parameters"]["required"]
    head = f'<tool_call>\n{{"name": "{function["name"]}", "arguments": '
    head += f'{{"{required[0]}": "' if required else "{}}\n</tool_call>"
    assert len(renderer.tokenizer.encode(head, add_special_tokens=False)) == 1


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool["function"]["name"])
def test_a_call_head_is_a_prefix_of_real_calls(renderer, tasks, tool):
    """The head is a prefix of all the tool's real calls, and has no end of turn."""
    name = tool["function"]["name"]
    head = renderer.call_head(tool)
    spoken = [renderer.assistant_ids(calls((name, args))) for task in tasks for said, args in solution(task) if said == name]
    assert spoken or name == "read_file"
    assert head and renderer.end_of_turn_id not in head
    assert all(ids[: len(head)] == head and len(ids) > len(head) for ids in spoken)


@pytest.mark.parametrize(
    ("parameters", "begins"),
    [
        ({"properties": {"n": {"type": "integer"}}, "required": ["n"]}, '{"n": '),
        ({"properties": {"n": {"type": ["integer", "null"]}}, "required": ["n"]}, '{"n'),  # '": "' is one token, too
        ({"properties": {"on": {"type": "boolean"}, "x": {"type": "string"}}, "required": ["on", "x"]}, '{"on": '),
        ({"properties": {"a": {"type": "string"}, "b": {"type": "array"}}}, ""),  # "{}}" is one token
        ({"properties": {"x": {}}, "required": ["x"]}, '{"x'),
        ({"properties": {"x": {"type": "string"}}, "required": ["x"]}, '{"x": "'),
        ({}, "{}}\n</tool_call>"),
        (None, "{}}\n</tool_call>"),
    ],
)
def test_a_call_head_is_common_to_all_calls(renderer, parameters, begins):
    function = {"name": "look"} if parameters is None else {"name": "look", "parameters": parameters}
    head = renderer.decode(renderer.call_head({"type": "function", "function": function}))
    assert head == '<tool_call>\n{"name": "look", "arguments": ' + begins


OPENING = "<|im_start|>assistant\\n"
REWRITES = {
    "drops what was said": "'" + OPENING + "' + ('' if messages[-1].role == 'tool' else message.content)",
    "thinks in the last turn only": "'" + OPENING + "' + ('<think></think>' if loop.last else '') + message.content",
    "counts the messages": "'" + OPENING + "' ~ messages|length ~ message.content",
}


@pytest.mark.parametrize("rewritten", REWRITES.values(), ids=REWRITES)
def test_a_template_that_rewrites_history_is_refused(renderer, rewritten):
    tokenizer = copy.deepcopy(renderer.tokenizer)
    tokenizer.chat_template = (
        "{%- for message in messages -%}{%- if message.role == 'assistant' -%}{{- " + rewritten + " + '<|im_end|>\\n' -}}"
        "{%- else -%}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}{%- endif -%}"
        "{%- endfor -%}{%- if add_generation_prompt -%}{{- '" + OPENING + "' -}}{%- endif -%}"
    )
    with pytest.raises(ConfigError, match="rewrites earlier turns"):
        ChatRenderer(tokenizer).observation_ids([reply("ok")])


def test_an_unsuitable_tokenizer_is_an_error(renderer):
    with pytest.raises(ConfigError, match="no tool format is called 'morse'"):
        ChatRenderer(renderer.tokenizer, "morse")
    silent, endless = copy.deepcopy(renderer.tokenizer), copy.deepcopy(renderer.tokenizer)
    silent.chat_template = None
    with pytest.raises(ConfigError, match="no chat template"):
        ChatRenderer(silent)
    endless.eos_token = None
    with pytest.raises(ConfigError, match="no end-of-turn token"):
        ChatRenderer(endless)
