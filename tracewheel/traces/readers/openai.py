"""Reads logs in OpenAI chat format: one JSON object a conversation, with `messages` and `tools`.

A record holds `messages` (roles, `tool_calls` with JSON text as arguments, tool replies with the id of their call) and,
where logged, `id`, `session`, `user`, `created`, `model`, `tools`, `reward`, `task`, `tokens` and `environment`
(`{"kind": …}` and the arguments with which that environment starts the episode again). The older `functions` and
`function_call` are read too. Requests with their responses are `requests`' to read.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tracewheel.core.types import Trace
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.building import build_trace, checked_tokens, made_id
from tracewheel.traces.readers.dialects import ROLE_NAMES, as_chat, tie_calls
from tracewheel.traces.readers.fields import message_list, reward_field, utc_time
from tracewheel.traces.readers.messages import are_sound, is_strict
from tracewheel.traces.readers.reader import Place, RawTrace, Reader, Signs
from tracewheel.traces.readers.tools import ToolCache, as_tools, given_tools, infer_tools
from tracewheel.traces.readers.unread import READ as READ_OF_MESSAGES
from tracewheel.traces.readers.warnings import LONG

FORMAT = "openai"
TEXTS = ("id", "session", "user", "created", "model", "task")
USUAL = {*TEXTS, "messages", "tools", "environment", "reward"}
ROLE_AND_TEXT = {"role", "content"}
# Fields of messages that are not in OpenAI's current form.
OTHER_KEYS = READ_OF_MESSAGES - {"role", "type", "content", "tool_calls", "tool_call_id", "name", "reasoning"}
READ = {
    "messages",
    "tools",
    "environment",
    "reward",
    "functions",
    "tokens",
}


def recognises(value: Any) -> bool:
    """Whether this may be a conversation. The least specific format, so it is tried last."""
    return isinstance(value, dict) and "messages" in value


def read(value: Any, place: Place) -> Trace:
    """The trace of one record.

    Raises:
        InvalidRecord: it cannot be read.
    """
    messages = openai_messages(message_list(value))
    tools = given_tools(value.get("tools")) or as_tools(value.get("functions"))
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            messages,
            tools=tools,
            environment=value.get("environment"),
            outcome=reward_field(value, "reward"),
            tokens=checked_tokens(value.get("tokens")),
            info={key: part for key, part in value.items() if key not in READ},
        ),
    )


def openai_messages(messages: list[Any]) -> list[Any]:
    """The messages with the current names of fields and roles: those of older logs, other servers and SDKs are converted.

    Raises:
        InvalidRecord: a message has content that is not text, or something that was not read.
    """
    if not any(map(_is_other, messages)):
        return messages
    renewed: list[Any] = []
    for position, message in enumerate(messages):
        renewed += _renewed(message, position) if _is_other(message) else [message]
    return tie_calls(renewed)


def _is_other(message: Any) -> bool:
    if not isinstance(message, dict):
        return False
    role = message.get("role")
    if (isinstance(role, str) and role in ROLE_NAMES) or not OTHER_KEYS.isdisjoint(message):
        return True
    content, calls = message.get("content"), message.get("tool_calls")
    if isinstance(calls, list) and any(isinstance(call, dict) and "custom" in call for call in calls):
        return True
    if content is None or content.__class__ is str:
        return False
    parts = content if isinstance(content, list) else [content]
    return any(not isinstance(part, dict) or part.get("type") != "text" or "text" not in part for part in parts)


def _renewed(message: dict[str, Any], position: int) -> list[dict[str, Any]]:
    """The messages of one in another form; the first of the agent's keeps its other fields."""
    try:
        made = as_chat([message])
    except InvalidRecord as error:
        raise InvalidRecord(error.reason, error.detail.replace("message 0", f"message {position}", 1)) from error
    rest = {key: value for key, value in message.items() if key not in READ_OF_MESSAGES and value is not None}
    own = next((one for one in made if one["role"] != "tool" or len(made) == 1), None)
    if own is not None:
        own |= {key: value for key, value in rest.items() if key not in own}
    return made


def read_usual(
    raw: bytes, file: str, line: int, cache: ToolCache, without_tools: Collection[str] | None = None
) -> Trace | None:
    """The trace of a valid line with the usual fields only; None for any other line, which needs `read`. Fast.

    A line without tools needs the keys `without_tools`, those of a record that was found to be of this format.
    """
    try:
        record = cache.parse(raw)
    except ValueError:
        return None
    if record.__class__ is not dict or not record.keys() <= USUAL:
        return None
    get = record.get
    messages, environment, reward = get("messages"), get("environment"), get("reward")
    texts = get("id"), get("session"), get("user"), get("created"), get("model"), get("task")
    for text in texts:
        if text is not None and (text.__class__ is not str or not text):
            return None
    if texts[3] is not None and utc_time(texts[3]) != texts[3]:
        return None
    if reward is not None and (reward.__class__ not in (int, float) or not is_strict(reward)):
        return None
    if environment is not None and not _is_usual_environment(environment):
        return None
    is_without = get("tools") is None
    if is_without and (record.keys() != without_tools or environment is not None or any(map(_is_long, texts))):
        return None
    tools = None if is_without else cache.checked(get("tools"), raw)
    if not (tools or is_without) or messages.__class__ is not list or not are_sound(messages):
        return None
    identity, session, user, created, model, task = texts
    inferred = infer_tools(messages) if is_without else []
    if created is None and messages[0].keys() != ROLE_AND_TEXT:  # its time may be the trace's
        return None
    return Trace(
        identity or made_id(messages, environment, session, user),
        messages,
        tools or inferred,
        environment,
        session,
        user,
        created,
        model,
        None if reward is None else float(reward),
        file,
        line,
        FORMAT,
        task,
        tools_inferred=bool(inferred),
    )


def _is_long(text: str | None) -> bool:
    return text is not None and len(text) > LONG


def _is_usual_environment(environment: Any) -> bool:
    return (
        environment.__class__ is dict
        and environment.get("kind").__class__ is str
        and "verifier" not in environment
        and is_strict(environment)
    )


def is_list_element(value: Any) -> bool:
    """Whether this is an element of a bare list of messages."""
    return isinstance(value, dict) and isinstance(value.get("role"), str) and "content" in value


def read_list(value: Any, place: Place) -> Trace:
    """The trace of a bare list of messages.

    Raises:
        InvalidRecord: it cannot be read.
    """
    return read({"messages": value}, place)


READER = Reader(FORMAT, recognises, read, signs=Signs.GENERAL)
READERS = (READER, Reader(FORMAT, is_list_element, read_list, "list", Signs.GENERAL))
