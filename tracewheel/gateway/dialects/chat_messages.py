"""The messages of a Chat Completions request."""

from __future__ import annotations

from typing import Any

from tracewheel.gateway.dialects.fields import Fields, refuse, unsupported, wrong_value
from tracewheel.gateway.dialects.messages import assistant, call, text_of, tool_reply
from tracewheel.gateway.exchange import Message

ROLES = ("system", "developer", "user", "assistant", "tool")
REASONING = ("reasoning_content", "reasoning")  # the second is what newer servers call it


def read_messages(fields: Fields) -> list[Message]:
    """The messages in one form; `developer` is the newer name of `system`.

    Raises:
        Refusal: there are none, or one is wrong.
    """
    messages = [_read(message) for message in fields.objects("messages")]
    if fields.get("messages") is None:
        raise fields.missing("messages")
    if not messages:
        raise refuse("Invalid 'messages': empty array. Expected an array with minimum length 1.", "messages", "empty_array")
    return messages


def _read(message: Fields) -> Message:
    role = message.text("role")
    if role not in ROLES:
        raise wrong_value(role, ROLES, message.at("role"))
    if role == "assistant":
        return _assistant(message)
    if message.get("content") is None:
        raise message.missing("content")
    content = text_of(message, "content")
    if role == "tool":
        return tool_reply(message.text("tool_call_id"), content)
    made: Message = {"role": "system" if role == "developer" else role, "content": content}
    if name := message.optional_text("name"):
        made["name"] = name
    return made


def _assistant(message: Fields) -> Message:
    for name in ("audio", "function_call"):
        if message.get(name) is not None:
            raise unsupported("not supported by this endpoint", message.at(name))
    calls = [_call(one) for one in message.objects("tool_calls")]
    if message.get("content") is None and not calls and message.get("refusal") is None:
        raise message.missing("content")
    text = text_of(message, "content") or message.optional_text("refusal") or ""
    return assistant(text, _reasoning(message), calls)


def _reasoning(message: Fields) -> str:
    return next((found for name in REASONING if (found := message.optional_text(name))), "")


def _call(one: Fields) -> dict[str, Any]:
    if one.choice("type", ["function"]) is None:
        raise one.missing("type")
    function = one.needed("function")
    return call(one.text("id"), function.text("name"), function.text("arguments"))
