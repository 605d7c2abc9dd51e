"""The three classes of Agent-FLAN (Chen et al. 2024, arXiv:2403.12881), each made from one logged episode.

`multi_turn` is the whole episode, `formatted` ends with its first call, and in `negative` the needed tool is not offered and
the agent declines instead of inventing it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Message = dict[str, Any]
Part = tuple[list[Message], list[Message]]
DECLINE = "I have no tool for this."
WHOLE = "multi_turn"


class Example(NamedTuple):
    """Messages in OpenAI chat format, the tools offered, and the number of leading messages that are context, not learnt."""

    messages: list[Message]
    tools: list[Message]
    context: int


def flan_example(kind: str, messages: list[Message], tools: list[Message], opening: int = 0) -> Example | None:
    """An example of a class; None where the episode has no assistant turn, or no call, to make it from.

    `multi_turn` teaches all turns of the episode; the other classes teach only their last turn, because the turns before it
    are in `multi_turn`.

    Args:
        kind: One of `CLASSES`.
        messages: An episode in OpenAI chat format.
        tools: The tools it was offered.
        opening: Number of messages of an earlier conversation, which is context only.
    """
    earlier, own = messages[:opening], messages[opening:]
    if not any(message["role"] == "assistant" if kind == WHOLE else message.get("tool_calls") for message in own):
        return None
    said, offered = CLASSES[kind](own, tools)
    if kind == WHOLE:
        return Example(messages, tools, opening)
    called = {call["function"]["name"] for message in earlier for call in message.get("tool_calls") or []}
    if called & (_names(tools) - _names(offered)):
        return None  # the agent has just called a tool that it would say is missing
    return Example(earlier + said, offered, opening + len(said) - 1)


def _names(tools: list[Message]) -> set[str]:
    return {tool["function"]["name"] for tool in tools}


def _multi_turn(messages: list[Message], tools: list[Message]) -> Part:
    return messages, tools


def _formatted(messages: list[Message], tools: list[Message]) -> Part:
    return messages[: _first_call(messages) + 1], tools


def _negative(messages: list[Message], tools: list[Message]) -> Part:
    first = _first_call(messages)
    needed = {call["function"]["name"] for call in messages[first]["tool_calls"]}
    offered = [tool for tool in tools if tool["function"]["name"] not in needed]
    return [*messages[:first], {"role": "assistant", "content": DECLINE}], offered


def _first_call(messages: list[Message]) -> int:
    return next(i for i, message in enumerate(messages) if message.get("tool_calls"))


CLASSES: dict[str, Callable[[list[Message], list[Message]], Part]] = {
    WHOLE: _multi_turn,
    "formatted": _formatted,
    "negative": _negative,
}
