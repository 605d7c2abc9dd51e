"""Reads OpenHands' software-agent SDK (version 1): events with a `kind`, as it stores and exports them.

The events of a conversation's folder (`events/event-00000-ID.json`, with `base_state.json` beside `events`), of a file of lines
and of a list are one trace; so is an evaluation's `history`. Actions of one response are one turn. Results follow their calls
wherever they were logged. What the model did not see is counted in `info`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Signs,
    Trace,
    as_text,
    build_trace,
    list_field,
    object_field,
    read_parts,
    reward_field,
    text_field,
    tool_call,
)
from tracewheel_logs.scores import LoggedScore, scores_info

FORMAT = "openhands"
RESULTS = {"ObservationEvent", "UserRejectObservation", "AgentErrorEvent"}
SEEN = RESULTS | {"SystemPromptEvent", "MessageEvent", "ActionEvent", "ACPToolCallEvent", "CondensationSummaryEvent"}
UNSEEN = {"Condensation", "CondensationRequest", "ConversationErrorEvent", "ConversationStateUpdateEvent", "PauseEvent"}
UNSEEN |= {"InterruptEvent", "HookExecutionEvent", "LLMCompletionLogEvent", "TokenEvent", "StreamingDeltaEvent"}
KINDS = SEEN | UNSEEN
STATE_KEYS = {"agent", "workspace", "persistence_dir"}
KEPT_OF_RESULT = ("test_result", "metrics", "error", "attempt", "instruction")
ROOT = "__root__"
OF_FOLDER = re.compile(r"event[-_]\d{5,}[-_].*|base_state\.json.*")


def is_event(value: Any) -> bool:
    """Whether this is one event."""
    return isinstance(value, dict) and "source" in value and isinstance(value.get("kind"), str) and value["kind"] in KINDS


def recognises_result(value: Any) -> bool:
    """Whether this is a line of an evaluation's `output.jsonl`."""
    history = value.get("history") if isinstance(value, dict) else None
    return isinstance(history, list) and bool(history) and is_event(history[0])


def recognises(value: Any) -> bool:
    """Whether this is an event, a list or a page of events, or a conversation's state."""
    if isinstance(value, list):
        return bool(value) and is_event(value[0])
    return is_event(value) or (isinstance(value, dict) and (_is_state(value) or recognises(value.get("items"))))


def _is_state(value: dict[str, Any]) -> bool:
    return value.keys() >= STATE_KEYS and isinstance(value["agent"], dict)


def group_of_file(file: str) -> str:
    """What the events of a file belong to: their conversation's folder, or the file itself."""
    path = PurePosixPath(file)
    if OF_FOLDER.fullmatch(path.name) is None:
        return file
    return str(path.parent.parent if path.parent.name == "events" else path.parent)


def parts(value: Any) -> list[tuple[str, Any]]:
    """The events of a record. Those of a list are a group of their own: a fork of a conversation begins with the same ids."""
    if isinstance(value, dict) and "items" not in value:
        return [("", value)]
    events = value["items"] if isinstance(value, dict) else value
    ends = [as_text(event.get("id")) for event in (events[0], events[-1]) if isinstance(event, dict)]
    return [(f"{ends} {len(events)}", event) for event in events]


def read(values: Any, place: Place) -> Trace:
    """The trace of a conversation's events, and its state if that was logged.

    Raises:
        InvalidRecord: it cannot be read.
    """
    state: dict[str, Any] = next((value for value in values if isinstance(value, dict) and _is_state(value)), {})
    identity = text_field(state, "id")
    model = text_field(object_field(object_field(state, "agent"), "llm"), "model")
    info = {"execution_status": state.get("execution_status"), "stats": state.get("stats")}
    events = [value for value in values if value is not state]
    return _trace(events, place, RawTrace([], id=identity, session=identity, model=model, info=info), _leaf(state))


def _leaf(state: dict[str, Any]) -> str | None:
    leaf = state.get("leaf_event_id")
    return leaf if isinstance(leaf, str) else None


def read_result(value: Any, place: Place) -> Trace:
    """The trace of one evaluation.

    Raises:
        InvalidRecord: it cannot be read.
    """
    metadata = object_field(value, "metadata")
    about = RawTrace(
        [],
        task=text_field(value, "instance_id"),
        model=text_field(object_field(metadata, "llm"), "model"),
        outcome=reward_field(value, "reward"),
        info={key: value.get(key) for key in KEPT_OF_RESULT}
        | {key: metadata.get(key) for key in ("dataset", "agent_type", "max_iterations", "openhands_sdk_version")},
    )
    return _trace(value["history"], place, about)


