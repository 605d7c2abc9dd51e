"""Text of an agent or of its tools on its way into a judge's prompt: data, whatever it says.

It stands between two lines with a nonce that follows from the text, so that the text cannot hold it on purpose. Tokens of chat
templates and role markers lose their effect, and whatever looks like a delimiter is broken.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tracewheel.core.types import content_hash
from tracewheel.scoring.verifiers.episode import Episode

# Invisible characters: zero-width and direction marks, tags, soft hyphen. They hide words from a reader and from patterns.
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f]"
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# As chat templates write them: <|im_start|>, <|eot_id|>, [INST], <<SYS>>, <start_of_turn>, <s>, and full-width bars.
CHAT_TOKENS = re.compile(
    r"<[|｜][^<>\n]{0,40}[|｜]>|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\]|<</?SYS>>"
    r"|</?(?:start_of_turn|end_of_turn|bos|eos|s)>",
    re.IGNORECASE,
)
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
    text = RULED.sub("~~~~", CHAT_TOKENS.sub(REMOVED, text))
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


def own_words(episode: Episode) -> str:
    """What the agent said in its own turns, without calls."""
    own = [message for message in episode.messages[episode.start :] if message["role"] == "assistant"]
    return "\n".join(message["content"] for message in own if message.get("content"))


def own_arguments(episode: Episode) -> str:
    """The texts that the agent wrote into the arguments of its calls, and their names."""
    return "\n".join(text for call in episode.calls for text in _texts(call.arguments))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, held in value.items():
            yield name
            yield from _texts(held)
    elif isinstance(value, list):
        for held in value:
            yield from _texts(held)
