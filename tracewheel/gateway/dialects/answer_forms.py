"""The form that a program gives the answer, in each vendor's words."""

from __future__ import annotations

import json
from typing import Any

from tracewheel.gateway.dialects.fields import Fields, unsupported, wrong_value
from tracewheel.gateway.exchange import AnswerForm

KINDS = ("text", "json_object", "json_schema")
OBJECT: dict[str, Any] = {"type": "object"}
JSON, PLAIN = "application/json", "text/plain"
GEMINI_SCHEMAS = ("responseJsonSchema", "_responseJsonSchema", "responseSchema")
OPENAPI_ONLY = {"nullable", "propertyOrdering", "example", "format"}  # not of JSON Schema, or with other values there


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


def gemini_form(config: Fields) -> AnswerForm | None:
    """Gemini's form, of its `generationConfig`; None for any text.

    Raises:
        Refusal: it is none of the protocol's, or of a kind that is not had here.
    """
    mime = config.optional_text("responseMimeType") or PLAIN
    name = next((name for name in GEMINI_SCHEMAS if config.get(name) is not None), None)
    if config.get("responseFormat") is not None or mime not in (JSON, PLAIN):
        at = config.at("responseFormat" if mime in (JSON, PLAIN) else "responseMimeType")
        raise unsupported(f"an answer is text, or {JSON} with a schema", at)
    if mime == PLAIN:
        if name is not None:
            raise wrong_value(mime, [JSON], config.at("responseMimeType"))
        return None
    if name is None:
        return AnswerForm(json.dumps({"type": ["object", "array"]}), config.at("responseMimeType"))
    schema = config.get(name)  # as it is: `inner` would rename its properties
    if not isinstance(schema, dict):
        raise wrong_value(schema, ["a schema"], config.at(name))
    return AnswerForm(json.dumps(_from_openapi(schema) if name == "responseSchema" else schema), config.at(name))


def _from_openapi(schema: Any) -> Any:
    """A schema of Google's (a subset of OpenAPI 3.0's, types in capitals) as JSON Schema."""
    if not isinstance(schema, dict):
        return schema
    made = {name: value for name, value in schema.items() if name not in OPENAPI_ONLY}
    if isinstance(kind := made.get("type"), str):
        made["type"] = [kind.lower(), "null"] if schema.get("nullable") else kind.lower()
    if isinstance(named := made.get("properties"), dict):
        made["properties"] = {name: _from_openapi(one) for name, one in named.items()}
    if isinstance(several := made.get("anyOf"), list):
        made["anyOf"] = [_from_openapi(one) for one in several]
    return {**made, "items": _from_openapi(made["items"])} if "items" in made else made


def _schema(holder: Fields) -> AnswerForm:
    schema = holder.inner("schema")
    return AnswerForm(json.dumps(OBJECT if schema is None else schema.value), holder.at("schema"))
