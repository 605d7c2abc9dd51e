"""The histories that a program sends back: which of the policy's turns are in them, and where they part from those before.

A history is a sequence of items: the number of a turn for each assistant message that the policy said, and the text of a key
for each other message. An assistant message is the policy's if it is the reply as it was given: its content, its thinking, its
calls with their ids. Arguments may be written with other white space. Everything else is an edit, and begins a branch.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tracewheel.core.types import BranchReason
from tracewheel.gateway.exchange import Message

THINKING = "reasoning_content"
Item = str | int
UNKNOWN = -1  # the place of what nobody has said yet


@dataclass(frozen=True)
class History:
    """A program's history, read.

    Attributes:
        items: One for each message.
        tools: The tools offered, as JSON text.
        agent: The name of the agent that asks.
        after: The turn whose conversation this continues unchanged; None where there is none.
        reason: Why it parts from all histories before; None where it continues the branch of `after`.
        foreign: How many of its assistant messages the policy did not say, though it had spoken when they first came.
    """

    items: tuple[Item, ...]
    tools: str
    agent: str
    after: int | None = None
    reason: BranchReason | None = ""
    foreign: int = 0


@dataclass(frozen=True)
class _Turn:
    """A turn: what was offered to whom, the place of the history before it, its reply's key, and the turns after it."""

    tools: str
    agent: str
    place: int
    key: str
    next: list[int] = field(default_factory=list)


class _Place(NamedTuple):
    """What was said up to here, as the way from the root of a tree: the place before, and the item that leads on from it."""

    before: int
    item: Item
    depth: int


class Histories:
    """All histories of one program so far. They begin alike, so they are kept as a tree, in which reading one is a walk."""

    def __init__(self) -> None:
        self._turns: list[_Turn] = []
        self._places = [_Place(UNKNOWN, "", 0)]
        self._latest = [UNKNOWN]  # at each place the last turn whose history and reply lead through it
        self._onward: dict[tuple[int, Item], int] = {}
        # The last turn that said something: anywhere, after what was said before, and with these tools as well.
        self._said: dict[tuple[str, ...] | tuple[str, int] | tuple[str, int, str], int] = {}
        self._stopped: dict[int, list[tuple[int, Message]]] = {}  # at a place the replies that a stop text ended, with it
        self.added: dict[int, str] = {}  # what a program has added to such a reply, the same in all its histories
        self._shown: set[str] = set()  # assistant messages that came before the policy had said anything
        self._asked: dict[tuple[int, str], set[str]] = {}  # the agents that asked at a place, with these tools

    def read(self, messages: Sequence[Message], tools: str, agent: str) -> History:
        """Find the policy's turns in a history, and where it continues."""
        items: list[Item] = []
        place, shared, after = 0, 0, None
        for message in messages:
            key = _key(message)
            ways = ((key, place, tools), (key, place), (key,))
            item: Item = next((self._said[way] for way in ways if way in self._said), key)
            if item == key and place in self._stopped:
                item = self._continued(message, place, key)
            if isinstance(item, int):
                turn = self._turns[item]
                after = item if (turn.place, turn.tools) == (place, tools) else None
            place = self._onward.get((place, item), UNKNOWN)
            shared = place if place != UNKNOWN else shared
            items.append(item)
        strange = [item for item in items if isinstance(item, str) and item.startswith(_ASSISTANT)]
        if not self._turns:  # what a program begins with, as an example or a greeting of its own, is no edit
            self._shown |= {*strange}
        foreign = sum(item not in self._shown for item in strange)
        history = History(tuple(items), tools, agent, after, foreign=foreign)
        return replace(history, reason=self._reason(history, place, shared))

    def add(self, history: History, reply: Message, stop: str | None = None) -> int:
        """Add the policy's turn after a history. Returns its number.

        With `stop`, which ended it, a program may put back what was cut off, and add words of its own.
        """
        number, key, place = len(self._turns), _key(reply), 0
        for item in history.items:
            place = self._go_on(place, item, number)
        self._turns.append(_Turn(history.tools, history.agent, place, key))
        self._go_on(place, number, number)
        self._said |= {(key, place, history.tools): number, (key, place): number, (key,): number}
        if stop is not None:
            self._stopped.setdefault(place, []).append((number, {**reply, "content": (reply.get("content") or "") + stop}))
        self._asked.setdefault((place, history.tools), set()).add(history.agent)
        if history.after is not None:
            self._turns[history.after].next.append(number)
        return number

    def _continued(self, message: Message, place: int, key: str) -> Item:
        """The turn that a stop text ended and that a message goes on with, or the message's key."""
        for number, reply in self._stopped[place]:
            text, begun = message.get("content") or "", reply["content"]
            if text.startswith(begun) and key == _key({**reply, "content": text}):
                return number if self.added.setdefault(number, text[len(begun) :]) == text[len(begun) :] else key
        return key

    def own_turns(self, items: Sequence[Item]) -> set[int]:
        """The policy's turns among a history's items, also those that were sent back without their thinking."""
        found = {item for item in items if isinstance(item, int)}
        unthought = [_unthought(item) for item in items if isinstance(item, str) and item.startswith(_ASSISTANT)]
        return found | {number for number, turn in enumerate(self._turns) if unthought and _unthought(turn.key) in unthought}

    def _go_on(self, place: int, item: Item, number: int) -> int:
        found = self._onward.setdefault((place, item), len(self._places))
        if found == len(self._places):
            self._places.append(_Place(place, item, self._places[place].depth + 1))
            self._latest.append(number)
        self._latest[place] = self._latest[found] = number
        return found

    def _reason(self, history: History, place: int, shared: int) -> BranchReason | None:
        if not self._turns:
            return ""
        if agents := self._asked.get((place, history.tools)):
            return "retry" if history.agent in agents else "sub_agent"
        after = history.after
        if after is not None and not _has_foreign(history.items[_place(history.items, after) :]):
            turn = self._turns[after]
            if turn.agent != history.agent:
                return "sub_agent"
            return "parallel" if turn.next else None
        return self._parting(history, shared)

    def _parting(self, history: History, place: int) -> BranchReason:
        """Why a history that continues no turn parts at a place: by its difference there from the last that went through it."""
        shared, number = self._places[place].depth, self._latest[place]
        turn = self._turns[number]
        other_tools = turn.tools != history.tools
        if turn.agent != history.agent or (other_tools and not any(isinstance(item, int) for item in history.items)):
            return "sub_agent"
        theirs = self._next_item(number, shared)
        if theirs is None:
            return "tools_changed" if other_tools else "edited"
        if shared == len(history.items):
            return "parallel"
        mine = history.items[shared]
        if isinstance(theirs, int):
            if isinstance(mine, str) and mine.startswith(_ASSISTANT):
                return "thinking_stripped" if _unthought(mine) == _unthought(self._turns[theirs].key) else "edited"
            return "compaction"
        if any(isinstance(item, int) for item in history.items[shared:]):
            return "compaction"
        if shared == 0 and _SYSTEM in (theirs[: len(_SYSTEM)], str(mine)[: len(_SYSTEM)]):
            return "sub_agent"
        return "parallel" if isinstance(self._places[place].item, int) else "new_conversation"

    def _next_item(self, number: int, depth: int) -> Item | None:
        """What comes at a depth of the history of a turn and its reply; None after its end."""
        at = self._places[self._turns[number].place]
        if at.depth <= depth:
            return number if at.depth == depth else None
        while at.depth > depth + 1:
            at = self._places[at.before]
        return at.item


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
