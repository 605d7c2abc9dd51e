"""The histories that a program sends back: which of the policy's turns are in them, and where they part from those before.

A history is a sequence of items: the number of a turn for each assistant message that the policy said, and the text of a key
for each other message. An assistant message is the policy's if it is the reply as it was given: its content, its thinking, its
calls with their ids. Arguments may be written with other white space. Everything else is an edit, and begins a branch.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tracewheel.core.types import BranchReason
from tracewheel.gateway.exchange import Message

THINKING = "reasoning_content"
Item = str | int


@dataclass(frozen=True)
class History:
    """A program's history, read.

    Attributes:
        items: One for each message.
        tools: The tools offered, as JSON text.
        agent: The name of the agent that asks.
        after: The turn whose conversation this continues unchanged; None where there is none.
        reason: Why it parts from all histories before; None where it continues the branch of `after`.
    """

    items: tuple[Item, ...]
    tools: str
    agent: str
    after: int | None = None
    reason: BranchReason | None = ""

    @property
    def foreign(self) -> int:
        """How many of its assistant messages the policy did not say."""
        return sum(isinstance(item, str) and item.startswith(_ASSISTANT) for item in self.items)


@dataclass(frozen=True)
class _Turn:
    """A turn: the history before it, its reply's key, and the numbers of the turns that continued from it."""

    before: History
    key: str
    next: list[int] = field(default_factory=list)


class Histories:
    """All histories of one program so far."""

    def __init__(self) -> None:
        self._turns: list[_Turn] = []
        self._by_key: dict[str, list[int]] = {}

    def read(self, messages: Sequence[Message], tools: str, agent: str) -> History:
        """Find the policy's turns in a history, and where it continues."""
        items: list[Item] = []
        for message in messages:
            items.append(self._item(message, tuple(items), tools))
        history = History(tuple(items), tools, agent)
        after = self._continued(history)
        return History(history.items, tools, agent, after, self._reason(history, after))

    def add(self, history: History, reply: Message) -> int:
        """Add the policy's turn after a history. Returns its number."""
        number, key = len(self._turns), _key(reply)
        self._turns.append(_Turn(history, key))
        self._by_key.setdefault(key, []).append(number)
        if history.after is not None:
            self._turns[history.after].next.append(number)
        return number

    def _item(self, message: Message, before: tuple[Item, ...], tools: str) -> Item:
        key = _key(message)
        said = self._by_key.get(key, [])
        here = [number for number in said if self._turns[number].before.items == before]
        here = [number for number in here if self._turns[number].before.tools == tools] or here
        return (here or said)[-1] if said else key

    def _continued(self, history: History) -> int | None:
        numbers = [at for at, item in enumerate(history.items) if isinstance(item, int)]
        if not numbers:
            return None
        last = history.items[numbers[-1]]
        assert isinstance(last, int)
        before = self._turns[last].before
        return last if (before.items, before.tools) == (history.items[: numbers[-1]], history.tools) else None

    def _reason(self, history: History, after: int | None) -> BranchReason | None:
        if not self._turns:
            return ""
        same = [turn for turn in self._turns if (turn.before.items, turn.before.tools) == (history.items, history.tools)]
        if same:
            return "retry" if any(turn.before.agent == history.agent for turn in same) else "sub_agent"
        foreign_after = after is not None and _has_foreign(history.items[_place(history.items, after) :])
        if after is not None and not foreign_after:
            turn = self._turns[after]
            if turn.before.agent != history.agent:
                return "sub_agent"
            return "parallel" if turn.next else None
        return self._parting(history)

    def _parting(self, history: History) -> BranchReason:
        """Why a history parts that continues no turn: from its first difference with the one that it shares most with."""
        shared, number = max((self._shared(history, number), number) for number in range(len(self._turns)))
        turn = self._turns[number]
        whole: tuple[Item, ...] = (*turn.before.items, number)
        other_tools = turn.before.tools != history.tools
        if turn.before.agent != history.agent or (other_tools and not any(isinstance(item, int) for item in history.items)):
            return "sub_agent"
        if shared == len(whole):
            return "tools_changed" if other_tools else "edited"
        if shared == len(history.items):
            return "parallel"
        theirs, mine = whole[shared], history.items[shared]
        if isinstance(theirs, int):
            if isinstance(mine, str) and mine.startswith(_ASSISTANT):
                return "thinking_stripped" if _unthought(mine) == _unthought(self._turns[theirs].key) else "edited"
            return "compaction"
        if any(isinstance(item, int) for item in history.items[shared:]):
            return "compaction"
        if shared == 0 and _SYSTEM in (theirs[: len(_SYSTEM)], str(mine)[: len(_SYSTEM)]):
            return "sub_agent"
        return "parallel" if shared and isinstance(whole[shared - 1], int) else "new_conversation"

    def _shared(self, history: History, number: int) -> int:
        whole: tuple[Item, ...] = (*self._turns[number].before.items, number)
        return next(
            (at for at, (one, other) in enumerate(zip(whole, history.items, strict=False)) if one != other),
            min(len(whole), len(history.items)),
        )


def _key(message: Message) -> str:
    """Equal for messages that say the same to the model."""
    said: list[Any] = [message["role"], message.get("content") or ""]
    if message["role"] == "assistant":
        said += [message.get(THINKING) or "", [_call_key(call) for call in message.get("tool_calls") or []]]
    else:
        said += [message.get("tool_call_id"), message.get("name")]
    return json.dumps(said, ensure_ascii=False)


_ASSISTANT, _SYSTEM = '["assistant"', '["system"'


def _call_key(call: dict[str, Any]) -> list[Any]:
    function = call["function"]
    arguments = function["arguments"]
    with contextlib.suppress(ValueError, RecursionError):  # what is no JSON is compared as text
        arguments = json.dumps(json.loads(arguments), ensure_ascii=False)
    return [call.get("id"), function["name"], arguments]


def _unthought(key: str) -> list[Any]:
    said: list[Any] = json.loads(key)
    return [*said[:2], said[3]]


def _place(items: tuple[Item, ...], number: int) -> int:
    return items.index(number) + 1


def _has_foreign(items: tuple[Item, ...]) -> bool:
    return any(isinstance(item, str) and item.startswith(_ASSISTANT) for item in items)