def _trace(values: list[Any], place: Place, about: RawTrace, leaf: str | None = None) -> Trace:
    for position, value in enumerate(values):
        if not is_event(value):
            raise InvalidRecord("message unreadable", f"event {position} is none that this reader knows (its 'kind')")
    by_id = {text_field(event, "id") or f"event {position}": event for position, event in enumerate(values)}
    seen = [event for event in by_id.values() if event["kind"] in SEEN]
    events = _active_branch(by_id, leaf)
    if sum(event["kind"] == "SystemPromptEvent" for event in events) > 1:
        raise InvalidRecord("message unreadable", "two system prompts: give each conversation a file or a folder of its own")
    stream = _Stream(events)
    left_out = {**stream.left_out, "other branches": len(seen) - len(events), "repeated": len(values) - len(by_id)}
    others = [event for event in by_id.values() if event["kind"] in UNSEEN]
    critics = [object_field(event, "critic_result") for event in events if isinstance(event.get("critic_result"), dict)]
    scores = [LoggedScore("score", critics[-1].get("score"), "model")] if critics else []
    notes = {
        "unseen_events": dict(sorted(Counter(event["kind"] for event in others).items())),
        "left_out": {reason: count for reason, count in sorted(left_out.items()) if count},
        "condensations": [event["summary"] for event in others if event["kind"] == "Condensation" and event.get("summary")],
        "errors": [event.get("detail") for event in others if event["kind"] == "ConversationErrorEvent"],
        "failed_calls": sum(object_field(event, "observation").get("is_error") is True for event in events),
        "tool_descriptions": stream.tools,
    }
    found = RawTrace(
        stream.messages,
        id=about.id,
        session=about.session,
        created=text_field(values[0], "timestamp") if values else None,
        model=about.model,
        outcome=about.outcome,
        task=about.task,
        info={**about.info, **{key: note for key, note in notes.items() if note}, **scores_info(scores)},
    )
    return build_trace(FORMAT, place, found)


def _active_branch(by_id: dict[str, dict[str, Any]], leaf: str | None) -> list[dict[str, Any]]:
    """The events of the conversation that lead to its leaf, or to the last one.

    Without a parent in the log, an event follows the one before it.
    """
    names, events = list(by_id), list(by_id.values())
    places = {name: place for place, name in enumerate(names)}
    last = max((place for place, event in enumerate(events) if event["kind"] in SEEN), default=-1)
    place = last if leaf is None else places.get(leaf, last)
    branch = []
    while place >= 0:
        branch.append(events[place])
        parent = events[place].get("parent_id")
        if parent == ROOT:
            break
        before = places.get(parent, place - 1) if isinstance(parent, str) else place - 1
        place = before if before < place else place - 1
    return [event for event in reversed(branch) if event["kind"] in SEEN]


