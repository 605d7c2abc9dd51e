"""A conversation said piece by piece, as SDKs log it one event after another."""

from __future__ import annotations

from typing import Any

from tracewheel import InvalidRecord, as_text, ending, identity_of, tie_calls, tool_call, with_ending


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

    def ended(self, *holders: Any) -> None:
        """If what was said last is a turn of the agent, mark it as one of these objects says that it ended (`ending`)."""
        if self._messages and self._messages[-1]["role"] == "assistant" and (mark := ending(*holders)):
            self._messages = with_ending(self._messages, mark)

    @property
    def has_said(self) -> bool:
        """Whether the agent's current turn has text or calls: what follows is another turn."""
        return self._open and bool(self._messages) and bool(self._messages[-1]["content"] or "tool_calls" in self._messages[-1])

    def messages(self) -> list[dict[str, Any]]:
        """The conversation, with ids made where the log has none: replies go to the open calls of their name in order.

        Turns of the agent whose results all follow the last of them are one: it said something between its calls.
        """
        return tie_calls(_with_parallel_calls(self._messages))


def _with_parallel_calls(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    joined: list[dict[str, Any]] = []
    for position, message in enumerate(messages):
        before = joined[-1] if joined else {}
        if message["role"] == before.get("role") == "assistant" and before.get("tool_calls"):
            replied = {reply.get("tool_call_id") for reply in replies_at_once(messages[position + 1 :])}
            if all(call["id"] in replied for call in before["tool_calls"]):
                joined[-1] = one_turn(before, message)
                continue
        joined.append(message)
    return joined


def one_turn(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two parts of a turn of the agent as one message."""
    texts = {key: "\n\n".join(filter(None, (one.get(key), other.get(key)))) for key in ("content", "reasoning")}
    calls = [*one.get("tool_calls", ()), *other.get("tool_calls", ())]
    turn = {**one, **other, "content": texts["content"] or None}
    return turn | {key: part for key, part in (("tool_calls", calls), ("reasoning", texts["reasoning"])) if part}


def replies_at_once(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    replies = []
    for message in messages:
        if message.get("role") != "tool":
            break
        replies.append(message)
    return replies


def unreadable(what: str, kind: Any) -> InvalidRecord:
    """The error for a part of a message that a text model cannot read, or that no reader knows."""
    return InvalidRecord("content is not text", f"{what} of type {kind!r:.60}")
