"""The form that a program gives the answer: the vendors' `response_format`, `text.format` and `output_config.format`."""

from __future__ import annotations

import json
from typing import Any

from tracewheel.gateway.dialects.fields import Fields, wrong_value
from tracewheel.gateway.exchange import AnswerForm

KINDS = ("text", "json_object", "json_schema")
OBJECT: dict[str, Any] = {"type": "object"}


def openai_form(given: Fields | None, *, nested: bool) -> AnswerForm | None:
    """OpenAI's form; None for any text.

    Args:
        given: The field.
        nested: Whether the schema stands in an object of its own, as in Chat Completions, or beside the type.

    Raises:
        Refusal: it is none of the protocol's.
    """
    if given is None or (kind := given.text("type")) == "text":
        return None
    if kind not in KINDS:
        raise wrong_value(kind, KINDS, given.at("type"))
    if kind == "json_object":
        return AnswerForm(json.dumps(OBJECT), given.path)
    holder = given.needed("json_schema") if nested else given
    holder.text("name")
    holder.flag("strict")
    return _schema(holder)


def anthropic_form(fields: Fields) -> AnswerForm | None:
    """Anthropic's form, by its present and its former name; None for any text.

    Raises:
        Refusal: it is none of the protocol's.
    """
    output = fields.inner("output_config")
    given = (output.inner("format") if output is not None else None) or fields.inner("output_format")
    if given is None:
        return None
    if given.text("type") != "json_schema":
        raise wrong_value(given.text("type"), ["json_schema"], given.at("type"))
    given.needed("schema")
    return _schema(given)


def _schema(holder: Fields) -> AnswerForm:
    schema = holder.inner("schema")
    return AnswerForm(json.dumps(OBJECT if schema is None else schema.value), holder.at("schema"))
