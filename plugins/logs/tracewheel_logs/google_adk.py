"""Reads sessions of Google's Agent Development Kit: a session with its events, or bare events; and its sets of evaluations.

Bare events are a list, or the lines of a file, which is one session then. An event's content has Gemini's parts. Events of
all agents of a session are one conversation; partial events of a stream are repeated whole, and are left out.
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
    Part,
    Place,
    RawTrace,
    Reader,
    SessionLine,
    Signs,
    Trace,
    build_trace,
    list_field,
    message_list,
    nanoseconds,
    object_field,
    text_field,
)
from tracewheel_logs.dialogue import Dialogue
from tracewheel_logs.gemini import read_contents
from tracewheel_logs.values import time_text

FORMAT = "google_adk"
INVOCATION = ("invocation_id", "invocationId")
NO_RESULT = "[The log does not hold the result of this call.]"
READ = {"id", "events", "user_id", "userId", "app_name", "appName", "state", "last_update_time", "lastUpdateTime"}


def is_event(value: Any) -> bool:
    """Whether this is an event."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("author"), str)
        and any(key in value for key in INVOCATION)
        and "actions" in value
    )


def are_events(values: Any) -> bool:
    """Whether this is a list of events."""
    return isinstance(values, list) and bool(values) and all(map(is_event, values))


def recognises(value: Any) -> bool:
    """Whether this is a session."""
    return isinstance(value, dict) and are_events(value.get("events"))


def read(value: Any, place: Place) -> Trace:
    """The trace of one session.

    Raises:
        InvalidRecord: it cannot be read.
    """
    events = message_list(value, "events")
    dialogue = Dialogue()
    for event in events:
        if event.get("partial") is True or not isinstance(event.get("content"), dict):
            continue
        content = event["content"]
        # What a tool replied has the role user and an agent as author; what an agent said may lack a role.
        role = content.get("role") or ("user" if event["author"] == "user" else "model")
        read_contents([{**content, "role": role}], dialogue)
        dialogue.ended(event, {"finish_reason": text_field(event, "error_code", "errorCode")})
    models = [text_field(event, "model_version", "modelVersion") for event in events]
    times = [nanoseconds(event.get("timestamp")) for event in events]
    identity = text_field(value, "id")
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            dialogue.messages(),
            id=identity,
            session=identity,
            user=text_field(value, "user_id", "userId"),
            created=time_text(min(filter(None, times), default=None)),
            model=next((model for model in reversed(models) if model), None),
            info={key: part for key, part in value.items() if key not in READ}
            | {
                "app": text_field(value, "app_name", "appName"),
                "state": object_field(value, "state"),
                "agents": list(dict.fromkeys(event["author"] for event in events if event["author"] != "user")),
                "errors": [error for event in events if (error := text_field(event, "error_message", "errorMessage"))],
            },
        ),
    )


def read_list(value: Any, place: Place) -> Trace:
    """The trace of a bare list of events.

    Raises:
        InvalidRecord: it cannot be read.
    """
    return read({"events": value}, place)


def split(lines: list[SessionLine]) -> list[Part]:
    """The events on the lines of a file, which are one session."""
    events = [line.value for line in lines]
    return [Part({"events": events}, lines[0].line, events)]


def is_eval_set(value: Any) -> bool:
    """Whether this is a set of cases with their conversations."""
    return isinstance(value, dict) and "eval_set_id" in value and isinstance(value.get("eval_cases"), list)


def cases(value: Any) -> list[Part]:
    """The cases that have a conversation."""
    found = [case for case in value["eval_cases"] if isinstance(case, dict) and case.get("conversation")]
    return [Part({"eval_set_id": value["eval_set_id"], **case}, None, case) for case in found]


def read_case(value: Any, place: Place) -> Trace:
    """The trace of one case. The calls of a reference may have no results.

    Raises:
        InvalidRecord: it cannot be read.
    """
    dialogue = Dialogue()
    for number, turn in enumerate(list_field(value, "conversation")):
        read_contents([{**object_field(turn, "user_content"), "role": "user"}], dialogue)
        between = object_field(turn, "intermediate_data")
        replies = {reply.get("id") or reply.get("name"): reply for reply in list_field(between, "tool_responses")}
        for at, call in enumerate(list_field(between, "tool_uses")):
            identity = call.get("id") or f"call_{number}_{at}"
            reply = replies.get(call.get("id") or call.get("name"))
            dialogue.called(identity, call.get("name"), call.get("args"))
            dialogue.replied(identity, call.get("name"), reply.get("response") if reply else NO_RESULT)
        if isinstance(turn.get("final_response"), dict):
            read_contents([{**turn["final_response"], "role": "model"}], dialogue)
    session = object_field(value, "session_input")
    info = {"eval_set": value["eval_set_id"], "app": session.get("app_name"), "state": session.get("state")}
    return build_trace(
        FORMAT,
        place,
        RawTrace(dialogue.messages(), task=text_field(value, "eval_id"), user=text_field(session, "user_id"), info=info),
    )


READERS = (
    Reader(FORMAT, is_eval_set, read_case, signs=Signs.NAMED, split=cases),
    Reader(FORMAT, recognises, read, signs=Signs.NAMED),
    Reader(FORMAT, is_event, read_list, "list", Signs.NAMED, are_events),
    Reader(FORMAT, is_event, read, "lines", Signs.NAMED, split=split),
)
