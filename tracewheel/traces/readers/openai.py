"""Reads logs in OpenAI chat format: one JSON object a conversation, with `messages` and `tools`.

A record holds `messages` (roles, `tool_calls` with JSON text as arguments, tool replies with the id of their call) and,
where logged, `id`, `session`, `user`, `created`, `model`, `tools`, `reward`, `task`, `tokens` and `environment`
(`{"kind": …}` and the arguments with which that environment starts the episode again). The older `functions` and
`function_call` are read too. Requests with their responses are `requests`' to read.
"""

from __future__ import annotations

from typing import Any

from tracewheel.core.types import Trace
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.building import (
    Place,
    RawTrace,
    build_trace,
    checked_tokens,
    made_id,
    message_list,
    reward_field,
)
from tracewheel.traces.readers.dialects import tie_calls
from tracewheel.traces.readers.messages import are_sound, is_strict
from tracewheel.traces.readers.reader import Reader, Signs
from tracewheel.traces.readers.times import utc_time
from tracewheel.traces.readers.tool_cache import ToolCache
from tracewheel.traces.readers.tools import as_tools, check_tools

FORMAT = "openai"
TEXTS = ("id", "session", "user", "created", "model", "task")
USUAL = {*TEXTS, "messages", "tools", "environment", "reward"}
ROLE_AND_TEXT = {"role", "content"}
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
    environment = value.get("environment")
    if environment is not None and not (isinstance(environment, dict) and isinstance(environment.get("kind"), str)):
        raise InvalidRecord("environment unreadable", "'environment' is to be an object with a 'kind'")
    tools = check_tools(value.get("tools") or []) or as_tools(value.get("functions"))
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            messages,
            tools=tools,
            environment=environment,
            outcome=reward_field(value, "reward"),
            tokens=checked_tokens(value.get("tokens")),
            info={key: part for key, part in value.items() if key not in READ},
        ),
    )


def openai_messages(messages: list[Any]) -> list[Any]:
    """The messages with the current names of fields and roles, instead of those of older logs and other servers."""
    if not any(_is_old(message) for message in messages):
        return messages
    return tie_calls([_renewed(message) for message in messages])


def _is_old(message: Any) -> bool:
    if not isinstance(message, dict):
        return False
    return message.get("role") == "function" or "function_call" in message or "reasoning_content" in message


def _renewed(message: Any) -> Any:
    if not _is_old(message):
        return message
    renewed = {key: value for key, value in message.items() if key not in ("function_call", "reasoning_content")}
    if message.get("role") == "function":
        renewed["role"] = "tool"
    if isinstance(message.get("function_call"), dict) and not message.get("tool_calls"):
        renewed["tool_calls"] = [{"id": None, "type": "function", "function": message["function_call"]}]
    if isinstance(message.get("reasoning_content"), str) and "reasoning" not in message:
        renewed["reasoning"] = message["reasoning_content"]
    return renewed


def read_usual(raw: bytes, file: str, line: int, cache: ToolCache) -> Trace | None:
    """The trace of a valid line with the usual fields only; None for any other line, which needs `read`. Fast."""
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
    tools = cache.checked(get("tools"), raw)
    if not tools or messages.__class__ is not list or not are_sound(messages):
        return None
    identity, session, user, created, model, task = texts
    if created is None and messages[0].keys() != ROLE_AND_TEXT:  # its time may be the trace's
        return None
    return Trace(
        identity or made_id(messages, environment, session, user),
        messages,
        tools,
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
    )


def _is_usual_environment(environment: Any) -> bool:
    return environment.__class__ is dict and environment.get("kind").__class__ is str and is_strict(environment)


READER = Reader(FORMAT, recognises, read, signs=Signs.GENERAL)
