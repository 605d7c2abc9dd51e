"""The recorded environment: tools that reply as they did in the logs, for agents without a simulator.

A call that some trace made gets the logged reply. A call that no trace made is *unrecorded*: the episode ends and is not
scored, because nobody knows its outcome; it is neither a success nor a failure.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError
from tracewheel.core.types import Task, content_hash
from tracewheel.environments.base import Observation
from tracewheel.environments.recorded.calls import Message, calls_in, has_broken_call, is_error, normalised, parsed_arguments
from tracewheel.environments.recorded.recording import read_recording

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


PREFIX = "recorded:"
UNRECORDED = "unrecorded call: no log shows what {tool} replies to this here; the episode ends without a score"
ECHO_LIMIT = 64


def unrecorded_tools(final_state: Mapping[str, Any]) -> list[str]:
    """The tools of an episode's unrecorded calls, from its final state; none for an episode that failed."""
    return [str(call["name"]) for call in final_state.get("unrecorded", ())]


class RecordedEnvironment:
    """A world made of logs. Its kind is `recorded:PATH`, PATH being the folder of a recording.

    ```yaml
    environment: {kind: "recorded:data/recording"}
    ```

    State: `{"task": the log's name, "calls": [{"name", "arguments", "key"}], "unrecorded": [{"name", "arguments"}]}`.
    `calls` are those of the episode; calls of an opening conversation are in the task. A call of an unknown tool gets an
    error and counts as a call that no success made. An episode ends with a call that ended a logged episode, with an
    unrecorded call, or with a turn without calls.

    Raises:
        DataError: PATH is not a recording.
    """

    reaches = True
    tool_threads = 0  # calls take no time
    verifiers = ("recorded",)

    def __init__(self, path: str) -> None:
        self.kind = f"{PREFIX}{path}"
        self.system_prompt = ""
        self._recording = read_recording(path)
        self._task = ""
        self._earlier: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._unrecorded: list[dict[str, Any]] = []

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        return recorded_task(self.kind, prompt, logged, self._recording)

    def tools(self) -> list[dict[str, Any]]:
        return self._recording.tools

    def reset(self, task: Task) -> None:
        """Start an episode.

        Raises:
            DataError: the task is not from a recording.
        """
        state = task.initial_state
        if "task" not in state or "context" not in state:
            raise DataError(f"task {task.id}: its initial state has no 'task' and 'context'; it is not from a recording")
        self._task = state["task"]
        context: list[Message] = state["context"]
        # What a system message says later belongs to the conversation.
        leading = itertools.takewhile(lambda message: message["role"] == "system", context)
        self.system_prompt = "\n\n".join(message["content"] for message in leading if message["content"])
        self._earlier = [
            self._recording.key(call.name, call.arguments)
            for call in calls_in(context)
            if call.name not in self._recording.free_tools
        ]
        self._calls, self._unrecorded = [], []

    def opening(self, task: Task) -> list[dict[str, Any]]:
        """The logged conversation before the task's prompt, without the system prompt."""
        return list(itertools.dropwhile(lambda message: message["role"] == "system", task.initial_state["context"]))

    def solution(self, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
        """The shortest sequence of calls of a successful trace."""
        references = task.goal["references"]
        shortest = min(references, key=len, default=None)
        return None if shortest is None else [(call["name"], call["arguments"]) for call in shortest]

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        if tool not in self._recording.parameters:
            self._calls.append({"name": tool, "arguments": args, "key": self._recording.key(tool, args)})
            return Observation(f"error: no tool named {tool[:ECHO_LIMIT]}", error=True)
        found = self._recording.find(self._task, self._earlier, tool, args)
        if found is None:
            self._unrecorded.append({"name": tool, "arguments": args})
            return Observation(UNRECORDED.format(tool=tool), error=True, done=True)
        if tool not in self._recording.free_tools:
            key = self._recording.key(tool, args)
            self._earlier.append(key)
            self._calls.append({"name": tool, "arguments": args, "key": key})
        reply = found.reply or ""
        return Observation(reply, error=is_error(reply), done=found.reply is None)

    def snapshot(self) -> dict[str, Any]:
        return {"task": self._task, "calls": list(self._calls), "unrecorded": list(self._unrecorded)}
