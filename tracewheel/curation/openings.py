"""Openings: the messages of an earlier conversation that an episode begins with. They are context, not part of the episode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError
from tracewheel.core.types import Task
from tracewheel.environments import Environment, opening_of

if TYPE_CHECKING:
    import pandas


def after_opening(messages: list[dict[str, Any]], task: Task, environment: Environment) -> list[dict[str, Any]]:
    """The messages of a task's episode: without the opening that its environment defines, if it does.

    What the agent said before the user's first message, such as a greeting, is no answer to anything, and opening as well.
    """
    length = len(opening_of(environment, task))
    if not length:
        return messages[_first_request(messages) :]
    return messages[_system_messages(messages) + length :]


def _system_messages(messages: list[dict[str, Any]]) -> int:
    """Number of system messages that a conversation begins with."""
    return next((index for index, message in enumerate(messages) if message["role"] != "system"), len(messages))


def _first_request(messages: list[dict[str, Any]]) -> int:
    """Position of the first user message if the agent speaks before it, else 0."""
    roles = [message["role"] for message in messages]
    first = roles.index("user") if "user" in roles else 0
    return first if "assistant" in roles[:first] else 0


def opening_lengths(episodes: pandas.DataFrame) -> list[int]:
    """The number of messages in each episode's opening; 0 where the column `opening` or its value is missing.

    Raises:
        DataError: a value is not a count.
    """
    if "opening" not in episodes:
        return [0] * len(episodes)
    lengths = episodes["opening"].fillna(0).tolist()
    invalid = [length for length in lengths if length < 0 or length != int(length)]
    if invalid:
        raise DataError(f"episodes, column opening: {invalid[0]} is not a number of messages; make the file again")
    return [int(length) for length in lengths]
