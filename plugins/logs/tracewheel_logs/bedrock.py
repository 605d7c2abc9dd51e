"""Reads Bedrock's Converse API: conversations, and for `requests` the bodies of requests and the model invocation log.

Content blocks have one key that names them: `text`, `toolUse`, `toolResult`, `reasoningContent`.
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
    list_field,
    message_list,
    object_field,
    parsed_json,
    text_field,
)
from tracewheel_logs.dialogue import Dialogue, unreadable
from tracewheel_logs.logged_request import LoggedRequest, RequestBodies

FORMAT = "bedrock"
BLOCKS = {"text", "toolUse", "toolResult", "reasoningContent", "image", "document", "video", "cachePoint", "guardContent"}
BLOCKS |= {"citationsContent", "searchResult"}
READ = {"messages", "system", "toolConfig", "modelId", "inferenceConfig"}
LOG_KEYS = {"input", "output", "requestId", "modelId", "timestamp", "schemaType", "schemaVersion", "accountId", "identity"}
USED = ("output", "usage", "metrics", "stopReason", "ResponseMetadata", "modelId", "model", "timestamp")


def is_message(value: Any) -> bool:
    """Whether this is a message of Converse: its blocks have no type, but one key that names them."""
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list) or not content or value.get("role") not in ("user", "assistant"):
        return False
    return all(isinstance(block, dict) and "type" not in block and bool(block.keys() & BLOCKS) for block in content)


def is_whole(values: Any) -> bool:
    """Whether this is a conversation."""
    return isinstance(values, list) and bool(values) and all(map(is_message, values))


def recognises(value: Any) -> bool:
    """Whether this is a conversation: a request without its response."""
    return isinstance(value, dict) and is_whole(value.get("messages"))


def is_invocation(value: Any) -> bool:
    """Whether this is an entry of Bedrock's model invocation log."""
    return isinstance(value, dict) and value.get("schemaType") == "ModelInvocationLog" and "input" in value


def pair_of(entry: dict[str, Any]) -> dict[str, Any]:
    """The request and the response of an entry of the invocation log, and what lies beside them.

    Raises:
        InvalidRecord: the entry holds no messages.
    """
    request = parsed_json(object_field(entry, "input").get("inputBodyJson"))
    response = parsed_json(object_field(entry, "output").get("outputBodyJson"))
    if not isinstance(request, dict) or not isinstance(request.get("messages"), list):
        raise InvalidRecord("no messages", "'input.inputBodyJson' has no messages; large bodies lie in a file of their own")
    if isinstance(response, list):
        # The events of a stream, as `InvokeModelWithResponseStream` logs them.
        response = "\n".join(f"data: {as_text(event)}" for event in response)
    rest = {key: part for key, part in entry.items() if key not in LOG_KEYS}
    about = {"id": entry.get("requestId"), "model": entry.get("modelId"), "timestamp": entry.get("timestamp")}
    return {**rest, **about, "request": request, "response": response}


def is_request(body: dict[str, Any]) -> bool:
    """Whether this is the body of a request of Converse."""
    return is_whole(body.get("messages"))


def is_response(body: dict[str, Any]) -> bool:
    """Whether this is the body of a response of Converse."""
    return "stopReason" in body or "message" in object_field(body, "output")


def read_exchange(request: dict[str, Any], response: dict[str, Any]) -> LoggedRequest:
    """A request with its response.

    Raises:
        InvalidRecord: a block is not text, a call or a result.
    """
    asked, said = _asked(request), Dialogue()
    output = object_field(response, "output").get("message")
    if isinstance(output, dict):
        read_messages([output], said)
        said.ended(response)
    tools = _tools(list_field(object_field(request, "toolConfig"), "tools"))
    model = text_field(request, "modelId")
    return LoggedRequest(
        asked.messages(), said.messages(), None, None, None, None, None, model, None, None, tools, dict.fromkeys(USED)
    )


def _asked(request: dict[str, Any]) -> Dialogue:
    dialogue = Dialogue()
    for block in list_field(request, "system"):
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            dialogue.said("system", block["text"])
    read_messages(message_list(request), dialogue)
    return dialogue


def read(value: Any, place: Place) -> Trace:
    """The trace of one conversation.

    Raises:
        InvalidRecord: it cannot be read.
    """
    tools = _tools(list_field(object_field(value, "toolConfig"), "tools"))
    info = {key: part for key, part in value.items() if key not in READ}
    found = RawTrace(_asked(value).messages(), tools=tools, model=text_field(value, "modelId"), info=info)
    return build_trace(FORMAT, place, found)


def read_list(value: Any, place: Place) -> Trace:
    """The trace of a bare list of messages.

    Raises:
        InvalidRecord: it cannot be read.
    """
    return read({"messages": value}, place)


def read_messages(messages: list[Any], dialogue: Dialogue) -> None:
    """Add messages to a dialogue.

    Raises:
        InvalidRecord: a block is not text, a call or a result.
    """
    for message in messages:
        dialogue.end_turn()
        texts: list[str] = []
        for block in message.get("content") or []:
            _read_block(block, message.get("role"), dialogue, texts)
        if texts:
            dialogue.said("user", "".join(texts))
        elif message.get("role") == "assistant" and not message.get("content"):
            dialogue.text("")


def _read_block(block: dict[str, Any], role: Any, dialogue: Dialogue, texts: list[str]) -> None:
    call, result, thought = block.get("toolUse"), block.get("toolResult"), block.get("reasoningContent")
    if isinstance(call, dict):
        dialogue.called(call.get("toolUseId"), call.get("name"), call.get("input"))
    elif isinstance(result, dict):
        dialogue.replied(result.get("toolUseId"), None, _result(result.get("content")))
    elif isinstance(thought, dict):
        dialogue.thought(as_text(object_field(thought, "reasoningText").get("text")))
    elif isinstance(block.get("text"), str):
        if role == "assistant":
            dialogue.text(block["text"])
        else:
            texts.append(block["text"])
    elif "guardContent" in block and isinstance(object_field(block["guardContent"], "text").get("text"), str):
        texts.append(block["guardContent"]["text"]["text"])
    elif "citationsContent" in block:
        dialogue.text("".join(as_text(one.get("text")) for one in list_field(block["citationsContent"], "content")))
    elif set(block) != {"cachePoint"}:
        raise unreadable("a block", ", ".join(map(str, block)))


def _result(content: Any) -> str:
    texts = []
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif isinstance(block, dict) and "json" in block:
            texts.append(as_text(block["json"]))
        else:
            raise unreadable(
                "a result's block", ", ".join(map(str, block)) if isinstance(block, dict) else type(block).__name__
            )
    return "\n".join(texts)


def _tools(tools: list[Any]) -> list[dict[str, Any]]:
    specs = [tool["toolSpec"] for tool in tools if isinstance(tool, dict) and isinstance(tool.get("toolSpec"), dict)]
    return as_tools([{**spec, "inputSchema": object_field(spec, "inputSchema").get("json")} for spec in specs])


BODIES = RequestBodies(is_request, is_response, read_exchange, is_invocation, pair_of)
READERS = (
    Reader(FORMAT, recognises, read, signs=Signs.NAMED),
    Reader(FORMAT, is_message, read_list, "list", is_whole=is_whole),
)
