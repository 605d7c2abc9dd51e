"""Reads OpenHands to version 0: lists of events, and results of its evaluations with such a list as their `history`.

An action of the agent is a tool call, and the observation that it caused is the reply. Actions from one response of the
model are one turn. Other observations become user messages, as the model saw them. Events that the model did not see as
such (recalled context, changes of state) are counted in `info`. `openhands_sdk` reads version 1.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Trace,
    as_text,
    as_tools,
    build_trace,
    ending,
    list_field,
    object_field,
    reward_field,
    text_field,
    tool_call,
    with_ending,
)
from tracewheel_logs import openhands_sdk
from tracewheel_logs.scores import LoggedScore, scores_info

FORMAT = "openhands"
UNSEEN = {
    "recall",
    "null",
    "change_agent_state",
    "agent_state_changed",
    "condensation",
    "condensation_request",
    "loop_recovery",
}
RESOLVED = {"issue", "history", "git_patch"}
KEPT_OF_RESULT = ("test_result", "metrics", "error", "report")


def is_event(value: Any) -> bool:
    """Whether this is one event."""
    if not isinstance(value, dict) or "source" not in value or openhands_sdk.is_event(value):
        return False
    return "action" in value or "observation" in value


def recognises(value: Any) -> bool:
    """Whether this is the result of one evaluation."""
    history = value.get("history") if isinstance(value, dict) else None
    if not isinstance(history, list) or not history:
        return False
    return is_event(history[0]) or (isinstance(history[0], list) and bool(history[0]) and is_event(history[0][0]))


def read(value: Any, place: Place) -> Trace:
    """The trace of one evaluation.

    Raises:
        InvalidRecord: it cannot be read.
    """
    history = [event for entry in value["history"] for event in (entry if isinstance(entry, list) else [entry])]
    metadata = object_field(value, "metadata")
    info: dict[str, Any] = {key: value[key] for key in KEPT_OF_RESULT if value.get(key) is not None}
    info |= {key: metadata[key] for key in ("agent_class", "dataset", "max_iterations") if key in metadata}
    model = text_field(object_field(metadata, "llm_config"), "model")
    return _trace(
        history, place, info, task=text_field(value, "instance_id"), model=model, outcome=reward_field(value, "reward")
    )


def recognises_resolved(value: Any) -> bool:
    """Whether this is a line of the resolver's `output.jsonl`."""
    return isinstance(value, dict) and value.keys() >= RESOLVED and isinstance(value["issue"], dict)


def read_resolved(value: Any, place: Place) -> Trace:
    """The trace of one issue that the resolver worked on. Its `success` is a model's opinion.

    Raises:
        InvalidRecord: it cannot be read.
    """
    issue = value["issue"]
    scores = [LoggedScore("success", value.get("success"), "model")] if value.get("success") is not None else []
    info = {key: value[key] for key in ("metrics", "error", "git_patch", "issue_type", "result_explanation") if value.get(key)}
    history = [_dated(event, position) for position, event in enumerate(list_field(value, "history"))]
    task = f"{issue.get('owner')}/{issue.get('repo')}#{issue.get('number')}"
    return _trace(history, place, {**info, **scores_info(scores)}, task=task)


def _dated(event: Any, position: int) -> Any:
    """An event of the resolver with what other logs have: an id, its cause, its source, and its fields under `args`."""
    if not isinstance(event, dict) or "source" in event:
        return event
    if "observation" in event:
        return {**event, "id": position, "source": "environment", "cause": position - 1}
    arguments = {key: part for key, part in event.items() if key not in ("action", "timeout")}
    source = "user" if event.get("action") == "message" and position == 0 else "agent"
    return {"id": position, "source": source, "action": event.get("action"), "args": arguments}


def read_events(value: Any, place: Place) -> Trace:
    """The trace of a list of events.

    Raises:
        InvalidRecord: it cannot be read.
    """
    return _trace(value, place, {})


