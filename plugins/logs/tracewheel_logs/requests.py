"""Reads logs of single model requests, as proxies and SDK callbacks write them, and joins them into conversations.

A record holds a request and its response: `{"request", "response"}` (their bodies perhaps under `body`, or as text), Helicone's
`request_body` and `response_body`, LiteLLM's `messages` and `response`, an entry of an HTTP archive (HAR 1.2) or of a
provider's own log, or the body of a request alone. Bodies are those of OpenAI's chat completions and responses, of Anthropic's
messages, and those that wheels read (`RequestBodies`); a response may be the text of a stream. Each request repeats the
conversation so far, so `request_chains` finds the request that it continues.
"""

from __future__ import annotations

import functools
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Signs,
    Trace,
    as_chat,
    as_tools,
    build_trace,
    ending,
    object_field,
    parsed_json,
    read_parts,
    request_bodies,
    reward_field,
    text_field,
    tie_calls,
    with_ending,
)
from tracewheel_logs.dialogue import Dialogue
from tracewheel_logs.logged_request import LoggedRequest, RequestBodies
from tracewheel_logs.openai_responses import read_response_items
from tracewheel_logs.request_chains import RequestTable
from tracewheel_logs.streams import is_stream, response_of_events, response_of_stream
from tracewheel_logs.values import failed_by

