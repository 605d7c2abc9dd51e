"""Every tool-call format on its table of turns, on calls that it wrote itself, and on arbitrary text."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tracewheel.chat.formats import FORMATS, ParsedCall, ParsedTurn, UnwritableCallError, make_format
from tracewheel.chat.formats.base import ToolFormat, split_thinking
from tracewheel.core.errors import ConfigError

TABLES = {name: Path(__file__).parent / f"cases_{name}.json" for name in FORMATS}
CASES = [(name, case) for name, path in TABLES.items() for case in json.loads(path.read_text())]
JSON_PIECES = ('{"name": "a"', ', "arguments": ', "{", "}", '"', "\\", "\\ud800", "9" * 5000, "[" * 3000)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
PLAIN_NAMES = ("deepseek", "gpt_oss", "pythonic", "qwen3_coder")  # others write any name
each_format = pytest.mark.parametrize("name", FORMATS)


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


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{name}: {case['name']}" for name, case in CASES])
def test_parsing_of_the_case_table(name, case):
    expected = ParsedTurn(case["content"], [ParsedCall(**call) for call in case["calls"]], case.get("thinking", ""))
    assert make_format(name).parse(case["text"], case.get("tools", ())) == expected


@each_format
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


@each_format
def test_ordinary_calls_are_written_and_read(name):
    calls = [ParsedCall("list_files", ARGUMENTS), ParsedCall("get_it", NESTED), ParsedCall("finish")]
    assert make_format(name).parse(make_format(name).render(calls), tools_of(calls)) == ParsedTurn("", calls)


@each_format
def test_control_texts_inside_an_argument_stay_there_or_are_refused(name):
    made, refused = make_format(name), 0
    for frame in frames(name):
        calls = [ParsedCall("write", {"text": f"a {frame} b"}), ParsedCall("finish")]
        try:
            assert made.parse(made.render(calls), tools_of(calls)) == ParsedTurn("", calls)
        except UnwritableCallError:
            refused += 1
    assert refused == 0


@each_format
@settings(max_examples=60)
@given(data=st.data())
def test_parsing_never_raises_and_gives_storable_calls(name, data):
    pieces = st.sampled_from((*frames(name), *JSON_PIECES)) | st.text(max_size=8)
    text = data.draw(st.lists(pieces, max_size=12).map("".join))
    for call in make_format(name).parse(text).calls:
        assert not (call.malformed and (call.name or call.arguments))
        json.dumps([call.name, call.arguments], ensure_ascii=False, allow_nan=False).encode()


@each_format
def test_a_long_turn_of_rubbish_is_read_at_once(name):
    made = make_format(name)
    for piece in (*frames(name), '{"', "[", '{"name": "', "<tool_call>{", "[TOOL_CALLS]{", "[a(", "[a(b=[", "<think>"):
        start = time.process_time()
        made.parse(piece * (100_000 // len(piece)))
        assert time.process_time() - start < 1.0, f"100 KB of {piece!r}"


@pytest.mark.parametrize(
    ("text", "thinking", "rest"),
    [
        ("<think>\nHm.\n</think>\n\nYes.", "Hm.", "\n\nYes."),
        ("Hm.</think>Yes.", "Hm.", "Yes."),
        ("<think>never closed <tool_call>", "never closed <tool_call>", ""),
        ("<think></think>Yes.", "", "Yes."),
        ("Write <think> and </think>.", "", "Write <think> and </think>."),
        ("CALL write('</think>')", "", "CALL write('</think>')"),
        ("Yes.", "", "Yes."),
    ],
)
def test_thinking_is_split_from_the_rest(text, thinking, rest):
    assert split_thinking(text, "CALL") == (thinking, rest)


def test_an_unknown_format_is_named_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"no tool format is called 'morse'; built in: .*hermes"):
        make_format("morse")


class Shouting(ToolFormat):
    """A format of one's own: `CALL name`."""

    def parse(self, text, tools=()):
        return ParsedTurn("", [ParsedCall(line.removeprefix("CALL ")) for line in text.splitlines()])

    def render(self, calls):
        return "\n".join(f"CALL {call.name}" for call in calls)


def test_a_format_of_ones_own_is_named_by_module_and_class():
    made = make_format(f"{__name__}:Shouting")
    assert made.parse(made.render([ParsedCall("look")])).calls == [ParsedCall("look")]