def _trace(
    events: list[Any],
    place: Place,
    info: dict[str, Any],
    *,
    task: str | None = None,
    model: str | None = None,
    outcome: float | None = None,
) -> Trace:
    stream = _Stream()
    for position, event in enumerate(events):
        if not is_event(event):
            raise InvalidRecord("message unreadable", f"event {position} is no action and no observation")
        stream.take(event)
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            stream.messages,
            tools=as_tools(stream.tools),
            created=text_field(events[0], "timestamp") if events else None,
            model=stream.model or model,
            outcome=outcome,
            task=task,
            info={**info, "unseen_events": dict(sorted(stream.unseen.items()))},
        ),
    )


class _Stream:
    """Builds the conversation from a stream of events."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.tools: list[Any] = []
        self.model: str | None = None
        self.unseen: Counter[str] = Counter()
        self._calls: dict[str, str] = {}
        self._response: str | None = None

    def take(self, event: dict[str, Any]) -> None:
        action, observation = event.get("action"), event.get("observation")
        if str(action or observation) in UNSEEN:
            self.unseen[str(action or observation)] += 1
        elif action == "system":
            self.messages.append({"role": "system", "content": _content(event)})
            self.tools += list_field(object_field(event, "args"), "tools")
        elif action == "message" and event["source"] != "agent":
            self.messages.append({"role": "user", "content": _content(event)})
        elif action == "message" and not isinstance(event.get("tool_call_metadata"), dict):
            self.messages.append({"role": "assistant", "content": _content(event)})
        elif action is not None:
            self._act(str(action), event)
        else:
            self._observe(event)

    def _act(self, action: str, event: dict[str, Any]) -> None:
        metadata = object_field(event, "tool_call_metadata")
        response = object_field(metadata, "model_response")
        choices = list_field(response, "choices")
        said = object_field(choices[0], "message") if choices and isinstance(choices[0], dict) else {}
        self.model = text_field(response, "model") or self.model
        if isinstance(response.get("id"), str) and response["id"] == self._response:
            # The turn with all its calls was added with the response's first action.
            self._calls[str(event.get("id"))] = str(metadata.get("tool_call_id"))
            return
        self._response = response["id"] if isinstance(response.get("id"), str) else None
        calls = [call for call in list_field(said, "tool_calls") if isinstance(call, dict)]
        if calls:
            identity = str(metadata.get("tool_call_id"))
            turn = [_call(call.get("id"), object_field(call, "function")) for call in calls]
        else:
            arguments = {key: value for key, value in object_field(event, "args").items() if key != "thought"}
            identity = str(metadata.get("tool_call_id") or f"event_{event.get('id')}")
            turn = [_call(identity, {"name": metadata.get("function_name") or action, "arguments": arguments})]
        self._calls[str(event.get("id"))] = identity
        thought = said.get("content") if said else object_field(event, "args").get("thought")
        message = {"role": "assistant", "content": as_text(thought) or None, "tool_calls": turn}
        self.messages += with_ending([message], ending(*choices[:1]))

    def _observe(self, event: dict[str, Any]) -> None:
        metadata = object_field(event, "tool_call_metadata")
        call_id = metadata.get("tool_call_id") or self._calls.get(str(event.get("cause")))
        if call_id is None:
            self.messages.append({"role": "user", "content": _content(event)})
            return
        message = {"role": "tool", "tool_call_id": call_id, "content": _content(event)}
        if isinstance(metadata.get("function_name"), str):
            message["name"] = metadata["function_name"]
        self.messages.append(message)


def _call(identity: Any, function: dict[str, Any]) -> dict[str, Any]:
    return tool_call(identity, function.get("name"), function.get("arguments"))


def _content(event: dict[str, Any]) -> str:
    said = event.get("content")
    if said is None:
        said = object_field(event, "args").get("content")
    return as_text(said if said is not None else event.get("message"))


RESOLVER_READER = Reader(FORMAT, recognises_resolved, read_resolved)
READER = Reader(FORMAT, recognises, read)
READERS = (*openhands_sdk.READERS, READER, RESOLVER_READER, Reader(FORMAT, is_event, read_events, "list"))
