"""Turns of a logged agent without a call, which an environment may answer (`tracewheel.environments.base.Replier`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracewheel.core.types import Task
from tracewheel.curation.openings import after_opening
from tracewheel.curation.task_records import Call
from tracewheel.environments import TEXT_TURN, Environment, repeats_replies
from tracewheel.environments.recorded.calls import calls_in
from tracewheel.scoring.verifiers import EpisodeVerifier, make_verifier

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
