"""Reads AutoGen's messages (0.4 and later): task results, bare lists of messages, and saved states of agents and teams.

Messages that a program made from others are left out and counted: summaries of tool calls, hand-offs, streamed pieces.
"""

from __future__ import annotations

from collections import Counter
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
)
from tracewheel_logs.dialogue import Dialogue, unreadable

FORMAT = "autogen"
SPOKEN = {"TextMessage", "StopMessage", "MultiModalMessage", "UserMessage", "AssistantMessage", "SystemMessage"}
CALLED, REPLIED = ("ToolCallRequestEvent", "ToolCallMessage"), ("ToolCallExecutionEvent", "ToolCallResultMessage")
CONTEXT_REPLY = "FunctionExecutionResultMessage"
# Made by a program from other messages, or not seen by a model.
UNSEEN = {"ToolCallSummaryMessage", "HandoffMessage", "ModelClientStreamingChunkEvent", "UserInputRequestedEvent"}
UNSEEN |= {"SelectSpeakerEvent", "SelectorEvent", "GroupChatStart", "GroupChatTermination", "MemoryQueryEvent"}
KNOWN = {*SPOKEN, *CALLED, *REPLIED, CONTEXT_REPLY, *UNSEEN, "ThoughtEvent"}
STATES = ("AssistantAgentState", "TeamState")


def is_message(value: Any) -> bool:
    """Whether this is a message or an event of AutoGen."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str) or "role" in value or "content" not in value:
        return False
    if not isinstance(value.get("source"), str | None):
        return False
    return value["type"] in KNOWN or ("source" in value and value["type"].startswith("StructuredMessage"))


def is_whole(values: Any) -> bool:
    """Whether this is a list of messages of AutoGen."""
    return isinstance(values, list) and bool(values) and all(map(is_message, values))


def recognises(value: Any) -> bool:
    """Whether this is a task's result, or the state of an agent or a team."""
    if not isinstance(value, dict):
        return False
    return is_whole(value.get("messages")) or (value.get("type") in STATES and bool(_contexts(value)))


def read(value: Any, place: Place) -> Trace:
    """The trace of one record.

    Raises:
        InvalidRecord: it cannot be read.
    """
    if is_whole(value.get("messages")):
        info = {key: part for key, part in value.items() if key != "messages"}
        return _trace(value["messages"], info, place)
    contexts = _contexts(value)
    name = max(contexts, key=lambda name: len(contexts[name]))
    others = [_read(messages)[0] for other, messages in contexts.items() if other != name and messages]
    return _trace(contexts[name], {"agent": name, "state": value["type"], "other_conversations": others}, place)


def _contexts(value: dict[str, Any]) -> dict[str, list[Any]]:
    """What each agent's model saw, by the agent's name."""
    if value.get("type") == "AssistantAgentState":
        messages = list_field(object_field(value, "llm_context"), "messages")
        return {"": messages} if is_whole(messages) else {}
    found = {}
    for name, held in object_field(value, "agent_states").items():
        state = object_field(held, "agent_state") if isinstance(held, dict) else {}
        messages = list_field(object_field(state, "llm_context"), "messages")
        if is_whole(messages):
            found[name] = messages
    return found


def read_list(value: Any, place: Place) -> Trace:
    """The trace of a bare list of messages.

    Raises:
        InvalidRecord: it cannot be read.
    """
    return _trace(value, {}, place)


def _trace(values: list[Any], info: dict[str, Any], place: Place) -> Trace:
    messages, unseen, agents = _read(values)
    created = next((one["created_at"] for one in values if isinstance(one.get("created_at"), str)), None)
    found = RawTrace(messages, created=created, info=info | {"agents": agents, "unseen_messages": dict(unseen)})
    return build_trace(FORMAT, place, found)


def _read(values: list[Any]) -> tuple[list[dict[str, Any]], Counter[str], list[str]]:
    """The messages in chat form, the kinds left out, and the agents' names."""
    dialogue, unseen, agents, waiting = Dialogue(), Counter[str](), dict[str, None](), ""
    first = next((one.get("source") for one in values if one["type"] in SPOKEN and isinstance(one.get("source"), str)), None)
    people = {"user", first}
    for value in values:
        kind, content, source = value["type"], value["content"], value.get("source")
        if kind in UNSEEN:
            unseen[kind] += 1
            continue
        if isinstance(source, str) and source not in people:
            agents[source] = None
        if kind == "ThoughtEvent":
            waiting = as_text(content)
        elif kind in CALLED or (kind == "AssistantMessage" and isinstance(content, list)):
            dialogue.end_turn()
            # Beside calls, a thought is the text that the model wrote with them.
            dialogue_text = waiting or as_text(value.get("thought"))
            if dialogue_text:
                dialogue.text(dialogue_text)
            _call(content, dialogue)
            waiting = ""
        elif kind in REPLIED or kind == CONTEXT_REPLY:
            for result in content if isinstance(content, list) else []:
                if not isinstance(result, dict):
                    raise InvalidRecord("message unreadable", "a result of a call is not an object")
                dialogue.replied(result.get("call_id"), result.get("name"), result.get("content"))
        else:
            _speak(value, people, waiting, dialogue)
            waiting = ""
    return dialogue.messages(), unseen, list(agents)


def _speak(value: dict[str, Any], people: set[Any], thought: str, dialogue: Dialogue) -> None:
    kind, text = value["type"], _text(value["content"])
    if kind == "SystemMessage":
        dialogue.said("system", text)
    elif kind == "UserMessage" or (
        kind != "AssistantMessage" and value.get("source") in people and not value.get("models_usage")
    ):
        dialogue.said("user", text)
    else:
        dialogue.end_turn()
        dialogue.thought(thought or as_text(value.get("thought")))
        dialogue.text(text)
        dialogue.end_turn()


def _call(calls: Any, dialogue: Dialogue) -> None:
    for call in calls if isinstance(calls, list) else []:
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            raise InvalidRecord("tool calls unreadable", "a call has no name")
        dialogue.called(call.get("id"), call["name"], call.get("arguments"))


def _text(content: Any) -> str:
    """A message's text, with placeholders for images, which are objects with their `data`; a structured message's JSON.

    Raises:
        InvalidRecord: it holds anything else.
    """
    if not isinstance(content, list):
        return as_text(content)
    if unknown := next((part for part in content if not isinstance(part, str) and not _is_image(part)), None):
        raise unreadable("a part", type(unknown).__name__)
    return read_parts([part if isinstance(part, str) else {"type": "image", **part} for part in content], "\n").text or ""


def _is_image(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("data"), str)


READERS = (
    Reader(FORMAT, recognises, read),
    Reader(FORMAT, is_message, read_list, "list", Signs.SHAPE, is_whole),
)
