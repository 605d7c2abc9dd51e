"""The tool calls of a logged conversation, and the equality of calls."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracewheel.core.strict_json import parse_json
from tracewheel.core.types import content_hash

Message = Mapping[str, Any]
Schema = Mapping[str, Any]
FAILURE = re.compile(
    r"(?i)error|exception|\b(invalid|malformed|not (valid|found|available|exist)|fail(ed|ure)?|pars(e|ing)|could not|unable|"
    r"cannot|unknown|no such|does(n't| not) exist|missing|required)\b"
)
ERROR_BEGINNINGS = ("error", "traceback (most recent call last)")
NUMBERS, NESTED = {"integer", "number"}, {"array", "object"}


@dataclass(frozen=True)
class LoggedCall:
    """A call of a log.

    Attributes:
        name: The tool's name.
        arguments: The parsed arguments; a tool accepts only an object.
        reply: The tool's reply; None where the log has none, because the episode ended with the call.
        message: Position of the assistant message with the call.
    """

    name: str
    arguments: Any
    reply: str | None
    message: int


def calls_in(messages: Sequence[Message]) -> list[LoggedCall]:
    """The calls of a conversation in order, each with its reply.

    A reply belongs to the last earlier call with its id, because some agents restart the numbering in each turn.
    """
    replies: dict[tuple[int, int], str] = {}
    made: dict[str, tuple[int, int]] = {}
    for index, message in enumerate(messages):
        for place, call in enumerate(message.get("tool_calls") or []):
            made[call["id"]] = (index, place)
        if message["role"] == "tool" and (call_id := message.get("tool_call_id")) in made:
            replies[made.pop(call_id)] = message["content"] or ""
    return [
        LoggedCall(
            call["function"]["name"], parsed_arguments(call["function"]["arguments"]), replies.get((index, place)), index
        )
        for index, message in enumerate(messages)
        for place, call in enumerate(message.get("tool_calls") or [])
    ]


def parsed_arguments(arguments: Any) -> Any:
    """Parse arguments. Text that does not parse stays text; empty text is an empty object."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return parse_json(arguments or "{}")
    except ValueError:
        return arguments


def has_broken_call(messages: Iterable[Message]) -> bool:
    """Whether a call's arguments are no JSON object: what the agent wrote is not known, so no template can write it."""
    calls = (call for message in messages for call in message.get("tool_calls") or ())
    return any(not isinstance(parsed_arguments(call["function"]["arguments"]), dict) for call in calls)


def reports_failure(reply: str) -> bool:
    """Whether a reply to a call that no tool could take says so; agents' programs word it in many ways."""
    return is_error(reply) or FAILURE.search(reply[:200]) is not None


def is_error(reply: str) -> bool:
    """Whether a reply reports a failed call, judged by its first word, since logs do not mark failures."""
    return reply.lstrip("<[{\"' ").lower().startswith(ERROR_BEGINNINGS)


def parameters_of(tools: Iterable[Mapping[str, Any]]) -> dict[str, Schema]:
    """The JSON Schema of each tool's parameters, by the tool's name."""
    functions = [tool["function"] for tool in tools]
    return {function["name"]: function.get("parameters") or {} for function in functions}


def exact_key(name: str, arguments: Any) -> str:
    """A key that is equal for the same tool with the same arguments, in any order."""
    return content_hash([name, arguments])


def normalised_key(name: str, arguments: Any, parameters: Mapping[str, Schema]) -> str:
    """A key that is equal for calls that a tool cannot be expected to distinguish; see `normalised`."""
    return content_hash([name, normalised(arguments, parameters.get(name, {}))])


def normalised(value: Any, schema: Schema) -> Any:
    """Normalise an argument, removing differences that a tool is expected to ignore.

    These are Unicode normal forms, leading and trailing whitespace, line endings, runs of spaces in a single line, 3.0 for
    3, null for an optional argument, and an argument equal to its default; and, where the schema asks for a number, a
    boolean, an object or an array, the same value as text. Case is kept, because paths and identifiers may differ by it,
    and so is whitespace within several lines, which may be a program.
    """
    match value:
        case str():
            return _normalised_text(value, schema)
        case bool():
            return value
        case float() if value.is_integer():
            return int(value)
        case list():
            items = schema.get("items")
            return [normalised(item, items if isinstance(items, Mapping) else {}) for item in value]
        case dict():
            return _normalised_object(value, schema)
        case _:
            return value


def _normalised_object(value: dict[str, Any], schema: Schema) -> dict[str, Any]:
    properties, required = schema.get("properties") or {}, schema.get("required") or ()
    kept = {}
    for name, item in value.items():
        own = properties.get(name)
        own = own if isinstance(own, Mapping) else {}
        plain = normalised(item, own)
        is_default = "default" in own and plain == normalised(own["default"], own)
        if name in required or not (plain is None or is_default):
            kept[name] = plain
    return kept


def _normalised_text(value: str, schema: Schema) -> Any:
    text = unicodedata.normalize("NFC", value).replace("\r\n", "\n").strip()
    kinds = schema.get("type")
    kinds = {kinds} if isinstance(kinds, str) else set(kinds or ())
    if "string" not in kinds and kinds & (NUMBERS | NESTED | {"boolean"}):
        try:
            parsed = json.loads(text.lower() if "boolean" in kinds else text)
        except (ValueError, RecursionError):
            return text
        if _is_of(parsed, kinds):
            return normalised(parsed, schema)
    return text if "\n" in text else " ".join(text.split())


def _is_of(value: Any, kinds: set[str]) -> bool:
    match value:
        case bool():
            return "boolean" in kinds
        case int() | float():
            return bool(kinds & NUMBERS)
        case list():
            return "array" in kinds
        case dict():
            return "object" in kinds
        case _:
            return False
