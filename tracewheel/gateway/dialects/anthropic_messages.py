"""The messages of a request of Anthropic's API: blocks become OpenAI's messages."""

from __future__ import annotations

from typing import Any

from tracewheel.gateway.dialects.fields import Fields, refuse, wrong_type, wrong_value
from tracewheel.gateway.dialects.messages import assistant, call, part_text, text_of, tool_reply
from tracewheel.gateway.exchange import Message
from tracewheel.traces.readers.content import arguments_text

WRAPPED = "INVALID_JSON"  # the key under which the vendor advises to send back arguments that are no object
BILLING = "x-anthropic-billing-header:"
ROLES = ("user", "assistant", "system")


def system_text(fields: Fields) -> str:
    """The system prompt, a text or blocks.

    Claude Code's block for billing is left out, as by the vendor: it changes with each request, so that no two histories
    would begin alike.
    """
    system = fields.get("system")
    if not isinstance(system, list):
        return text_of(fields, "system")
    texts = [part_text(part) for part in fields.objects("system")]
    return "".join(text for text in texts if not text.startswith(BILLING))


def read_messages(fields: Fields) -> list[Message]:
    """The messages in one form. The vendor's combine where an assistant's follow each other, and so do these.

    Raises:
        Refusal: there are none, one is wrong, or the last one is the assistant's.
    """
    if fields.get("messages") is None:
        raise fields.missing("messages")
    messages: list[Message] = []
    pending: list[_Turn] = []
    last = ""
    for message in fields.objects("messages"):
        last = message.text("role")
        if last not in ROLES:
            raise wrong_value(last, ROLES, message.at("role"))
        if last == "assistant":
            turn = pending[0] if pending else _Turn()
            turn.add(message)
            pending = [turn]
            continue
        messages += [turn.message() for turn in pending]
        pending = []
        messages += _said_by_user(message) if last == "user" else [{"role": last, "content": text_of(message, "content")}]
    if not last:
        raise refuse("at least one message is required", "messages")
    if pending:
        text = "This model does not support assistant message prefill. The conversation must end with a user message."
        raise refuse(text, "messages")
    return messages


class _Turn:
    """What the assistant said, from one or several messages."""

    def __init__(self) -> None:
        self._text, self._thought, self._calls = "", "", list[dict[str, Any]]()

    def add(self, message: Fields) -> None:
        """Add a message's blocks."""
        for block in _blocks(message):
            if isinstance(block, str):
                self._text += block
                continue
            match block.text("type"):
                case "thinking":
                    self._thought += block.text("thinking")
                case "redacted_thinking":
                    raise refuse("this endpoint has made no redacted thinking, and cannot read it", block.at("type"))
                case "tool_use":
                    self._calls.append(call(block.text("id"), block.text("name"), _arguments(block.needed("input"))))
                case _:
                    self._text += part_text(block)

    def message(self) -> Message:
        """The message in one form."""
        return assistant(self._text, self._thought, self._calls)


def _arguments(given: Fields) -> str:
    wrapped = given.get(WRAPPED)
    return wrapped if isinstance(wrapped, str) and len(given.value) == 1 else arguments_text(given.value)


def _said_by_user(message: Fields) -> list[Message]:
    """The results of tools, and after them what the user said."""
    results: list[Message] = []
    texts: list[str] = []
    for block in _blocks(message):
        if isinstance(block, str):
            texts.append(block)
        elif block.text("type") == "tool_result":
            results.append(tool_reply(block.text("tool_use_id"), _result(block)))
        else:
            texts.append(_user_text(block))
    return [*results, {"role": "user", "content": "".join(texts)}] if texts or not results else results


def _blocks(message: Fields) -> list[Fields | str]:
    content = message.get("content")
    if content is None:
        raise message.missing("content")
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise wrong_type(content, "one of a string or array of objects", message.at("content"))
    return list(message.objects("content"))


def _result(block: Fields) -> str:
    """A tool's result; a failure without words says that it is one."""
    if isinstance(block.get("content"), list):
        text = "".join(_user_text(part) for part in block.objects("content"))
    else:
        text = text_of(block, "content")
    return text or ("error" if block.flag("is_error") else "")


def _user_text(block: Fields) -> str:
    """The text of a text block, or of a document that is plain text."""
    if block.text("type") == "document":
        source = block.needed("source")
        if source.text("type") == "text":
            return source.text("data")
        raise wrong_value(source.text("type"), ["text"], source.at("type"))
    return part_text(block)
