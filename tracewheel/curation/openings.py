"""Openings: the messages of an earlier conversation that an episode begins with. They are context, not part of the episode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError
from tracewheel.core.types import Task
from tracewheel.environments import Environment, opening_of

if TYPE_CHECKING:
    import pandas


def after_opening(messages: list[dict[str, Any]], task: Task, environment: Environment) -> list[dict[str, Any]]:
    """The messages of a task's episode: without the opening that its environment defines, if it does."""
    length = len(opening_of(environment, task))
    if not length:
        return messages
    indices = [index for index, message in enumerate(messages) if message["role"] != "system"]
    return messages[indices[length] :] if length < len(indices) else []


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
