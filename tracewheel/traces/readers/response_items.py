"""The items of OpenAI's responses API: messages, reasoning, calls, results, and the calls of its built-in tools.

A built-in tool runs at the provider; its item holds the call and, where asked for, its result. Both are read: a call of the
tool's name with the item's fields as arguments, and a reply.
"""

from __future__ import annotations

from typing import Any

from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.content import as_text, read_parts
from tracewheel.traces.readers.dialogue import Dialogue, unreadable

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
REFERENCE = "item_reference"
ITEMS = {REFERENCE, *CALLS, *RESULTS, *BUILT_IN, *SILENT, "reasoning"}
ROLES = ("system", "developer", "user", "assistant")


def is_item(value: Any) -> bool:
    """Whether this is an item that only the responses API has (its messages look like those of the chat API)."""
    return isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"] in ITEMS and "role" not in value


def is_item_or_message(value: Any) -> bool:
    """Whether this is an element of a list of items."""
    return is_item(value) or (isinstance(value, dict) and value.get("role") in ROLES and "content" in value)


def read_items(items: Any, dialogue: Dialogue) -> None:
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
        if dialogue.has_text:
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
    if dialogue.has_text:
        dialogue.end_turn()
    dialogue.thought(content.reasoning)
    dialogue.text(content.text or "")


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
    """A result as text. Parts of text are joined; other JSON becomes JSON text, but images are not text."""
    if isinstance(output, list) and output and all(isinstance(part, dict) and "type" in part for part in output):
        kinds = {part["type"] for part in output}
        if kinds <= {"input_text", "output_text", "text"}:
            return read_parts(output).text or ""
        if kinds & {"input_image", "input_file", "image", "computer_screenshot"}:
            raise unreadable("a result's part", sorted(map(str, kinds))[0])
    if isinstance(output, dict) and output.get("type") in ("computer_screenshot", "input_image"):
        raise unreadable("a result", output["type"])
    return as_text(output)
