"""Reads logs of OpenAI's responses API: lists of items, requests with their responses, and stored responses.

A list of items is also what the Agents SDK gives: a result's `to_input_list()`, a session's items, a run's state. A stored
response holds what the agent said but not what it was asked: the conversation begins with the agent.
"""

from __future__ import annotations

from typing import Any

from tracewheel.core.types import Trace
from tracewheel.traces.readers.building import (
    Place,
    RawTrace,
    build_trace,
    list_field,
    object_field,
    reward_field,
    text_field,
    time_text,
)
from tracewheel.traces.readers.dialogue import Dialogue
from tracewheel.traces.readers.reader import Reader, Signs
from tracewheel.traces.readers.response_items import is_item, is_item_or_message, read_items
from tracewheel.traces.readers.spans import nanoseconds
from tracewheel.traces.readers.tools import as_tools

FORMAT = "openai_responses"
READ = {"request", "response", "input", "output", "items", "instructions", "tools", "model", "id", "object", "created_at"}
READ |= {"metadata", "user", "reward", "original_input", "generated_items", "conversation", "session_id", "user_id"}
# The rest of a saved state is about the run, not the conversation.
READ |= {"model_responses", "last_model_response", "last_processed_response", "session_items", "current_step", "context"}
KEPT = ("status", "previous_response_id", "incomplete_details", "error")


def recognises(value: Any) -> bool:
    """Whether this is a request, a response, or both, or an object that holds a list of items."""
    if not isinstance(value, dict):
        return False
    if _is_run_state(value):
        return True
    if _is_response(value) or _is_response(value.get("response")):
        return True
    request = value["request"] if isinstance(value.get("request"), dict) else value
    if "messages" in request:
        return False
    items = [request[key] for key in ("input", "items") if isinstance(request.get(key), list)]
    return bool(items) and any(map(is_item, items[0])) and all(map(is_item_or_message, items[0]))


def _is_run_state(value: dict[str, Any]) -> bool:
    return isinstance(value.get("original_input"), str | list) and isinstance(value.get("generated_items"), list)


def _items_of_run(state: dict[str, Any]) -> list[Any]:
    """What an agent of the Agents SDK was asked, and what it did, in a saved state of its run."""
    asked = state["original_input"]
    raw = [object_field(item, "raw_item") for item in state["generated_items"] if isinstance(item, dict)]
    return [*([{"role": "user", "content": asked}] if isinstance(asked, str) else asked), *filter(None, raw)]


def _is_response(value: Any) -> bool:
    return isinstance(value, dict) and value.get("object") == "response" and isinstance(value.get("output"), list)


def is_whole(values: list[Any]) -> bool:
    """Whether a list is one of items: a message alone could be of the chat API."""
    return any(map(is_item, values)) and all(map(is_item_or_message, values))


def read(value: Any, place: Place) -> Trace:
    """The trace of one record.

    Raises:
        InvalidRecord: it cannot be read.
    """
    response = value if _is_response(value) else object_field(value, "response")
    request = value["request"] if isinstance(value.get("request"), dict) else value
    if _is_run_state(value):
        request = {"input": _items_of_run(value)}
    metadata = object_field(response, "metadata") or object_field(request, "metadata")
    dialogue = Dialogue()
    instructions = request.get("instructions") or response.get("instructions")
    if isinstance(instructions, str):
        dialogue.said("system", instructions)
    elif instructions:
        read_items(instructions, dialogue)
    read_items(request.get("input") or request.get("items"), dialogue)
    dialogue.end_turn()
    read_items(response.get("output") or (request.get("output") if isinstance(request.get("output"), list) else None), dialogue)
    created = response.get("created_at") or value.get("created_at")
    conversation = response.get("conversation") or request.get("conversation")
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            dialogue.messages(),
            id=text_field(response, "id") or text_field(value, "id"),
            tools=_tools(list_field(request, "tools") or list_field(response, "tools")),
            session=_session(value, metadata, conversation),
            user=text_field(value, "user", "user_id") or text_field(request, "user") or text_field(metadata, "user_id"),
            created=created if isinstance(created, str) else time_text(nanoseconds(created) or None),
            model=text_field(response, "model") or text_field(request, "model"),
            outcome=reward_field(value, "reward"),
            info={key: part for key, part in value.items() if key not in READ and value is not response}
            | {key: response.get(key) for key in KEPT}
            | {"metadata": metadata},
        ),
    )


def _session(value: dict[str, Any], metadata: dict[str, Any], conversation: Any) -> str | None:
    named = text_field(value, "session_id") or text_field(metadata, "session_id", "session", "conversation_id", "thread_id")
    return named or (text_field(conversation, "id") if isinstance(conversation, dict) else conversation)


def _tools(tools: list[Any]) -> list[dict[str, Any]]:
    """The functions offered; a built-in tool has no name besides its type, and its calls are inferred."""
    return as_tools([tool for tool in tools if isinstance(tool, dict) and tool.get("type") in ("function", "custom", None)])


def read_list(value: Any, place: Place) -> Trace:
    """The trace of a bare list of items.

    Raises:
        InvalidRecord: it cannot be read.
    """
    dialogue = Dialogue()
    read_items(value, dialogue)
    return build_trace(FORMAT, place, RawTrace(dialogue.messages()))


READERS = (
    Reader(FORMAT, recognises, read, signs=Signs.SHAPE),
    Reader(FORMAT, is_item_or_message, read_list, "list", Signs.SHAPE, is_whole),
)
