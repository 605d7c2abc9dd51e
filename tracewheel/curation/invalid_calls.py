"""Arguments that a tool's schema does not allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def invalid_argument(arguments: Any, schema: Mapping[str, Any]) -> str:
    """Why a call's arguments violate a JSON Schema of an object, or "".

    Only the first level is checked: required names, unknown names, types and enumerations. The tool itself checks the rest of
    the schema, and its reply is in the log.
    """
    if not isinstance(arguments, dict):
        return "no object"
    properties = schema.get("properties") or {}
    missing = [name for name in schema.get("required") or () if name not in arguments]
    if missing:
        return f"no '{missing[0]}'"
    if schema.get("additionalProperties") is False and (strange := sorted(set(arguments) - set(properties))):
        return f"'{strange[0]}' is no argument"
    for name, value in arguments.items():
        own = properties.get(name)
        if isinstance(own, Mapping) and not _allowed(value, own):
            return f"'{name}' is not what the schema asks for"
    return ""


def _allowed(value: Any, schema: Mapping[str, Any]) -> bool:
    if value is None and schema.get("nullable") is True:
        return True
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(kinds, list) and all(kind in TYPES for kind in kinds) and not any(_is(value, kind) for kind in kinds):
        return False
    choices = schema.get("enum")
    return not isinstance(choices, list) or value in choices


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[kind])
