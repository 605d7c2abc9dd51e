"""Reads Gemini's and Vertex AI's `contents` with `parts`: conversations, and for `requests` the bodies of requests.

Keys are in the API's camel case or in the Python SDK's snake case. Calls may lack ids: results go to the open calls of their
name, in order.
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
    Place,
    RawTrace,
    Reader,
    Trace,
    as_tools,
    build_trace,
    list_field,
    message_list,
    object_field,
    text_field,
)
from tracewheel_logs.dialogue import Dialogue, unreadable
from tracewheel_logs.logged_request import LoggedRequest, RequestBodies

FORMAT = "gemini"
ROLES = ("user", "model", "function", "tool", "system", None)
CALL, RESULT = ("functionCall", "function_call"), ("functionResponse", "function_response")
CODE, OUTPUT = ("executableCode", "executable_code"), ("codeExecutionResult", "code_execution_result")
FILES = ("inlineData", "inline_data", "fileData", "file_data")
SYSTEM = ("systemInstruction", "system_instruction")
TOOL, TOOL_OUTPUT = ("toolCall", "tool_call"), ("toolResponse", "tool_response")
TYPED = {"type", "part_kind", "kind"}
SIGNS = {"text", "thought", *CALL, *RESULT, *CODE, *OUTPUT, *FILES}
REQUEST = {"contents", "tools", "config", "generationConfig", *SYSTEM}


def is_content(value: Any) -> bool:
    """Whether this may be one of a conversation's contents. A part has no type, but one key that says what it is."""
    if not isinstance(value, dict) or value.get("role") not in ROLES or not isinstance(value.get("parts"), list):
        return False
    return all(isinstance(part, dict) and TYPED.isdisjoint(part) for part in value["parts"])


def is_whole(values: Any) -> bool:
    """Whether this is a conversation."""
    if not isinstance(values, list) or not all(map(is_content, values)):
        return False
    return any(SIGNS & part.keys() for content in values for part in content["parts"])


def recognises(value: Any) -> bool:
    """Whether this is a conversation: a request without its response."""
    return isinstance(value, dict) and is_whole(value.get("contents"))


def is_request(body: dict[str, Any]) -> bool:
    """Whether this is the body of a request."""
    contents = body.get("contents")
    return is_whole([contents] if isinstance(contents, dict) else contents) or isinstance(contents, str)


def is_response(body: dict[str, Any]) -> bool:
    """Whether this is the body of a response."""
    return isinstance(body.get("candidates"), list) or "promptFeedback" in body


def read_exchange(request: dict[str, Any], response: dict[str, Any]) -> LoggedRequest:
    """A request with its response.

    Raises:
        InvalidRecord: a part is not text, a call or a result.
    """
    asked, said = _asked(request), Dialogue()
    candidates = list_field(response, "candidates")
    first = candidates[0] if candidates else None
    if isinstance(first, dict) and isinstance(first.get("content"), dict):
        read_contents([{**first["content"], "role": "model"}], said)
        said.ended(first)
    return LoggedRequest(
        asked.messages(),
        said.messages(),
        id=text_field(response, "responseId", "response_id"),
        previous=None,
        session=None,
        user=None,
        created=text_field(response, "createTime", "create_time"),
        model=text_field(response, "modelVersion", "model_version") or text_field(request, "model"),
        outcome=None,
        task=None,
        tools=_offered(request),
        info=dict.fromkeys(REQUEST),
    )


def _asked(request: dict[str, Any]) -> Dialogue:
    dialogue = Dialogue()
    config = object_field(request, "config")
    system = next((holder[key] for holder in (request, config) for key in SYSTEM if holder.get(key)), None)
    if system is not None:
        dialogue.said("system", _system(system))
    contents = request.get("contents")
    if isinstance(contents, str):
        dialogue.said("user", contents)
    else:
        read_contents([contents] if isinstance(contents, dict) else message_list(request, "contents"), dialogue)
    return dialogue


