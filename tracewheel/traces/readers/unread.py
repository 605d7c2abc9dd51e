"""Guards against silent losses: whatever a message of a log says has been read, or its record goes to quarantine.

`check_item` compares a logged message with the messages made of it, `check_stored` looks at a message that is stored as
logged, and `check_trace` compares a whole record with its trace, for readers with a form of their own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tracewheel.core.endings import UNFINISHED
from tracewheel.core.strict_json import parse_json
from tracewheel.core.types import Trace
from tracewheel.traces.quarantine import InvalidRecord

UNREAD = "content was not read"
# What the conversion of messages reads, besides these names' own checks.
READ = {"role", "type", "content", "parts", "text", "tool_calls", "toolCalls", "function_call", "functionCall"}
READ |= {"toolInvocations", "additional_kwargs", "reasoning", "reasoning_content", "refusal", "name", "summary"}
READ |= {"tool_call_id", "toolCallId", "invalid_tool_calls", UNFINISHED}
STORED = {"role", "content", "tool_calls", "tool_call_id", "name", "reasoning", UNFINISHED}
# Names under which some log keeps what was said or called, in lower case and without "_".
CONTENT = {"text", "texts", "content", "contents", "parts", "blocks", "segments", "delta", "utterance", "completion", "answer"}
CONTENT |= {"reply", "refusal", "audio", "image", "images", "imageurl", "video", "videos", "attachments"}
CONTENT |= {"experimentalattachments", "toolcall", "toolcalls", "tooluse", "tooluses", "toolinvocation", "toolinvocations"}
CONTENT |= {"functioncall", "functioncalls", "toolresult", "toolresults", "toolresponse", "toolresponses", "functionresponse"}
# The last words of names of what is about a message. Anything else matters where the message came out empty.
ABOUT = {"id", "uuid", "at", "time", "timestamp", "date", "name", "model", "role", "type", "reason", "usage"}
ABOUT |= {"metadata", "meta", "status", "state", "format", "version", "index", "provider", "cost", "token", "logprob"}
ABOUT |= {"fingerprint", "tier", "agent", "author", "sender", "recipient", "annotation", "kwarg", "object", "lc", "kind"}
ABOUT |= {"source", "level", "channel", "control", "weight", "tag", "signature", "duration", "language", "url", "extra"}
ABOUT |= {"detail", "tool", "definition", "config", "setting", "option"}
WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
AGENTS = {"assistant", "ai", "model", "bot", "gpt", "agent", "AIMessage", "AIMessageChunk", "chatbot"}
ASKERS = {"user", "human", "system", "developer", "HumanMessage", "SystemMessage"}
MARKS = ("role", "type", "from", "source")
DEEPEST = 40


def is_blank(item: Mapping[str, Any]) -> bool:
    """Whether a logged message holds nothing besides its role, type and name."""
    return not any(item.get(key) for key in READ - {"role", "type", "name"})


def check_item(item: Mapping[str, Any], made: list[dict[str, Any]], position: int) -> None:
    """Check that a logged message was read.

    Args:
        item: The message as logged.
        made: The messages made of it.
        position: Where they begin in the conversation, for the error.

    Raises:
        InvalidRecord: it holds something that was not read; the detail names the key.
    """
    _check(item, READ, made, position)
    for key in ("text", "content", "refusal"):
        text = item.get(key)
        if isinstance(text, str) and text.strip() and not any(text.strip() in word for word in _words(made)):
            raise InvalidRecord(UNREAD, f"message {position}: '{key}' is beside other content")
    for key in ("tool_calls", "toolCalls", "toolInvocations", "function_call", "functionCall"):
        value = item.get(key)
        if value and not any(message.get("tool_calls") for message in made):
            raise InvalidRecord(UNREAD, f"message {position}: '{key}' is a {type(value).__name__} without calls")


def check_stored(message: Mapping[str, Any], position: int) -> None:
    """Check that a message in OpenAI's form holds nothing under other keys that is said or called.

    Raises:
        InvalidRecord: it does; the detail names the key.
    """
    if not message.keys() <= STORED:
        _check(message, STORED, [{key: message[key] for key in STORED if key in message}], position)


def _check(item: Mapping[str, Any], known: Collection[str], made: list[dict[str, Any]], position: int) -> None:
    is_empty = not any(map(says_something, made))
    for key in sorted(item.keys() - known):
        value = item[key]
        plain = re.sub(r"[_\W]", "", str(key)).lower()
        if plain not in CONTENT and (not is_empty or _is_about(key)):
            continue
        words = set(texts_of(value))
        if words and not words <= _words(made):
            empty = " and came out empty" if is_empty else ""
            raise InvalidRecord(UNREAD, f"message {position} has {key!r:.60}, which no reader knows{empty}")


def check_trace(value: Any, trace: Trace) -> None:
    """Check a trace in which the agent has an empty message: whatever the record holds in agents' messages was read.

    Raises:
        InvalidRecord: something was not; the detail names its place.
    """
    if all(message["role"] != "assistant" or says_something(message) for message in trace.messages):
        return
    words = _words([*trace.messages, *_others(trace)])
    texts = [word for word in words if len(word) > 1]
    for path, message in _messages_by(AGENTS, value):
        for key, said in message.items():
            plain = re.sub(r"[_\W]", "", str(key)).lower()
            if key in MARKS or (plain not in CONTENT and _is_about(key)):
                continue
            for word in texts_of(said):
                # Names and kinds are single words; under a name of nobody's, only more than that is something said.
                if word in words or (plain not in CONTENT and len(word.split()) < 2) or any(word in text for text in texts):
                    continue
                raise InvalidRecord(UNREAD, f"an empty message of the agent, but {path}.{key} has {word!r:.60}")


def check_beginning(value: Any, trace: Trace) -> None:
    """Check a trace that begins with the agent: the record holds no other message of the system or of a user.

    Raises:
        InvalidRecord: it does; the detail names its place.
    """
    if trace.messages[0]["role"] not in ("assistant", "tool"):
        return
    words = _words([*trace.messages, *_others(trace)])
    for path, message in _messages_by(ASKERS, value):
        said = next(
            (text for key in ("content", "text", "value", "parts", "message") for text in texts_of(message.get(key))), ""
        )
        if said and said not in words and not any(said in word for word in words):
            raise InvalidRecord(UNREAD, f"the conversation begins with the agent, but {path} has {said!r:.60}")


def _others(trace: Trace) -> list[dict[str, Any]]:
    """The messages that a trace keeps beside its own: of other conversations, and of branches."""
    others, branches = (trace.info.get(name) for name in ("other_conversations", "branches"))
    kept = others if isinstance(others, list) else []
    of_branches = branches if isinstance(branches, list) else []
    kept = [*kept, *(branch.get("messages") for branch in of_branches if isinstance(branch, dict))]
    return [message for each in kept if isinstance(each, list) for message in each if isinstance(message, dict)]


def _is_about(key: str) -> bool:
    words = WORDS.findall(key)
    return not words or words[-1].lower() in ABOUT or words[-1].lower().removesuffix("s") in ABOUT


def says_something(message: Mapping[str, Any]) -> bool:
    """Whether a message has text, calls or reasoning."""
    return bool(message.get("content") or message.get("tool_calls") or message.get("reasoning"))


def texts_of(value: Any, depth: int = 0) -> Iterator[str]:
    """The texts in a value that are not empty, without white space around them."""
    if isinstance(value, str):
        if value.strip():
            yield value.strip()
    elif depth < DEEPEST and isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from texts_of(part, depth + 1)


def _words(messages: list[dict[str, Any]]) -> set[str]:
    """The texts of messages, those within calls' arguments too."""
    found = set(texts_of(messages))
    for message in messages:
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                found |= set(texts_of(_unpacked(function.get("arguments"))))
    return found


def _unpacked(text: Any) -> Any:
    try:
        return parse_json(text) if isinstance(text, str) else text
    except ValueError:
        return text


def _messages_by(names: set[str], value: Any, path: str = "record", depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects in a record that one of these roles marks as its messages, with their paths."""
    if depth > DEEPEST:
        return
    if isinstance(value, dict):
        if any(isinstance(value.get(key), str) and value[key] in names for key in MARKS):
            yield path, value
        for key, part in value.items():
            yield from _messages_by(names, part, f"{path}.{key}", depth + 1)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _messages_by(names, part, f"{path}[{number}]", depth + 1)
