"""The Hermes parser on a table of turns and on arbitrary text."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.chat.hermes import ParsedCall, ParsedTurn, parse_hermes

CASES = json.loads((Path(__file__).parent / "hermes_cases.json").read_text())
BLOCK_PARTS = (
    "<tool_call>",
    "</tool_call>",
    '{"name": "a"',
    ', "arguments": ',
    "{",
    "}",
    '"',
    "\\",
    "\\ud800",
    "9" * 5000,
    "[" * 3000,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_parsing_of_the_case_table(case):
    assert parse_hermes(case["text"]) == ParsedTurn(case["content"], [ParsedCall(**call) for call in case["calls"]])


@given(st.text(min_size=1), st.dictionaries(st.text(), json_values, max_size=4))
def test_a_rendered_call_parses_to_the_same_call(name, arguments):
    # Escaping the angle brackets keeps a value from closing the block; JSON readers undo it.
    block = json.dumps({"name": name, "arguments": arguments}).replace("<", "\\u003c")
    assert parse_hermes(f"<tool_call>\n{block}\n</tool_call>").calls == [ParsedCall(name, arguments)]


@given(st.lists(st.sampled_from(BLOCK_PARTS) | st.text(max_size=8), max_size=12).map("".join))
def test_parsing_never_raises_and_gives_storable_calls(text):
    for call in parse_hermes(text).calls:
        assert call.malformed or call.name is not None
        json.dumps([call.name, call.arguments], ensure_ascii=False, allow_nan=False).encode()
