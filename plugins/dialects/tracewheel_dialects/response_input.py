"""The input of a Responses request: items become messages."""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

from tracewheel import Fields, Refusal, Said, ToolCall, chat_message

RESPONSES, KEPT_ITEMS = 1_000, 20_000  # the most that are kept for a key
ROLES = ("user", "assistant", "system", "developer")
ITEMS: tuple[str, ...] = ("message", "reasoning", "function_call", "function_call_output", "item_reference")
ITEMS += ("custom_tool_call", "custom_tool_call_output", "additional_tools")
SEAL = b"tracewheel:"


def sealed(reasoning: str) -> str:
    """Thinking as `encrypted_content`: clients send it back as it is, also where they keep nothing else."""
    return base64.b64encode(SEAL + reasoning.encode()).decode()


class Stored(NamedTuple):
    """An answer: its conversation up to its own message, and its body."""

    history: list[dict[str, Any]]
    body: dict[str, Any]

    def keep(self, said: Said) -> None:
        """Keep it, and its items, for later requests."""
        said.keep("response", self.body["id"], self, RESPONSES)
        for item in self.body["output"]:
            said.keep("item", item["id"], item, KEPT_ITEMS)


def stored(said: Said, identity: str) -> Stored | None:
    """A kept answer."""
    found: Stored | None = said.kept("response", identity)
    return found


def earlier_messages(fields: Fields, said: Said) -> list[dict[str, Any]]:
    """The conversation up to the answer that `previous_response_id` names, without its instructions.

    Raises:
        Refusal: there is no such answer.
    """
    identity = fields.optional_text("previous_response_id")
    if identity is None:
        return []
    found = stored(said, identity)
    if found is None:
        text = f"Previous response with id {identity!r:.80} not found."
        raise Refusal.invalid(text, "previous_response_id", "previous_response_not_found")
    return found.history


def read_input(fields: Fields, said: Said) -> list[dict[str, Any]]:
    """The messages of an input, a text or items. One answer's thinking, text and calls are one message.

    Raises:
        Refusal: there is none, or an item is wrong.
    """
    given = fields.get("input")
    if given is None:
        raise fields.missing("input")
    if isinstance(given, str):
        return [chat_message("user", given)]
    if not isinstance(given, list):
        raise Refusal.wrong_type(given, "one of a string or array of input items", "input")
    reader = _Reader(said)
    for item in fields.objects("input"):
        reader.read(item)
    return reader.finish()


class _Reader:
    """Collects items; `turn` holds what the assistant said since others said something."""

    def __init__(self, said: Said) -> None:
        self._said, self._messages = said, list[dict[str, Any]]()
        self._text: str | None = None
        self._thought, self._calls = "", list[ToolCall]()

    def finish(self) -> list[dict[str, Any]]:
        """The messages."""
        self._end_turn()
        return self._messages

    def read(self, item: Fields) -> None:
        """Add an item."""
        kind = item.optional_text("type") or "message"
        match kind:
            case "item_reference":
                self.read(self._referred(item))
            case "reasoning":
                if self._text is not None or self._calls:
                    self._end_turn()
                self._thought += self._reasoning(item)
            case "function_call":
                self._calls.append(ToolCall(item.text("call_id"), item.text("name"), item.text("arguments")))
            case "custom_tool_call":
                self._calls.append(ToolCall.custom(item.text("call_id"), item.text("name"), item.text("input")))
            case "function_call_output" | "custom_tool_call_output":
                self._end_turn()
                self._messages.append(chat_message("tool", _output(item), call_id=item.text("call_id")))
            case "message":
                self._message(item)
            case "additional_tools":  # they are offered from the beginning
                pass
            case _:
                raise Refusal.wrong_value(kind, ITEMS, item.at("type"))

    def _message(self, item: Fields) -> None:
        role = item.text("role")
        if role not in ROLES:
            raise Refusal.wrong_value(role, ROLES, item.at("role"))
        if item.get("content") is None:
            raise item.missing("content")
        text = item.content("content")
        if role != "assistant":
            self._end_turn()
            self._messages.append(chat_message("system" if role == "developer" else role, text))
        elif self._calls:  # beside calls that wait for their results it is the same turn
            self._text = (self._text or "") + text
        else:
            if self._text is not None:
                self._end_turn()
            self._text = text

    def _referred(self, item: Fields) -> Fields:
        found = self._said.kept("item", item.text("id"))
        if found is None:
            raise Refusal.invalid(f"Item with id {item.text('id')!r:.80} not found.", "input", "item_not_found")
        return Fields(found, item.path)

    def _reasoning(self, item: Fields) -> str:
        """An item's thinking: what we sealed, or its text; what only has an id is looked up."""
        seal = item.optional_text("encrypted_content")
        if seal is not None and (thought := _unsealed(seal)) is not None:
            return thought
        for name in ("content", "summary"):
            if texts := [part.text("text") for part in item.objects(name)]:
                return ("" if name == "content" else "\n\n").join(texts)
        kept = self._said.kept("item", item.optional_text("id") or "")
        return "".join(part["text"] for part in (kept or {}).get("content") or ())

    def _end_turn(self) -> None:
        if self._text is not None or self._calls or self._thought:
            said = chat_message("assistant", self._text or "", reasoning=self._thought, calls=self._calls)
            self._messages.append(said)
        self._text, self._thought, self._calls = None, "", []


def _unsealed(seal: str) -> str | None:
    try:
        raw = base64.b64decode(seal, validate=True)
        return raw.removeprefix(SEAL).decode() if raw.startswith(SEAL) else None
    except (binascii.Error, ValueError):
        return None


def _output(item: Fields) -> str:
    if item.get("output") is None:
        raise item.missing("output")
    return item.content("output")
