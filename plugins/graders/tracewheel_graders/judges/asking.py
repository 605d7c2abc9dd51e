"""How a judge asks a model.

Text of an agent or of its tools is data in a judge's prompt, whatever it says. It stands between two lines with a nonce that
follows from the text, so that the text cannot hold it on purpose. Tokens of chat templates and role markers lose their effect,
and whatever looks like a delimiter is broken.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tracewheel import InfrastructureError, content_hash
from tracewheel_graders.judges.criteria import JudgeModel, JudgeSettings, Limits
from tracewheel_screening import CHAT_TOKENS, INVISIBLE

Verdict = TypeVar("Verdict")


class JudgeFailure(InfrastructureError):
    """A judge gave no usable verdict: the episode stays unscored, and nobody but the judge is to blame."""

    fault = "judge"


@dataclass(frozen=True)
class JudgeReply:
    """A model's reply: its text, and why it ended, as in `stop` or `length`."""

    text: str
    ended_by: str


class Asker(Protocol):
    """Asks the models of one judge, within its limits; a reply to the same messages is asked for once."""

    def ask(self, model: JudgeModel, messages: Sequence[dict[str, Any]], schema: dict[str, Any], seed: int) -> JudgeReply:
        """The reply.

        Args:
            model: Who is asked.
            messages: The conversation.
            schema: JSON Schema of the reply.
            seed: The draw; another seed is another reply.

        Raises:
            InputError: the endpoint, the model or the key is wrong.
            JudgeFailure: there is no reply, or the budget is reached.
        """
        ...


def asker_of(settings: JudgeSettings) -> Asker:
    """The asker of a judge; judges with the same journal and limits share one."""
    return _shared(settings.journal, settings.limits.model_dump_json())


@functools.lru_cache(maxsize=16)
def _shared(journal: str, limits: str) -> Asker:
    from tracewheel_graders.judges.endpoint import JudgeEndpoint  # the client of endpoints is heavy

    return JudgeEndpoint(journal, Limits.model_validate_json(limits))


def ask_until(
    asker: Asker,
    model: JudgeModel,
    messages: Sequence[dict[str, Any]],
    schema: dict[str, Any],
    seed: int,
    again: int,
    read: Callable[[str], Verdict],
) -> Verdict:
    """A model's verdict. A reply that is none is asked for again, with another seed.

    Args:
        again: How often.
        read: Reads a reply; raises ValueError.

    Raises:
        JudgeFailure: no reply was a verdict.
    """
    problem = ""
    for attempt in range(again + 1):
        reply = asker.ask(model, messages, schema, seed + attempt)
        if reply.ended_by == "length":
            problem = f"the reply is cut off: raise max_turn_tokens, now {model.max_turn_tokens}"
            continue
        try:
            return read(reply.text)
        except ValueError as error:
            problem = str(error)
    raise JudgeFailure(f"judge {model.model}: no verdict in {again + 1} replies; the last: {problem}")


def ask_about(
    settings: JudgeSettings,
    instructions: str,
    texts: Mapping[str, str],
    schema: dict[str, Any],
    read: Callable[[str], Verdict],
) -> Verdict:
    """Ask the first model of a judge about texts of others, which are data whatever they say.

    Args:
        settings: Who is asked, and within which limits; a reply in the journal is not asked for again.
        instructions: What is asked, and in what form it is to be answered.
        texts: By name.
        schema: JSON Schema of the reply.
        read: Reads a reply; raises ValueError where it is no verdict.

    Raises:
        JudgeFailure: no reply was a verdict, or the budget is reached.
    """
    shown = [delimited(neutralised(text, settings.longest), name) for name, text in texts.items()]
    messages = [{"role": "system", "content": instructions}, {"role": "user", "content": "\n\n".join(shown)}]
    seed = int(content_hash(messages, 7), 16)
    return ask_until(asker_of(settings), settings.models[0], messages, schema, seed, settings.again, read)


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
