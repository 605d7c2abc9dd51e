"""Tasks out of logs alone: a logged prompt, and for its verifier what the successful traces did.

A conversation in which the user speaks several times gives a task for each time: nobody can say what the user would have
answered to another reply, so an episode goes from one word of the user to the next. The conversation up to there is the
task's context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError
from tracewheel.core.types import Task, content_hash
from tracewheel.environments.recorded.calls import Message, normalised, parsed_arguments

if TYPE_CHECKING:
    from tracewheel.environments.recorded.recording import Recording

ROLES = ("system", "user", "assistant", "tool")


def recorded_task(kind: str, prompt: str, logged: dict[str, Any], recording: Recording) -> Task:
    """The task of a logged episode.

    Family is the tool that the shortest success called last, which mostly is the one that mattered; tier is how many calls
    that success made. The fingerprint is that of the log's task and of the conversation so far, not of the successes: it stays
    when more traces are logged.

    Args:
        kind: The environment's.
        prompt: What the user asked for.
        logged: `task` (the log's name of it), `context` (the messages before the prompt) and `references` (for each
            successful trace a list of `{"name", "arguments"}`; none where no success is known).
        recording: What decides which calls are the same.

    Raises:
        DataError: `logged` lacks something or does not hold together; the message says what.
    """
    name, context, references = (logged.get(part) for part in ("task", "context", "references"))
    if not isinstance(name, str) or not name:
        raise DataError("'task' is to be the log's name of the task")
    if not isinstance(context, list) or not all(isinstance(item, dict) and item.get("role") in ROLES for item in context):
        raise DataError(f"'context' is to be a list of messages with the roles {', '.join(ROLES)}")
    if not isinstance(references, list) or not all(_is_reference(reference) for reference in references):
        raise DataError("'references' is to be a list, for each success a list of calls with 'name' and 'arguments'")
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
    fingerprint = content_hash({"task": name, "context": spoken(context), "prompt": prompt})
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


def spoken(messages: Sequence[Message]) -> list[Any]:
    """What was said and called, without the ids that a provider gives: equal for equal conversations."""
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
