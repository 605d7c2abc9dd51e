"""The grammar of a turn whose answer a program wants in the form of a JSON schema.

The turn is thinking, where the template or the vocabulary has it, and then either the answer and nothing else, or calls of the
tools that are offered. Calls and thinking are free. The model is not told of the schema: the program's own prompt says what it
wants.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tracewheel.chat.conversation import call_head
from tracewheel.chat.formats.base import THINK_CLOSE, THINK_OPEN, split_thinking
from tracewheel.chat.grammar import Grammar, GrammarError, GrammarState
from tracewheel.gateway.exchange import AnswerForm, ChatRequest, Refusal

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer

# A small model writes white space for ever where it may. Versions below 1.8, which vLLM asks for, know no pattern of it.
SPACE = r"(\x20|\x0A\x20{0,16})?"
OPTIONS = {"whitespace_flexible": False, "item_separator": f"{SPACE},{SPACE}", "key_separator": f"{SPACE}:{SPACE}"}
PROBE = "{}"


def begun(renderer: ChatRenderer, request: ChatRequest) -> GrammarState | None:
    """The beginning of a request's turn under its grammar; None where it may say anything, or must call a tool.

    Raises:
        Refusal: the schema cannot be held to, or the chat format frames its answers or its calls in a way that hides them.
    """
    form = request.form
    if form is None or request.tool or request.must_call:
        return None
    if request.prefill:
        raise Refusal("invalid_request", "a turn whose form is given cannot begin with words of yours", "messages")
    ends = sorted(renderer.end_of_turn_ids)
    schema = json.loads(form.schema)
    lines = [f"answer: %json {json.dumps({**schema, 'x-guidance': OPTIONS})}"]
    opening = _call_opening(renderer, request, form)
    lines += [f"calls: <[{_listed(opening)}]> <[^{_listed(ends)}]>*"] if opening else []
    said = "(answer | calls)" if opening else "answer"
    thinking = _thinking(renderer, ends)
    grammar = Grammar("\n".join([f"start: {thinking} {said}", *lines]), tuple(ends))
    try:
        return renderer.grammars.start(grammar)
    except GrammarError as error:
        place = ".".join([form.param, *_place(schema, str(error))])
        raise Refusal(
            "invalid_request", f"Invalid schema for '{place}': {error}.", place, code="invalid_json_schema"
        ) from error


def _thinking(renderer: ChatRenderer, ends: list[int]) -> str:
    """What comes before the answer: nothing where the template has closed the thinking, or the vocabulary has no tags."""
    if (
        split_thinking(renderer.decode(renderer.assistant_ids({"role": "assistant", "content": PROBE})[:-1]))[1].strip()
        != PROBE
    ):
        raise Refusal("invalid_request", "the model's chat format frames its answers: their form cannot be given", "model")
    vocabulary = renderer.tokenizer.get_vocab()
    if renderer.thinks == "no" or not {THINK_OPEN, THINK_CLOSE} <= vocabulary.keys():
        return ""
    opening, closing = vocabulary[THINK_OPEN], vocabulary[THINK_CLOSE]
    rest = f"<[^{_listed([closing, *ends])}]>* <[{closing}]> /[ \\n]{{0,4}}/"
    return rest if renderer.thinks == "opened" else f"(<[{opening}]> {rest})?"


def _call_opening(renderer: ChatRenderer, request: ChatRequest, form: AnswerForm) -> list[int]:
    """The tokens that begin a turn which calls one of the tools."""
    opening = sorted({call_head(renderer, json.dumps(tool))[0] for tool in request.tools})
    if any(renderer.decode([token]).lstrip()[:1] in '{["' for token in opening):
        raise Refusal(
            "invalid_request", "in this chat format calls begin as JSON does: offer tools, or give a form", form.param
        )
    return opening


def _listed(ids: list[int]) -> str:
    return ",".join(map(str, ids))


def _place(value: Any, error: str) -> list[str]:
    """The way to the first key or text of a schema that an error names."""
    named = set(re.findall(r'"([^"]+)"', error))
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key in named or (isinstance(inner, str) and key in ("type", "pattern", "format", "$ref") and inner[:40] in error):
            return [key]
        if deeper := _place(inner, error):
            return [key, *deeper]
    for place, inner in enumerate(value) if isinstance(value, list) else ():
        if deeper := _place(inner, error):
            return [str(place), *deeper]
    return []
