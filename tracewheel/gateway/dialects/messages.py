"""Messages as all dialects make them: one form, so that what was said and comes back is the same message again."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tracewheel.gateway.dialects.fields import Fields, refuse, wrong_type
from tracewheel.gateway.exchange import Message
from tracewheel.traces.readers.tools import as_tools

TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


def call(identity: str, name: str, arguments: str) -> dict[str, Any]:
    """A tool call."""
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(text: str, reasoning: str = "", calls: list[dict[str, Any]] | None = None) -> Message:
    """An assistant message: no content beside calls is None, and keys without a value are absent."""
    message: Message = {"role": "assistant", "content": (text or None) if calls else text}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def said(message: Message) -> Message:
    """What a program gets to see of a reply's message, and so what comes back of it."""
    calls = [call(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in message.get("tool_calls") or ()]
    return assistant(message.get("content") or "", message.get("reasoning_content") or "", calls)


def tool_reply(call_id: str, content: str) -> Message:
    """What a tool answered."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def text_of(fields: Fields, name: str) -> str:
    """A content: a text, or parts of text, which are joined.

    Raises:
        Refusal: it holds a part that is not text.
    """
    content = fields.get(name)
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise wrong_type(content, "one of a string or array of objects", fields.at(name))
    return "".join(part_text(part) for part in fields.objects(name))


def part_text(part: Fields) -> str:
    """The text of a content part.

    Raises:
        Refusal: the part is an image, audio, a file, or unknown.
    """
    kind = part.text("type")
    if kind not in TEXT_PARTS:
        text = f"Invalid value: {kind!r:.80}. This model reads text only; supported values are: 'text'."
        raise refuse(text, part.at("type"), "invalid_value")
    return part.text("refusal" if kind == "refusal" else "text")


def checked_tools(tools: list[dict[str, Any]], name: str = "tools") -> list[dict[str, Any]]:
    """Tools of any vendor's form in OpenAI's.

    Raises:
        Refusal: two have the same name.
    """
    shaped = as_tools(tools)
    if len(shaped) != len(tools):
        raise refuse(f"Invalid '{name}': tool names must be unique.", name, "invalid_value")
    return [{**tool, "function": _shown(tool["function"])} for tool in shaped]


def _shown(function: dict[str, Any]) -> dict[str, Any]:
    """A function as the model is shown it: `strict` asks the server to decode in some way, and is no part of the tool."""
    return {name: value for name, value in function.items() if name != "strict"}


def check_calls(messages: list[Message], param: str) -> None:
    """Check that replies of tools follow their calls and that each call has its reply, as the vendors do.

    Raises:
        Refusal: they do not.
    """
    open_calls: Counter[str] = Counter()
    for message in messages:
        if message["role"] == "tool":
            if not open_calls[message["tool_call_id"]]:
                found = message["tool_call_id"]
                raise refuse(f"No tool call found for the tool output with id {found!r:.80} in the message before.", param)
            open_calls[message["tool_call_id"]] -= 1
            if not open_calls[message["tool_call_id"]]:
                del open_calls[message["tool_call_id"]]
            continue
        if open_calls:
            break
        open_calls = Counter(one["id"] for one in message.get("tool_calls") or ())
    if open_calls:
        missing = ", ".join(open_calls.elements())[:200]
        raise refuse(
            f"No tool output found for these tool calls, which must be answered by the next messages: {missing}.", param
        )
