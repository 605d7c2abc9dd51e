"""Builds a conversation from the parts that SDKs log: what was said, thought, called and replied, one after another."""

from __future__ import annotations

from typing import Any

from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.content import as_text, identity_of, tool_call
from tracewheel.traces.readers.dialects import tie_calls


class Dialogue:
    """A conversation in the making. The agent's text, reasoning and calls go to its current turn, or begin one.

    A turn ends when anyone else speaks, a tool replies, or `end_turn` is called.
    """

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._open = False

    @property
    def turn(self) -> dict[str, Any]:
        """The agent's current turn; a new one if it has ended."""
        if not self._open or not self._messages or self._messages[-1]["role"] != "assistant":
            self._messages.append({"role": "assistant", "content": None})
            self._open = True
        return self._messages[-1]

    def end_turn(self) -> None:
        """Let what the agent says next begin a turn of its own."""
        self._open = False

    def said(self, role: str, text: str) -> None:
        """Add a message of the system, the developer or the user; the agent's is a turn of its own."""
        if role == "assistant":
            self.end_turn()
            self.text(text)
        else:
            self._messages.append({"role": role, "content": text})
        self._open = False

    def text(self, text: str) -> None:
        """Add text to the agent's turn."""
        turn = self.turn
        turn["content"] = (turn["content"] or "") + text

    def thought(self, text: str) -> None:
        """Add reasoning to the agent's turn. None of an empty text: providers log reasoning that they hide."""
        if text:
            turn = self.turn
            turn["reasoning"] = turn.get("reasoning", "") + text

    def called(self, identity: Any, name: Any, arguments: Any) -> None:
        """Add a call to the agent's turn; arguments are an object or JSON text. An id may be missing."""
        self.turn.setdefault("tool_calls", []).append(tool_call(identity_of(identity), name, arguments))

    def replied(self, identity: Any, name: Any, content: Any) -> None:
        """Add a tool's reply; content that is not text becomes JSON text."""
        reply = {"role": "tool", "tool_call_id": identity_of(identity), "content": as_text(content)}
        if isinstance(name, str) and name:
            reply["name"] = name
        self._messages.append(reply)
        self._open = False

    def extend(self, messages: list[dict[str, Any]]) -> None:
        """Add whole messages in chat form."""
        self._messages += messages
        self._open = False

    @property
    def has_text(self) -> bool:
        """Whether the agent's current turn has text and no calls."""
        return (
            self._open
            and bool(self._messages)
            and bool(self._messages[-1]["content"])
            and "tool_calls" not in self._messages[-1]
        )

    def messages(self) -> list[dict[str, Any]]:
        """The conversation, with ids made where the log has none: replies go to the open calls of their name in order."""
        return tie_calls(self._messages)


def unreadable(what: str, kind: Any) -> InvalidRecord:
    """The error for a part of a message that a text model cannot read, or that no reader knows."""
    return InvalidRecord("content is not text", f"{what} of type {kind!r:.60}")
