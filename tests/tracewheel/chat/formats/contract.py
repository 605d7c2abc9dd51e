"""What every tool-call format promises, as tests of a format by name; and chat templates that write one.

A file of tests imports them, and a fixture `name` of its module says of which formats: of the core, or of a wheel.
"""

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.timing import cpu_seconds
from tracewheel.chat.formats import ParsedCall, ParsedTurn, UnwritableCallError, make_format

JSON_PIECES = ('{"name": "a"', ', "arguments": ', "{", "}", '"', "\\", "\\ud800", "9" * 5000, "[" * 3000)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
PLAIN_NAMES = ("deepseek", "gpt_oss", "pythonic", "qwen3_coder")  # others write any name
TOOLS = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
REPLIES = "{% elif m.role == 'tool' %}<r>{{ m.content }}</r>"
EACH = "{% for call in m.tool_calls %}{% set f = call.function %}"
ALPHABET = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}


def template(writes, tools=TOOLS, replies=REPLIES):
    return (
        f"{tools}{{% for m in messages %}}{{% if m.tool_calls %}}<a>{writes}<|end|>{{% elif m.role == 'assistant' %}}"
        f"<a>{{{{ m.content }}}}<|end|>{replies}{{% else %}}<u>{{{{ m.content }}}}{{% endif %}}{{% endfor %}}"
        "{% if add_generation_prompt %}<a>{% endif %}"
    )


def tokenizer_of(chat_template):
    """A tokenizer of bytes with that template."""
    tokenizer = Tokenizer(models.BPE(vocab=ALPHABET, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", chat_template=chat_template)


def case_table(folder, names):
    """A parameter `name` and `case` for each turn in the tables of these formats."""
    cases = [(name, case) for name in names for case in json.loads((folder / f"cases_{name}.json").read_text())]
    return pytest.mark.parametrize(("name", "case"), cases, ids=[f"{name}: {case['name']}" for name, case in cases])


def check_case(name, case):
    expected = ParsedTurn(case["content"], [ParsedCall(**call) for call in case["calls"]], case.get("thinking", ""))
    assert make_format(name).parse(case["text"], case.get("tools", ())) == expected


def tools_of(calls):
    """Schemas that say what the arguments of calls are, for formats that write them as plain text."""
    kinds = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null"}
    properties = {call.name: {} for call in calls}
    for call in calls:
        properties[call.name] |= {key: {"type": kinds.get(type(value), "string")} for key, value in call.arguments.items()}
    return [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": given}}}
        for name, given in properties.items()
    ]


def frames(name):
    made = make_format(name)
    return (*made.CALL_FRAMES, *made.REPLY_FRAMES, *made.END_TOKENS, "<think>", "</think>", "[THINK]", "[/THINK]")


@settings(max_examples=40)
@given(data=st.data())
def test_a_rendered_call_parses_to_the_same_call(name, data):
    words = st.text("ab_é", min_size=1, max_size=4) if name in PLAIN_NAMES else st.text(min_size=1, max_size=6)
    hostile = st.lists(st.sampled_from(frames(name)) | st.text(max_size=3), max_size=4).map("".join)
    arguments = st.dictionaries(words, json_values | hostile, max_size=4)
    calls = [
        ParsedCall(called, given) for called, given in data.draw(st.lists(st.tuples(words, arguments), min_size=1, max_size=3))
    ]
    made = make_format(name)
    try:
        text = made.render(calls)
    except UnwritableCallError:
        assume(False)
    assert made.parse(text, tools_of(calls)) == ParsedTurn("", calls)


ARGUMENTS = {"path": "/a b", "text": "é\n\"quoted\" 'too' \\ </tag> {}[]", "n": -3, "x": 0.5, "on": True, "none": None}
NESTED = {"list": [1, {"two": ["3", None]}], "empty": {}}


def test_ordinary_calls_are_written_and_read(name):
    calls = [ParsedCall("list_files", ARGUMENTS), ParsedCall("get_it", NESTED), ParsedCall("finish")]
    assert make_format(name).parse(make_format(name).render(calls), tools_of(calls)) == ParsedTurn("", calls)


def test_control_texts_inside_an_argument_stay_there_or_are_refused(name):
    made, refused = make_format(name), 0
    for frame in frames(name):
        calls = [ParsedCall("write", {"text": f"a {frame} b"}), ParsedCall("finish")]
        try:
            assert made.parse(made.render(calls), tools_of(calls)) == ParsedTurn("", calls)
        except UnwritableCallError:
            refused += 1
    assert refused == 0


@settings(max_examples=60)
@given(data=st.data())
def test_parsing_never_raises_and_gives_storable_calls(name, data):
    pieces = st.sampled_from((*frames(name), *JSON_PIECES)) | st.text(max_size=8)
    text = data.draw(st.lists(pieces, max_size=12).map("".join))
    for call in make_format(name).parse(text).calls:
        assert not (call.malformed and (call.name or call.arguments))
        json.dumps([call.name, call.arguments], ensure_ascii=False, allow_nan=False).encode()


def test_a_long_turn_of_rubbish_is_read_at_once(name):
    made = make_format(name)
    for piece in (*frames(name), '{"', "[", '{"name": "', "<tool_call>{", "[TOOL_CALLS]{", "[a(", "[a(b=[", "<think>"):
        turn = piece * (100_000 // len(piece))
        assert cpu_seconds(lambda turn=turn: made.parse(turn), 1.0) < 1.0, f"100 KB of {piece!r}"
