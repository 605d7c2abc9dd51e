"""What is equal in two logs of one conversation: a message, and each beginning of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import orjson

from tracewheel.traces.readers.dialects import parsed_json

THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)


def message_key(message: Any) -> Any:
    """Equal for two logs of the same message: its role, text and calls, without ids."""
    if not isinstance(message, dict):
        return repr(message)
    calls = message.get("tool_calls")
    functions = [call["function"] for call in calls] if isinstance(calls, list) else []
    # A later call may format the same arguments differently.
    called = [[function["name"], parsed_json(function["arguments"])] for function in functions]
    return [message.get("role"), message.get("content") or "", called]


def history_hashes(messages: Iterable[dict[str, Any]]) -> list[bytes]:
    """A hash of each beginning of a conversation: the k-th is of its first k messages.

    It takes no notice of ids, of white space around a text, of the order of arguments, or of thoughts: clients change or drop
    these when they send a turn back.
    """
    hashes: list[bytes] = []
    last = b""
    for message in messages:
        role, text, calls = message_key(message)
        text = parsed_json(text) if role == "tool" else text  # a result that is an object, too, may come back in another order
        text = THOUGHT.sub("", text).strip() if role == "assistant" and isinstance(text, str) else text
        last = blake2b(
            last + orjson.dumps([role, text, calls], default=str, option=orjson.OPT_SORT_KEYS), digest_size=16
        ).digest()
        hashes.append(last)
    return hashes