FORMAT = "requests"
PAIRS = (("request", "response"), ("request_body", "response_body"))
# Settings of a request that no log of a whole conversation has.
SETTINGS = {"temperature", "top_p", "max_tokens", "max_completion_tokens", "max_output_tokens", "stream", "stream_options"}
SETTINGS |= {"stop_sequences", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort", "thinking"}
OUTPUTS = ("choices", "content", "output")
NOT_SENT = ("reasoning", "unfinished")
CLAUDE_CODE_SESSION = re.compile(r"_session_([0-9a-f-]{36})$")
SESSIONS = ("session", "session_id", "sessionId", "conversation_id", "thread_id", "Helicone-Session-Id")
USERS = ("user", "user_id", "userId", "end_user", "request_user_id")
TIMES = ("startTime", "start_time", "startedDateTime", "request_created_at", "created", "created_at", "timestamp", "logged_at")
BODIES = {name for pair in PAIRS for name in pair} | {"messages", "choices", "cache", "timings"}


def recognises(value: Any) -> bool:
    """Whether a record is of a request (its body, and its response or settings that only requests have), or an archive."""
    if not isinstance(value, dict):
        return False
    if _entries(value) is not None or _is_entry(value) or _exchange(value) is not None:
        return True
    request, response = _bodies(value)
    if not _is_request_body(request) or _has_converse_blocks(request):
        return False
    if request is not value:
        return True
    if any(key in value for key in ("response", "choices", "call_type")):
        return bool(response) or "call_type" in value
    messages = value.get("messages")
    unanswered = isinstance(messages, list) and isinstance(messages[-1], dict) and messages[-1].get("role") != "assistant"
    return unanswered and not SETTINGS.isdisjoint(value) and "reward" not in value and "environment" not in value


@functools.cache
def _families() -> tuple[RequestBodies, ...]:
    return request_bodies()


def _is_entry(value: Any) -> bool:
    return any(bodies.is_entry(value) for bodies in _families() if bodies.is_entry)


def _entries(value: Any) -> list[Any] | None:
    """The entries of an HTTP archive; None for any other value."""
    log = value.get("log") if isinstance(value, dict) else None
    found = log.get("entries") if isinstance(log, dict) else None
    return found if isinstance(found, list) and all(isinstance(entry, dict) for entry in found) else None


def read_request(value: dict[str, Any]) -> LoggedRequest:
    """The request of a record.

    Raises:
        InvalidRecord: it cannot be read.
    """
    for bodies in _families():
        if bodies.pair_of and bodies.is_entry and bodies.is_entry(value):
            value = bodies.pair_of(value)
    exchange = _exchange(value)
    if exchange is not None:
        family, request, response = exchange
        return _with_fields(family.read_exchange(request, response), value)
    request, response = _bodies(value)
    if not _is_request_body(request):
        raise InvalidRecord("unknown format", "no body of a request to a model: 'messages' or 'input' is to be a list")
    metadata = {**object_field(value, "metadata"), **object_field(value, "properties"), **object_field(request, "metadata")}
    metadata |= object_field(value, "request_properties")
    sent = _conversation(request)
    inputs = as_chat(sent) if "messages" in request else _items(sent)
    system = request.get("system") or request.get("instructions")
    if system:
        inputs = [{"role": "system", "content": read_parts(parsed_json(system), "\n").text}, *inputs]
    user = text_field(request, "user") or text_field(value, *USERS) or text_field(metadata, *USERS)
    parameters = object_field(value, "model_parameters")
    of_claude_code = CLAUDE_CODE_SESSION.search(user or "")
    error = object_field(response, "error") or object_field(value, "error_information")
    return LoggedRequest(
        inputs,
        _outputs(response),
        id=text_field(response, "id") or text_field(value, "id", "request_id"),
        previous=text_field(request, "previous_response_id"),
        session=(of_claude_code[1] if of_claude_code else None)
        or text_field(value, *SESSIONS)
        or text_field(metadata, *SESSIONS)
        or text_field(value, "trace_id"),
        user=(user[: of_claude_code.start()] if user and of_claude_code else user) or text_field(parameters, "user"),
        created=_created(value, object_field(value, "request"), response),
        model=text_field(response, "model") or text_field(request, "model") or text_field(value, "model"),
        outcome=reward_field(value, "reward"),
        task=text_field(value, "task", "task_id"),
        tools=as_tools(request.get("tools") or parameters.get("tools")) or as_tools(request.get("functions")),
        info={key: part for key, part in value.items() if key not in BODIES} | {"error": error},
    )


def _exchange(value: dict[str, Any]) -> tuple[RequestBodies, dict[str, Any], dict[str, Any]] | None:
    """The family of a record's bodies, and the bodies; None if they are of no family."""
    request, response = _bodies(value)
    family = next((family for family in _families() if family.is_request(request)), None)
    if family is None or (request is value and not family.is_response(value)):
        return None
    return family, request, value if request is value else response


def _with_fields(request: LoggedRequest, value: dict[str, Any]) -> LoggedRequest:
    """The request with what lies beside its bodies."""
    metadata = {
        **object_field(value, "metadata"),
        **object_field(value, "requestMetadata"),
        **object_field(value, "properties"),
    }
    return replace(
        request,
        id=request.id or text_field(value, "id", "request_id"),
        session=text_field(value, *SESSIONS) or text_field(metadata, *SESSIONS),
        user=text_field(value, *USERS) or text_field(metadata, *USERS),
        created=request.created or _created(value),
        model=request.model or text_field(value, "model", "modelId"),
        outcome=reward_field(value, "reward"),
        task=text_field(value, "task", "task_id"),
        info={key: part for key, part in value.items() if key not in BODIES | request.info.keys()},
    )


def _created(*holders: dict[str, Any]) -> str | None:
    return next((str(holder[key]) for holder in holders for key in TIMES if holder.get(key)), None)


def _bodies(value: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The bodies of a record's request and response; the record itself, where it has the request's fields."""
    for names in PAIRS:
        request, response = (_body(value.get(name)) for name in names)
        if request:
            return request, response
    response = _body(value.get("response")) or {
        key: value[key] for key in ("id", "created", "model", "choices") if key in value
    }
    return value, response if any(isinstance(response.get(key), list) for key in OUTPUTS) else {}


def _body(value: Any) -> dict[str, Any]:
    """The body of a logged request or response: itself, or its part or text; empty without one."""
    value = _from_text(value)
    if isinstance(value, list) and value and all(isinstance(event, dict) for event in value):
        value = response_of_events(value)  # a stream as a list of its events
    if not isinstance(value, dict):
        return {}
    for inner in (
        value.get("body"),
        value.get("body_raw"),
        *(object_field(value, key).get("text") for key in ("postData", "content")),
    ):
        if inner:
            found = _from_text(inner)
            return found if isinstance(found, dict) else {}
    return value


def _from_text(value: Any) -> Any:
    return response_of_stream(value) if isinstance(value, str) and is_stream(value) else parsed_json(value)


def _is_request_body(body: dict[str, Any]) -> bool:
    messages = _conversation(body)
    if isinstance(body.get("input"), str) and isinstance(body.get("model"), str):
        return bool(messages)
    return isinstance(messages, list) and bool(messages) and all(isinstance(message, dict) for message in messages)


def _has_converse_blocks(body: dict[str, Any]) -> bool:
    """Whether a body is of Bedrock's Converse, whose blocks have no type."""
    messages = _conversation(body)
    blocks = messages[0].get("content") if isinstance(messages, list) else None
    return isinstance(blocks, list) and any(isinstance(block, dict) and "type" not in block for block in blocks)


def _conversation(body: dict[str, Any]) -> Any:
    """What was sent: `messages`, or the responses form's `input`."""
    return parsed_json(body.get("messages") or body.get("input"))


def _outputs(response: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a response, of which the last is marked if it was cut or failed."""
    choices = response.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return with_ending(_said(response), ending(choice, response))


def _said(response: dict[str, Any]) -> list[dict[str, Any]]:
    choices, content, output = (response.get(key) for key in OUTPUTS)
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        message = choices[0].get("message")
        return as_chat([{"role": "assistant", **message}]) if isinstance(message, dict) else []
    if isinstance(content, list) and content:
        return as_chat([{"role": "assistant", "content": content}])
    return _items(output) if isinstance(output, list) else []


def _items(items: Any) -> list[dict[str, Any]]:
    """The messages in the responses form's items, or in its text."""
    dialogue = Dialogue()
    read_response_items(items, dialogue)
    return dialogue.messages()


def trace_of(chain: list[LoggedRequest], place: Place) -> Trace:
    """The trace of requests that continue one another, the first one first.

    Raises:
        InvalidRecord: they make no valid conversation.
    """
    if chain[0].previous:
        raise InvalidRecord("beginning is missing", f"it continues the response {chain[0].previous!r:.80}, which was not read")
    last = chain[-1]
    messages: list[dict[str, Any]] = []
    for request in chain:
        inputs = request.inputs
        if request.previous:
            repeated = bool(messages) and inputs[:1] == messages[:1]
            inputs = [*messages, *inputs[repeated:]]
        messages = [*_with_thoughts(inputs, messages), *request.outputs]
    if not last.outputs:
        messages = with_ending(messages, failed_by(last.info.get("error")))
    tools = {tool["function"]["name"]: tool for request in chain for tool in request.tools}

    def first(name: str) -> Any:
        return next((value for request in chain if (value := getattr(request, name)) is not None), None)

    # Where each request has another, it is the request's own id, not a session's.
    sessions = {request.session for request in chain if request.session is not None}
    outcomes = [request.outcome for request in chain if request.outcome is not None]
    responses = [request.id for request in chain[:-1] if request.id]
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            tie_calls(messages),
            id=last.id,
            tools=list(tools.values()),
            session=sessions.pop() if len(sessions) == 1 else None,
            user=first("user"),
            created=first("created"),
            model=last.model,
            outcome=outcomes[-1] if outcomes else None,
            task=first("task"),
            info={**last.info, "requests": len(chain), **({"responses": responses} if responses else {})},
        ),
    )


def _with_thoughts(inputs: list[dict[str, Any]], earlier: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages sent, with the reasoning and the ends of the earlier responses, which clients do not send back."""
    told = [
        {**sent, **{key: known[key] for key in NOT_SENT if known.get(key) and not sent.get(key)}}
        if sent.get("role") == "assistant" == known.get("role")
        else sent
        for sent, known in zip(inputs, earlier, strict=False)
    ]
    return [*told, *inputs[len(told) :]]


def _read(values: Any, place: Place) -> Trace:
    return trace_of([read_request(value) for value in values], place)


def _parts(value: Any) -> list[tuple[str, Any]]:
    """The requests of a record; which group they are of only all of them say."""
    archived = _entries(value)
    if archived is None:
        read_request(value)  # what cannot be read goes to quarantine at once
    return [("", one) for one in ([value] if archived is None else archived)]


def chains(parts: Iterable[tuple[int, Any]]) -> Iterator[list[int]]:
    """The numbers of the requests that continue one another; one that cannot be read is alone."""
    with closing(sqlite3.connect("")) as database:  # a file without a name: what is not redacted never has one on the disk
        database.execute("PRAGMA journal_mode = OFF")
        table = RequestTable(database)
        for number, value in parts:
            try:
                table.add(number, read_request(value))
            except InvalidRecord:
                yield [number]
        yield from table.chains()


READERS = (Reader(FORMAT, recognises, _read, "group", Signs.NAMED, parts=_parts, chains=chains),)
