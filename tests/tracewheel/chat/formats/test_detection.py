"""The tool-call format of a template is found by rendering a call, in each dialect that templates want."""

import pytest

from tests.tracewheel.chat.formats.contract import EACH, template, tokenizer_of
from tracewheel.chat.formats import FORMATS, ParsedCall, make_format
from tracewheel.chat.formats.detection import Dialect, detect_format, resolve_format, short_id
from tracewheel.chat.renderer import ChatRenderer
from tracewheel.core.errors import ConfigError

WRITES = {
    "hermes": EACH + '<tool_call>\n{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}\n</tool_call>{% endfor %}',
    "pythonic": "[" + EACH + "{{ f.name }}({% for k, v in f.arguments | items %}{{ k }}='{{ v }}'{% endfor %}){% endfor %}]",
}


@pytest.mark.parametrize("name", WRITES)
def test_the_format_of_a_template_is_found(name):
    made, dialect = resolve_format(tokenizer_of(template(WRITES[name])), "auto")
    assert type(made) is FORMATS[name] and dialect == Dialect()


def test_a_template_that_wants_text_arguments_no_words_and_short_ids_gets_them():
    wants = (
        "{% if m.content is not none %}{{ raise_exception('content') }}{% endif %}"
        + EACH
        + "{% if call.id | length != 9 %}{{ raise_exception('id') }}{% endif %}"
        '<tool_call>\n{"name": "{{ f.name }}", "arguments": {{ f.arguments + "" }}}\n</tool_call>{% endfor %}'
    )
    tokenizer = tokenizer_of(template(wants))
    for tool_format in ("auto", "hermes"):
        assert resolve_format(tokenizer, tool_format)[1] == Dialect(text_arguments=True, no_words_as_none=True, short_ids=True)
    renderer = ChatRenderer(tokenizer, "auto")
    function = {"name": "look", "arguments": '{"at": "é"}'}
    call = {"role": "assistant", "tool_calls": [{"id": "call-1-0", "type": "function", "function": function}]}
    text = renderer.decode(renderer.assistant_ids(call)[:-1])
    assert renderer.parse(text).calls == [ParsedCall("look", {"at": "é"})]


def test_a_reply_names_the_short_id_of_its_call():
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "call-1-0", "function": {"name": "f", "arguments": {}}}]}
    dialect = Dialect(short_ids=True)
    given = dialect.prepare(call)["tool_calls"][0]["id"]
    assert given == dialect.prepare({"role": "tool", "tool_call_id": "call-1-0", "content": "ok"})["tool_call_id"]
    assert len(given) == 9 and given.isalnum() and short_id(given) == given and short_id("call-1-1") != given


@pytest.mark.parametrize(
    ("chat_template", "because"),
    [
        (template("").replace("<a><|end|>", "<a>{{ m.content }}<|end|>"), "writes no tool calls; give a chat template"),
        (template("{{ raise_exception('no tools here') }}"), r"writes no tool calls \(no tools here\); give a chat template"),
        (template(WRITES["hermes"], tools=""), "does not show the tools that are offered; give a chat template with tools"),
        (template(WRITES["hermes"], replies="{% elif m.role == 'tool' %}"), "does not show what a tool replies; give a chat"),
        (
            template(WRITES["hermes"], replies="{% elif m.role == 'tool' %}{{ raise_exception('roles') }}"),
            r"refuses a tool's reply \(roles\); give a chat template",
        ),
        (template(EACH + "<call>{{ f.name }}</call>{% endfor %}"), "writes calls in a format that is not known: '<call>probe"),
    ],
    ids=["no calls", "raises", "no tools", "no replies", "replies raise", "another format"],
)
def test_a_template_without_tools_is_refused_with_what_to_set(chat_template, because):
    with pytest.raises(ConfigError, match=because):
        ChatRenderer(tokenizer_of(chat_template), "auto")


def test_a_format_of_the_wheel_that_is_not_installed_is_told_where_it_is():
    known = {name: make_format(name) for name in WRITES}
    tokenizer = tokenizer_of(template("[TOOL_CALLS]" + EACH + "{{ f.name }}[ARGS]{{ f.arguments | tojson }}{% endfor %}"))
    with pytest.raises(ConfigError, match="the wheel formats knows .*mistral.*, not installed: pip install tracewheel-formats"):
        detect_format(tokenizer, known)


def test_the_tiny_base_writes_hermes_with_the_same_ids(renderer):
    found = ChatRenderer(renderer.tokenizer, "auto")
    assert type(found.format) is FORMATS["hermes"] and found.end_of_turn_ids == {renderer.end_of_turn_id}
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "list_files", "arguments": '{"path": "/a"}'}}]}
    messages = [{"role": "user", "content": "Tidy up."}, call, {"role": "tool", "content": "b"}, call]
    assert found.conversation_ids(messages, []) == renderer.conversation_ids(messages, [])


def test_qwen3_writes_hermes(real_tokenizer):
    made, dialect = resolve_format(real_tokenizer("qwen3"), "auto")
    assert type(made) is FORMATS["hermes"] and dialect == Dialect()


@pytest.mark.parametrize("name", ["deepseek_v3", "llama3_1", "smollm2"])
def test_a_real_template_without_tools_is_refused(real_tokenizer, name):
    with pytest.raises(ConfigError, match=r"give a chat template with tools: policy\.chat_template"):
        resolve_format(real_tokenizer(name), "auto")
