"""Text of an agent or of its tools on its way into a judge's prompt: data, whatever it says.

It stands between two lines with a nonce that follows from the text, so that the text cannot hold it on purpose. Tokens of chat
templates and role markers lose their effect, and whatever looks like a delimiter is broken.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from tracewheel.chat.injection.readings import INVISIBLE
from tracewheel.chat.injection.rules import CHAT_TOKENS
from tracewheel.core.types import content_hash

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
BARE_TOKENS = re.compile(r"</?s>", re.IGNORECASE)  # an honest page strikes words out with them
ROLE_LINE = re.compile(r"^(\s*)(system|developer|user|human|assistant|evaluator|judge)(\s*):", re.IGNORECASE | re.MULTILINE)
FENCE = "====="
RULED = re.compile(r"={4,}")
REMOVED = "[removed: a token of a chat template]"
CUT = "\n[... {} characters left out ...]\n"


def plain(text: str) -> str:
    """The text in Unicode's compatibility form without invisible and control characters: what patterns are matched with."""
    return CONTROL.sub("", INVISIBLE.sub("", unicodedata.normalize("NFKC", text)))


def neutralised(text: str, longest: int) -> str:
    """The text as a judge may see it: nothing in it ends the data, opens a turn or is invisible.

    Args:
        text: Any text.
        longest: Characters that are kept; what is more is cut from the middle.
    """
    text = CONTROL.sub("", INVISIBLE.sub("", text))
    text = RULED.sub("~~~~", BARE_TOKENS.sub(REMOVED, CHAT_TOKENS.sub(REMOVED, text)))
    text = ROLE_LINE.sub(r"\1\2\3 -", text)
    if len(text) <= longest:
        return text
    half = longest // 2
    return text[:half] + CUT.format(len(text) - 2 * half) + text[len(text) - half :]


def delimited(text: str, name: str) -> str:
    """The text between two lines that hold a nonce; the nonce follows from the text, so that the same text gives the same."""
    nonce = content_hash(["judged", name, text])
    return f"{FENCE} {name} {nonce} begins {FENCE}\n{text}\n{FENCE} {name} {nonce} ends {FENCE}"


def transcript(messages: Sequence[Mapping[str, Any]]) -> str:
    """Messages as JSON lines: what an agent writes cannot become another message."""
    lines = []
    for message in messages:
        shown: dict[str, Any] = {"by": {"assistant": "agent", "tool": "result"}.get(message["role"], message["role"])}
        if message.get("content"):
            shown["text"] = message["content"]
        if called := message.get("tool_calls"):
            shown["calls"] = [[call["function"]["name"], call["function"]["arguments"]] for call in called]
        lines.append(json.dumps(shown, ensure_ascii=False))
    return "\n".join(lines)
