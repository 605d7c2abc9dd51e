"""Tasks from logs alone: a logged prompt, with the calls of successful traces for its verifier.

A conversation with several user messages gives a task for each, because nobody knows how the user would have answered
another reply: an episode runs from one user message to the next. The conversation before it is the task's context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError
from tracewheel.core.types import Task, content_hash
from tracewheel.environments.recorded.calls import Message, has_broken_call, normalised, parsed_arguments

if TYPE_CHECKING:
    from tracewheel.environments.recorded.recording import Recording

ROLES = ("system", "user", "assistant", "tool")


def recorded_task(kind: str, prompt: str, logged: dict[str, Any], recording: Recording) -> Task:
    """The task of a logged episode.

    The family is the last tool called by the shortest success, usually the decisive one; the tier is the number of that
    success's calls. The fingerprint covers the log's task and the conversation so far but not the successes, so it stays
    the same when more traces are logged.

    Args:
        kind: The kind of the environment.
        prompt: The user's request.
        logged: `task` (the log's name of the task), `context` (the messages before the prompt) and `references` (for each
            successful trace a list of `{"name", "arguments"}`; empty where no success is known).
        recording: Defines which calls are equal.

    Raises:
        DataError: `logged` is incomplete or inconsistent; the message says how.
    """
    name, context, references = (logged.get(part) for part in ("task", "context", "references"))
    if not isinstance(name, str) or not name:
        raise DataError("'task' must be the log's name of the task")
    if not isinstance(context, list) or not all(isinstance(item, dict) and item.get("role") in ROLES for item in context):
        raise DataError(f"'context' must be a list of messages with the roles {', '.join(ROLES)}")
    if has_broken_call(context):
        raise DataError("a call with broken arguments is in the conversation before the prompt")
    if not isinstance(references, list) or not all(_is_reference(reference) for reference in references):
        raise DataError("'references' must be a list with a list of calls for each success, each with 'name' and 'arguments'")
    keyed = [
        [
            {"name": call["name"], "arguments": call["arguments"], "key": recording.key(call["name"], call["arguments"])}
            for call in reference
            if call["name"] not in recording.free_tools
        ]
        for reference in references
    ]
    distinct = {content_hash([call["key"] for call in reference]): reference for reference in keyed}
    ordered = sorted(distinct.values(), key=lambda reference: (len(reference), content_hash(reference)))
    shortest = ordered[0] if ordered else []
    fingerprint = content_hash({"task": name, "context": comparable(context), "prompt": prompt})
    return Task(
        id=f"recorded-{content_hash({'prompt': prompt, 'fingerprint': fingerprint})}",
        environment=kind,
        family=shortest[-1]["name"] if shortest else "no_calls",
        tier=len(shortest),
        prompt=prompt,
        initial_state={"task": name, "context": context},
        goal={"references": ordered},
        verifier="recorded",
        fingerprint=fingerprint,
    )


def comparable(messages: Sequence[Message]) -> list[Any]:
    """The content and calls of messages without call ids: equal for equal conversations."""
    said: list[Any] = []
    for message in messages:
        calls = [
            [call["function"]["name"], normalised(parsed_arguments(call["function"]["arguments"]), {})]
            for call in message.get("tool_calls") or []
        ]
        said.append([message["role"], normalised(message.get("content") or "", {}), calls])
    return said


def _is_reference(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(call, dict) and isinstance(call.get("name"), str) and isinstance(call.get("arguments"), dict)
        for call in value
    )
