"""The formats of this wheel on their tables of turns, on calls that they wrote themselves, on arbitrary text; and found."""

from pathlib import Path

import pytest

from tests.tracewheel.chat.formats.contract import (  # noqa: F401
    EACH,
    case_table,
    check_case,
    template,
    test_a_long_turn_of_rubbish_is_read_at_once,
    test_a_rendered_call_parses_to_the_same_call,
    test_control_texts_inside_an_argument_stay_there_or_are_refused,
    test_ordinary_calls_are_written_and_read,
    test_parsing_never_raises_and_gives_storable_calls,
    tokenizer_of,
)
from tracewheel.chat.formats.detection import Dialect, resolve_format
from tracewheel.core.tool_formats import FORMATS

WRITES = {
    "llama3_json": EACH + '{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}{% endfor %}',
    "qwen3_coder": EACH
    + "<tool_call>\n<function={{ f.name }}>\n{% for k, v in f.arguments | items %}<parameter={{ k }}>\n{{ v }}\n</parameter>\n"
    "{% endfor %}</function>\n</tool_call>{% endfor %}",
    "mistral": EACH + "[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}{% endfor %}",
    "deepseek": "<｜tool▁calls▁begin｜>" + EACH + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ f.name }}\n```json\n"
    "{{ f.arguments | tojson }}\n```<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜>",
    "gpt_oss": EACH + "<|channel|>commentary to=functions.{{ f.name }} <|constrain|>json<|message|>{{ f.arguments | tojson }}"
    "{% endfor %}",
}
NAMES = tuple(WRITES)


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


@case_table(Path(__file__).parent, NAMES)
def test_parsing_of_the_case_table(name, case):
    check_case(name, case)


@pytest.mark.parametrize("name", WRITES)
def test_the_format_of_a_template_is_found(name):
    made, dialect = resolve_format(tokenizer_of(template(WRITES[name])), "auto")
    assert type(made) is FORMATS[name] and dialect == Dialect()
