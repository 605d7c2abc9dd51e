"""What a key was told: a program may name it, or send it back in a form that lost how it was written."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, TypeVar

from tracewheel.core.strict_json import parse_json
from tracewheel.gateway.exchange import ChatReply, Message

CALLS, RESPONSES, ITEMS = 10_000, 1_000, 20_000  # the most that are kept for a key; the oldest go first
Kept = TypeVar("Kept")


@dataclass(frozen=True)
class StoredResponse:
    """An answer of the responses API: its conversation up to its own message, and its body."""

    history: list[Message]
    body: dict[str, Any]


class Said:
    """The calls, responses and items that one key was given."""

    def __init__(self) -> None:
        self._arguments: OrderedDict[str, list[str]] = OrderedDict()
        self._responses: OrderedDict[str, StoredResponse] = OrderedDict()
        self._items: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def keep_calls(self, reply: ChatReply) -> None:
        """Keep how the arguments of a reply's calls were written."""
        for call in reply.message.get("tool_calls") or ():
            texts = self._arguments.get(call["id"], [])
            if call["function"]["arguments"] not in texts:
                texts = [*texts, call["function"]["arguments"]]
            _keep(self._arguments, call["id"], texts, CALLS)

    def keep_response(self, body: dict[str, Any], history: list[Message]) -> None:
        """Keep an answer of the responses API; `history` ends with its message."""
        _keep(self._responses, body["id"], StoredResponse(history, body), RESPONSES)
        for item in body["output"]:
            _keep(self._items, item["id"], item, ITEMS)

    def response(self, identity: str) -> StoredResponse | None:
        """A kept answer."""
        return self._responses.get(identity)

    def drop_response(self, identity: str) -> bool:
        """Forget an answer; whether there was one."""
        return self._responses.pop(identity, None) is not None

    def item(self, identity: str) -> dict[str, Any] | None:
        """An item of a kept answer."""
        return self._items.get(identity)

    def restored(self, messages: list[Message]) -> list[Message]:
        """The messages with the arguments of our own calls as they were sampled.

        Some clients parse arguments and write them again, with other spaces, and one dialect has no text of them at all.
        Where the values are the same, the text is again the one that was said.
        """
        return [self._restored(message) if message.get("tool_calls") else message for message in messages]

    def _restored(self, message: Message) -> Message:
        return {**message, "tool_calls": [self._call(call) for call in message["tool_calls"]]}

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        texts = self._arguments.get(call["id"], [])
        if not texts or function["arguments"] in texts:
            return call
        value = _value(function["arguments"])
        same = next((text for text in texts if value is not None and _value(text) == value), function["arguments"])
        return {**call, "function": {**function, "arguments": same}}


def _value(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return None


def _keep(kept: OrderedDict[str, Kept], key: str, value: Kept, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