def _offered(request: dict[str, Any]) -> list[dict[str, Any]]:
    return as_tools(list_field(request, "tools") or list_field(object_field(request, "config"), "tools"))


def read(value: Any, place: Place) -> Trace:
    """The trace of one conversation.

    Raises:
        InvalidRecord: it cannot be read.
    """
    info = {key: part for key, part in value.items() if key not in REQUEST}
    return build_trace(FORMAT, place, RawTrace(_asked(value).messages(), tools=_offered(value), info=info))


def read_list(value: Any, place: Place) -> Trace:
    """The trace of a bare list of contents.

    Raises:
        InvalidRecord: it cannot be read.
    """
    dialogue = Dialogue()
    read_contents(value, dialogue)
    return build_trace(FORMAT, place, RawTrace(dialogue.messages()))


def read_contents(contents: list[Any], dialogue: Dialogue) -> None:
    """Add contents to a dialogue.

    Raises:
        InvalidRecord: a part is not text, a call or a result.
    """
    for content in contents:
        role = "assistant" if content.get("role") == "model" else "system" if content.get("role") == "system" else "user"
        texts: list[str] = []
        dialogue.end_turn()
        for part in content.get("parts") or []:
            read_part(part, role, dialogue, texts)
        if texts:
            dialogue.said(role, "".join(texts))
        elif role == "assistant" and not content.get("parts"):
            dialogue.text("")


def read_part(part: Any, role: str, dialogue: Dialogue, texts: list[str]) -> None:
    """Add a part to a dialogue; a text of someone other than the agent to `texts`, as parts of one content are one message.

    Raises:
        InvalidRecord: it is not text, a call or a result.
    """
    if not isinstance(part, dict):
        raise unreadable("a part", type(part).__name__)
    call, result, code, output = (_first(part, keys) for keys in (CALL, RESULT, CODE, OUTPUT))
    tool, tool_output = _first(part, TOOL), _first(part, TOOL_OUTPUT)
    if isinstance(call, dict):
        dialogue.called(call.get("id"), call.get("name"), call.get("args"))
    elif isinstance(result, dict):
        dialogue.replied(result.get("id"), result.get("name"), result.get("response"))
    elif isinstance(code, dict):
        dialogue.called(None, "code_execution", {key: code.get(key) for key in ("language", "code") if code.get(key)})
    elif isinstance(output, dict):
        dialogue.replied(None, "code_execution", output.get("output"))
    elif isinstance(tool, dict):
        # A tool that runs at the provider.
        dialogue.called(tool.get("id"), _tool_type(tool), tool.get("args"))
    elif isinstance(tool_output, dict):
        dialogue.replied(tool_output.get("id"), _tool_type(tool_output), tool_output.get("response"))
    elif isinstance(part.get("text"), str):
        if role != "assistant":
            texts.append(part["text"])
        elif part.get("thought") is True:
            dialogue.thought(part["text"])
        else:
            dialogue.text(part["text"])
    else:
        shown = [key for key, value in part.items() if value not in (None, "", False)]
        if set(shown) - {"thoughtSignature", "thought_signature", "thought"}:
            raise unreadable("a part", ", ".join(map(str, shown)))


def _tool_type(tool: dict[str, Any]) -> str:
    return (text_field(tool, "toolType", "tool_type") or "tool").lower()


def _first(part: dict[str, Any], keys: tuple[str, ...]) -> Any:
    return next((part[key] for key in keys if part.get(key) is not None), None)


def _system(system: Any) -> str:
    parts = system.get("parts") if isinstance(system, dict) else system
    texts = [
        part if isinstance(part, str) else object_field({"part": part}, "part").get("text")
        for part in (parts if isinstance(parts, list) else [parts])
    ]
    return "\n".join(text for text in texts if isinstance(text, str))


BODIES = RequestBodies(is_request, is_response, read_exchange)
READERS = (Reader(FORMAT, recognises, read), Reader(FORMAT, is_content, read_list, "list", is_whole=is_whole))
