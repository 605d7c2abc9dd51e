"""Openings and text turns of logged conversations.

An opening holds the messages of an earlier conversation that an episode begins with: context, not part of the episode. A text
turn is one without a call, which an environment may answer (`tracewheel.environments.base.Replier`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracewheel.core.endings import UNFINISHED, how_unfinished
from tracewheel.core.errors import DataError
from tracewheel.core.types import Task
from tracewheel.curation.task_records import Call
from tracewheel.environments import TEXT_TURN, Environment, opening_of, repeats_replies
from tracewheel.environments.recorded.calls import calls_in
from tracewheel.scoring.verifiers import EpisodeVerifier, make_verifier

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


NOT_WHOLE = "its last turn was cut off or failed"


def whole_episodes(episodes: pandas.DataFrame) -> pandas.DataFrame:
    """The episodes that can be imitated, none of which teaches a turn that was cut, or failed.

    One whose last turn is such is left out. One that went on after such a turn begins to teach after it: `opening` says so.

    Args:
        episodes: With `messages` (JSON text), and perhaps `opening`.
    """
    marked = episodes["messages"].str.contains(f'"{UNFINISHED}"', regex=False).astype(bool)
    if not marked.any():
        return episodes
    openings = opening_lengths(episodes)
    for row in marked.to_numpy().nonzero()[0].tolist():
        messages = json.loads(episodes["messages"].iloc[row])
        ends = [place for place, message in enumerate(messages) if how_unfinished(message)]
        goes_on = any(message["role"] == "assistant" for message in messages[max(ends, default=-1) + 1 :])
        openings[row] = max([openings[row], *(place + 1 for place in ends)]) if goes_on or not ends else -1
    return episodes.assign(opening=openings)[[opening >= 0 for opening in openings]]


Message = dict[str, Any]


def is_text_turn(messages: Sequence[Message], place: int) -> bool:
    """Whether a message is a turn without a call; some logs write a turn's words and its calls as two messages."""
    message = messages[place]
    if message["role"] != "assistant" or message.get("tool_calls"):
        return False
    return place + 1 == len(messages) or messages[place + 1]["role"] == "user"


def calls_of(messages: list[Message], task: Task, environment: Environment) -> list[Call]:
    """The calls of a task's episode, without those whose arguments are broken.

    With its text turns, where the environment answers them or the verifier sees them.

    Args:
        messages: Of the episode.
        task: Its task.
        environment: One of the task's kind.
    """
    own = after_opening(messages, task, environment)
    made = [(call.message, (call.name, call.arguments)) for call in calls_in(own) if isinstance(call.arguments, dict)]
    if repeats_replies(environment) or isinstance(make_verifier(task.verifier), EpisodeVerifier):
        said = [place for place in range(len(own)) if is_text_turn(own, place)]
        made += [(place, (TEXT_TURN, {"text": own[place]["content"] or ""})) for place in said]
    return [call for _, call in sorted(made, key=lambda item: item[0])]
