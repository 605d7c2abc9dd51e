"""The three classes of Agent-FLAN (Chen et al. 2024, arXiv:2403.12881), made of one logged episode each.

`multi_turn` is the whole episode, `formatted` ends with its first call, and in `negative` the tool that is needed is not
offered and the agent says so instead of inventing it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Example = tuple[list[Message], list[Message]]
DECLINE = "I have no tool for this."


def flan_example(kind: str, messages: list[Message], tools: list[Message]) -> Example | None:
    """Messages and tools of an example; None where the episode gives none of this class, because it calls nothing.

    Args:
        kind: One of `CLASSES`.
        messages: An episode in OpenAI chat format.
        tools: What it was offered.
    """
    if kind != "multi_turn" and not any(message.get("tool_calls") for message in messages):
        return None
    return CLASSES[kind](messages, tools)


def _multi_turn(messages: list[Message], tools: list[Message]) -> Example:
    return messages, tools


def _formatted(messages: list[Message], tools: list[Message]) -> Example:
    return messages[: _first_call(messages) + 1], tools


def _negative(messages: list[Message], tools: list[Message]) -> Example:
    first = _first_call(messages)
    needed = {call["function"]["name"] for call in messages[first]["tool_calls"]}
    offered = [tool for tool in tools if tool["function"]["name"] not in needed]
    return [*messages[:first], {"role": "assistant", "content": DECLINE}], offered


def _first_call(messages: list[Message]) -> int:
    return next(i for i, message in enumerate(messages) if message.get("tool_calls"))


CLASSES: dict[str, Callable[[list[Message], list[Message]], Example]] = {
    "multi_turn": _multi_turn,
    "formatted": _formatted,
    "negative": _negative,
}