class _Stream:
    """Builds the conversation from events."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.messages: list[dict[str, Any]] = []
        self.tools: list[Any] = []
        self.left_out: Counter[str] = Counter()
        self._results: dict[str, dict[str, Any]] = {}
        self._run = {as_text(event.get("tool_call_id")): event for event in events if event["kind"] == "ACPToolCallEvent"}
        turns = _turns(event for event in events if event["kind"] in SEEN - RESULTS)
        self._find_results(events)
        for position, turn in enumerate(turns):
            self._take(turn, is_last=position == len(turns) - 1)
        self.left_out["results without a call"] += len(self._results)

    def _find_results(self, events: list[dict[str, Any]]) -> None:
        """The first result of each call; only one is shown to the model."""
        for event in events:
            if event["kind"] in RESULTS:
                identity = as_text(event.get("tool_call_id"))
                if identity in self._results:
                    self.left_out["second results"] += 1
                else:
                    self._results[identity] = event

    def _take(self, turn: list[dict[str, Any]], *, is_last: bool) -> None:
        event = turn[0]
        match event["kind"]:
            case "SystemPromptEvent":
                prompt = [event.get("system_prompt"), event.get("dynamic_context")]
                self.messages.append({"role": "system", "content": "".join(_text(part) for part in prompt if part)})
                self.tools += list_field(event, "tools")
            case "MessageEvent":
                self._say(event)
            case "CondensationSummaryEvent":
                self.messages.append({"role": "user", "content": as_text(event.get("summary"))})
            case "ACPToolCallEvent":
                self._run_tool(as_text(event.get("tool_call_id")))
            case _:
                self._act(turn, is_last=is_last)

    def _say(self, event: dict[str, Any]) -> None:
        said = object_field(event, "llm_message")
        if said.get("tool_calls"):
            raise InvalidRecord("tool calls unreadable", "a MessageEvent has calls; they belong to ActionEvents")
        text = _text(said.get("content")) + _text(event.get("extended_content"))
        reasoning = _reasoning(said) if said.get("role") == "assistant" else {}
        self.messages.append({"role": said.get("role"), "content": text, **reasoning})

    def _act(self, turn: list[dict[str, Any]], *, is_last: bool) -> None:
        """Add a turn with its calls and their results; calls that got none before the next turn were not shown again."""
        calls, replies = [], []
        for event in turn:
            logged, identity = object_field(event, "tool_call"), as_text(event.get("tool_call_id"))
            result = self._results.pop(identity, None)
            if result is None and not is_last:
                self.left_out["calls without a result"] += 1
                continue
            given = logged.get("arguments") if logged else _without_kind(event.get("action"))
            calls.append(tool_call(identity, logged.get("name") or event.get("tool_name"), given))
            if result is not None:
                replies.append({"role": "tool", "tool_call_id": identity, "content": _result_text(result)})
        thought = "".join(_text(event.get("thought")) for event in turn)
        reasoning = next((found for event in turn if (found := _reasoning(event))), {})
        if calls or thought or reasoning:
            turn_calls = {"tool_calls": calls} if calls else {}
            self.messages.append({"role": "assistant", "content": thought or None, **reasoning, **turn_calls})
        self.messages += replies

    def _run_tool(self, identity: str) -> None:
        """A call that another agent (ACP) ran; each change of its state is an event, and the last one counts."""
        event = self._run.pop(identity, None)
        if event is None:
            return
        output = next((event[key] for key in ("raw_output", "content") if event.get(key) is not None), None)
        call = tool_call(identity, event.get("tool_kind") or event.get("title"), event.get("raw_input"))
        self.messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        self.messages.append({"role": "tool", "tool_call_id": identity, "content": as_text(output)})


def _turns(events: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Events by turn: the actions of one response of the model are one, also where results or messages came between them."""
    turns: list[list[dict[str, Any]]] = []
    of_response: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        response = as_text(event.get("llm_response_id")) if event["kind"] == "ActionEvent" else ""
        if response in of_response:
            of_response[response].append(event)
            continue
        turns.append([event])
        if response:
            of_response[response] = turns[-1]
    return turns


def _without_kind(action: Any) -> Any:
    return {key: value for key, value in action.items() if key != "kind"} if isinstance(action, dict) else action


def _result_text(event: dict[str, Any]) -> str:
    """A result as logged: an observation's content, within what a terminal says around it, an error, or a rejection."""
    if event["kind"] == "AgentErrorEvent":
        return as_text(event.get("error"))
    if event["kind"] == "UserRejectObservation":
        return as_text(event.get("rejection_reason"))
    observation = object_field(event, "observation")
    if observation.get("screenshot_data"):
        raise InvalidRecord("content is not text", "an observation has a screenshot")
    around = object_field(observation, "metadata")
    content = observation.get("content", observation.get("output"))
    shown = as_text(around.get("prefix")) + _text(content) + as_text(around.get("suffix"))
    return shown + _text(event.get("extended_content"))


def _reasoning(event: dict[str, Any]) -> dict[str, str]:
    """The model's reasoning, which is logged in the form of its API."""
    item = object_field(event, "responses_reasoning_item")
    found = as_text(event.get("reasoning_content")) or read_parts(event.get("thinking_blocks")).reasoning
    found = found or "\n".join(as_text(text) for key in ("content", "summary") for text in list_field(item, key))
    return {"reasoning": found} if found else {}


def _text(content: Any) -> str:
    """Text parts as text.

    Raises:
        InvalidRecord: a part is no text.
    """
    found = read_parts(content)
    if found.calls or found.results:
        raise InvalidRecord("content is not text", "a part of an event is a call or a result")
    return (found.text or "") + found.reasoning


READERS = (
    Reader(FORMAT, recognises_result, read_result),
    Reader(FORMAT, recognises, read, "group", Signs.SHAPE, parts=parts, group_of_file=group_of_file),
)
