"""Reads logs of OpenAI's responses API: lists of items, requests with their responses, and stored responses.

A list of items is also what the Agents SDK gives: a result's `to_input_list()`, a session's items, a run's state. A stored
response holds what the agent said but not what it was asked: the conversation begins with the agent. A built-in tool runs at
the provider; its item holds the call and, where asked for, its result. Both are read: a call of the tool's name with the
item's fields as arguments, and a reply.
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Signs,
    Trace,
    as_text,
    as_tools,
    build_trace,
    ending,
    list_field,
    nanoseconds,
    object_field,
    read_parts,
    reward_field,
    text_field,
    with_ending,
)
from tracewheel_logs.dialogue import Dialogue, unreadable
from tracewheel_logs.values import failed_by, time_text

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
RESULTS = {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output"}
RESULTS |= {"apply_patch_call_output", "computer_call_output", "tool_search_output", "program_output"}
# Calls whose result is an item of its own, if the agent runs the tool, and calls that carry it. Values: what holds the result.
BUILT_IN: dict[str, tuple[str, ...]] = {
    "local_shell_call": (),
    "shell_call": (),
    "apply_patch_call": (),
    "computer_call": (),
    "tool_search_call": (),
    "web_search_call": ("results",),
    "file_search_call": ("results",),
    "code_interpreter_call": ("outputs",),
    "mcp_call": ("output", "error"),
    "mcp_list_tools": (),
    "program": (),
}
HOSTED = {"web_search_call", "file_search_call", "code_interpreter_call", "mcp_call"}
# Bookkeeping that nobody said: compaction is the provider's own, encrypted summary; lists of tools are offered, not called.
SILENT = {"mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "compaction", "additional_tools"}
ABOUT = {"id", "type", "status", "call_id", "name", "created_by", "agent", "namespace", "pending_safety_checks"}
SHOWN = {"input_text", "output_text", "text", "input_image", "input_file", "image", "computer_screenshot"}
REFERENCE = "item_reference"
ITEMS = {REFERENCE, *CALLS, *RESULTS, *BUILT_IN, *SILENT, "reasoning"}
ROLES = ("system", "developer", "user", "assistant")


def is_item(value: Any) -> bool:
    """Whether this is an item that only the responses API has (its messages look like those of the chat API)."""
    return isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"] in ITEMS and "role" not in value


def is_item_or_message(value: Any) -> bool:
    """Whether this is an element of a list of items."""
    return is_item(value) or (isinstance(value, dict) and value.get("role") in ROLES and "content" in value)


def read_response_items(items: Any, dialogue: Dialogue) -> None:
    """Add items to a dialogue.

    Args:
        items: A list of items, or a text, which the user said.
        dialogue: What came before.

    Raises:
        InvalidRecord: an item is unknown or holds something that is not text.
    """
    if isinstance(items, str):
        dialogue.said("user", items)
        return
    for position, item in enumerate(items if isinstance(items, list) else []):
        if not isinstance(item, dict):
            raise InvalidRecord("message unreadable", f"item {position} is not an object")
        _read_item(item, dialogue)


def _read_item(item: dict[str, Any], dialogue: Dialogue) -> None:
    kind = item.get("type")
    if "role" in item:
        _read_message(item, dialogue)
    elif kind == "reasoning":
        if dialogue.has_said:
            dialogue.end_turn()
        dialogue.thought(_reasoning(item))
    elif kind in CALLS:
        given = item.get(CALLS[kind])
        dialogue.called(
            item.get("call_id") or item.get("id"), item.get("name"), {"input": given} if kind != "function_call" else given
        )
    elif kind in RESULTS:
        output = next((item[key] for key in ("output", "result", "tools") if item.get(key) is not None), None)
        dialogue.replied(item.get("call_id"), None, _output(output))
    elif kind in SILENT:
        return
    elif kind in BUILT_IN:
        _read_built_in(item, str(kind), dialogue)
    elif kind == REFERENCE:
        raise InvalidRecord("no messages", f"the item {item.get('id')!r:.80} is only named, and lies at the provider")
    else:
        raise unreadable("an item", kind)


def _read_message(item: dict[str, Any], dialogue: Dialogue) -> None:
    role = item["role"]
    content = read_parts(item.get("content"))
    if role == "tool" or item.get("tool_calls"):
        # The Agents SDK keeps a chat model's messages among the items.
        for call in item.get("tool_calls") or []:
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict):
                raise InvalidRecord("tool calls unreadable", "a call has no 'function'")
            dialogue.called(call.get("id"), function.get("name"), function.get("arguments"))
        if role == "tool":
            dialogue.replied(item.get("tool_call_id"), item.get("name"), content.text)
            return
    if content.calls or content.results:
        raise unreadable("a part of a message", "tool")
    if role != "assistant":
        dialogue.said(role, content.text or "")
        return
    if dialogue.has_said:
        dialogue.end_turn()
    dialogue.thought(content.reasoning)
    dialogue.text(content.text or "")
    dialogue.ended(item)


def _reasoning(item: dict[str, Any]) -> str:
    parts = [part for key in ("summary", "content") if isinstance(item.get(key), list) for part in item[key]]
    return "\n\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def _read_built_in(item: dict[str, Any], kind: str, dialogue: Dialogue) -> None:
    results = BUILT_IN[kind]
    name = item.get("name") if kind == "mcp_call" else kind.removesuffix("_call")
    given = {key: value for key, value in item.items() if key not in ABOUT and key not in results and value is not None}
    arguments = given.get("arguments") if kind == "mcp_call" else given
    identity = item.get("call_id") or item.get("id")
    dialogue.called(identity, name, arguments)
    if kind in HOSTED:
        result = next((item[key] for key in results if item.get(key) is not None), None)
        dialogue.replied(identity, None, _output(result))


def _output(output: Any) -> str:
    """A result as text. Parts are joined, with placeholders for images; other JSON becomes JSON text."""
    parts = output if isinstance(output, list) else [output]
    if parts and all(isinstance(part, dict) and part.get("type") in SHOWN for part in parts):
        return read_parts(parts, "\n").text or ""
    return as_text(output)


FORMAT = "openai_responses"
READ = {"request", "response", "input", "output", "items", "instructions", "tools", "model", "id", "object", "created_at"}
READ |= {"metadata", "user", "reward", "original_input", "generated_items", "conversation", "session_id", "user_id"}
# The rest of a saved state is about the run, not the conversation.
READ |= {"model_responses", "last_model_response", "last_processed_response", "session_items", "current_step", "context"}
REQUESTS = ("request", "responses_create_params")
READ |= {"responses_create_params", "_ng_rollout_index"}
KEPT = ("status", "previous_response_id", "incomplete_details", "error")


def recognises(value: Any) -> bool:
    """Whether this is a request, a response, or both, or an object that holds a list of items."""
    if not isinstance(value, dict):
        return False
    if _is_run_state(value):
        return True
    if _is_response(value) or _is_response(value.get("response")):
        return True
    request = _request_of(value)
    if "messages" in request:
        return False
    items = [request[key] for key in ("input", "items") if isinstance(request.get(key), list)]
    return bool(items) and any(map(is_item, items[0])) and all(map(is_item_or_message, items[0]))


def _request_of(value: dict[str, Any]) -> dict[str, Any]:
    """What was asked, where it lies apart (NeMo Gym: `responses_create_params`); else the record itself."""
    return next((value[key] for key in REQUESTS if isinstance(value.get(key), dict)), value)


def _is_run_state(value: dict[str, Any]) -> bool:
    return isinstance(value.get("original_input"), str | list) and isinstance(value.get("generated_items"), list)


def _items_of_run(state: dict[str, Any]) -> list[Any]:
    """What an agent of the Agents SDK was asked, and what it did, in a saved state of its run."""
    asked = state["original_input"]
    items = [item for item in state["generated_items"] if isinstance(item, dict)]
    # A call that waits for approval is an item of its own beside the call.
    raw = [object_field(item, "raw_item") for item in items if item.get("type") != "tool_approval_item"]
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
    request = _request_of(value)
    if _is_run_state(value):
        request = {"input": _items_of_run(value)}
    metadata = object_field(response, "metadata") or object_field(request, "metadata")
    dialogue = Dialogue()
    instructions = request.get("instructions") or response.get("instructions")
    if isinstance(instructions, str):
        dialogue.said("system", instructions)
    elif instructions:
        read_response_items(instructions, dialogue)
    read_response_items(request.get("input") or request.get("items"), dialogue)
    dialogue.end_turn()
    read_response_items(
        response.get("output") or (request.get("output") if isinstance(request.get("output"), list) else None), dialogue
    )
    messages = with_ending(dialogue.messages(), ending(response) or failed_by(response.get("error")))
    created = response.get("created_at") or value.get("created_at")
    conversation = response.get("conversation") or request.get("conversation")
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            messages,
            id=text_field(response, "id") or text_field(value, "id"),
            tools=_tools(list_field(request, "tools") or list_field(response, "tools")),
            session=_session(value, metadata, conversation),
            user=text_field(value, "user", "user_id") or text_field(request, "user") or text_field(metadata, "user_id"),
            created=created if isinstance(created, str) else time_text(nanoseconds(created) or None),
            model=text_field(response, "model") or text_field(request, "model"),
            outcome=reward_field(value, "reward"),
            info={key: part for key, part in value.items() if key not in READ and value is not response}
            | {key: response.get(key) for key in KEPT}
            | {"metadata": metadata, "rollout": value.get("_ng_rollout_index")},
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
    read_response_items(value, dialogue)
    return build_trace(FORMAT, place, RawTrace(dialogue.messages()))


READERS = (
    Reader(FORMAT, recognises, read, signs=Signs.SHAPE),
    Reader(FORMAT, is_item_or_message, read_list, "list", Signs.SHAPE, is_whole),
)
