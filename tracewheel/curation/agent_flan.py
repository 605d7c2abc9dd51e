"""The three classes of Agent-FLAN (Chen et al. 2024, arXiv:2403.12881), made of one logged episode each.

`multi_turn` is the whole episode, `formatted` ends with its first call, and in `negative` the tool that is needed is not
offered and the agent says so instead of inventing it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tracewheel.core.errors import DataError

if TYPE_CHECKING:
    import pandas

Message = dict[str, Any]
Part = tuple[list[Message], list[Message]]
DECLINE = "I have no tool for this."
WHOLE = "multi_turn"


class Example(NamedTuple):
    """Messages in OpenAI chat format, the tools that are offered, and how many of the messages are not to be learnt."""

    messages: list[Message]
    tools: list[Message]
    context: int


def flan_example(kind: str, messages: list[Message], tools: list[Message], opening: int = 0) -> Example | None:
    """An example of a class; None where the episode gives none, because nobody answers, or calls anything, in it.

    What is to be learnt are the turns of the episode itself, and of the classes that cut or change it the last turn alone:
    what came before it is learnt in the whole episode.

    Args:
        kind: One of `CLASSES`.
        messages: An episode in OpenAI chat format.
        tools: What it was offered.
        opening: How many of the messages are an earlier conversation, which is context and nothing else.
    """
    earlier, own = messages[:opening], messages[opening:]
    if not any(message["role"] == "assistant" if kind == WHOLE else message.get("tool_calls") for message in own):
        return None
    said, offered = CLASSES[kind](own, tools)
    if kind == WHOLE:
        return Example(messages, tools, opening)
    called = {call["function"]["name"] for message in earlier for call in message.get("tool_calls") or []}
    if called & (_names(tools) - _names(offered)):
        return None  # who has just called a tool cannot well say that there is none
    return Example(earlier + said, offered, opening + len(said) - 1)


def opening_lengths(episodes: pandas.DataFrame) -> list[int]:
    """The length of each episode's opening: how many of its messages are an earlier conversation.

    An older file has no such column, and joined to others no value.
    """
    if "opening" not in episodes:
        return [0] * len(episodes)
    lengths = episodes["opening"].fillna(0).tolist()
    strange = [length for length in lengths if length < 0 or length != int(length)]
    if strange:
        raise DataError(f"episodes, column opening: {strange[0]} is no number of messages; make the file again")
    return [int(length) for length in lengths]


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
