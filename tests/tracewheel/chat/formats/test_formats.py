"""The core's tool-call formats on their tables of turns, on calls that they wrote themselves, and on arbitrary text."""

from pathlib import Path

import pytest

from tests.tracewheel.chat.formats.contract import (  # noqa: F401
    case_table,
    check_case,
    test_a_long_turn_of_rubbish_is_read_at_once,
    test_a_rendered_call_parses_to_the_same_call,
    test_control_texts_inside_an_argument_stay_there_or_are_refused,
    test_ordinary_calls_are_written_and_read,
    test_parsing_never_raises_and_gives_storable_calls,
)
from tracewheel.chat.formats import ParsedCall, ParsedTurn, make_format
from tracewheel.chat.formats.base import ToolFormat, split_thinking
from tracewheel.core.errors import ConfigError

NAMES = ("hermes", "pythonic")


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


@case_table(Path(__file__).parent, NAMES)
def test_parsing_of_the_case_table(name, case):
    check_case(name, case)


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
