"""How a turn ended: one table of the words of all vendors, and the mark of a turn that is not whole.

A turn that was cut, or failed, has the mark `unfinished`, as in `"unfinished": "cut: length"`; no other message has it. Where
the model gave no answer at all, the mark is on the last message that it was sent. The words are those of OpenAI, Anthropic,
Gemini, Bedrock, Mistral, Cohere, Ollama, vLLM, SGLang, llama.cpp, of OpenTelemetry's conventions, the AI SDK, Pydantic AI and
LangChain; a word that is not in the table, such as a text that ended the turn, is that of a whole turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from tracewheel.core.strict_json import parse_json

Ending = Literal["complete", "cut", "failed"]
Message = dict[str, Any]
UNFINISHED = "unfinished"
CUT, FAILED = "cut", "failed"
PAUSED = "pauseturn"  # Anthropic's: whole if the next message goes on

_BY_ENDING: dict[Ending, str] = {
    "complete": """
        stop end_turn tool_use tool_calls tool_call function_call stop_sequence eos eos_token complete completed finished
        stopped word no_tool_call load unload compaction
        """,
    "cut": """
        length max_tokens max_output_tokens max_completion_tokens max_new_tokens model_length token_limit limit truncated
        model_context_window_exceeded context_length_exceeded context_window_exceeded incomplete in_progress max_messages
        pause_turn
        """,
    "failed": """
        error error_toxic error_limit failed failure abort aborted cancelled canceled user_cancel interrupted timeout
        content_filter content_filtered guardrail_intervened refusal safety recitation language blocklist prohibited_content
        spii model_armor image_safety malformed_function_call malformed_tool_use malformed_model_output unexpected_tool_call
        too_many_tool_calls missing_thought_signature malformed_response infrastructure_failed
        """,
}


def _plain(word: str) -> str:
    """Equal for `MAX_TOKENS`, `maxTokens`, `max-tokens` and Python's `FinishReason.MAX_TOKENS`."""
    return re.sub(r"[\W_]", "", word.rpartition(".")[2]).lower()


ENDINGS: dict[str, Ending] = {_plain(word): ending for ending, words in _BY_ENDING.items() for word in words.split()}
REASONS = ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason", "finish_reasons", "finishReasons")
# Where some SDKs keep what the provider said of a response.
_HOLDERS = ("response_metadata", "generation_info", "incomplete_details", "incompleteDetails")
_STATES = {"incomplete", "in_progress", "failed", "cancelled", "error"}


def ending(*holders: Any) -> str:
    """The mark of a turn that one of these objects calls cut or failed, as in "cut: max_tokens"; "" of a whole turn.

    Args:
        holders: Parts of a log that may say how a turn ended: a message, a choice, a response, a span's attributes.
    """
    return next((mark for holder in holders if isinstance(holder, Mapping) for mark in _marks(holder)), "")


def _marks(holder: Mapping[str, Any]) -> Iterable[str]:
    for key in REASONS:
        value = holder.get(key)
        word = value[0] if isinstance(value, list) and value else value
        if isinstance(word, str) and (mark := mark_of(word)):
            yield mark
    for key in _HOLDERS:
        inner = holder.get(key)
        if isinstance(inner, Mapping) and (mark := ending(inner, {"finish_reason": inner.get("reason")})):
            yield mark
    if isinstance(holder.get("status"), str) and holder["status"] in _STATES:
        yield mark_of(holder["status"])
    if isinstance(holder.get("refusal"), str) and holder["refusal"]:
        yield f"{FAILED}: refusal"


def mark_of(word: str) -> str:
    """The mark that a vendor's word stands for; "" for the word of a whole turn, and for one that is not in the table."""
    state = ENDINGS.get(_plain(word), "complete")
    return "" if state == "complete" else f"{state}: {word:.60}"


def how_unfinished(message: Mapping[str, Any]) -> str:
    """`CUT` or `FAILED` for a message with the mark, else ""."""
    mark = message.get(UNFINISHED)
    state = mark.partition(":")[0] if isinstance(mark, str) else ""
    return state if state in (CUT, FAILED) else ""


def with_ending(messages: list[Message], mark: str) -> list[Message]:
    """The messages, of which the last has the mark; unchanged without one."""
    if not mark or not messages:
        return messages
    return [*messages[:-1], {**messages[-1], UNFINISHED: mark}]


# What exporters write where they cut a text: at its end, or (LiteLLM) in the place of its middle.
_WHAT = "(?:(?:output|content|text|message|input|prompt|value|attribute|string) )?(?:was )?"
_ENDS_CUT = re.compile(
    rf"(?:[\[(<{{][.… ]*{_WHAT}truncated\b[^\])>}}\n]{{0,60}}[\])>}}]|(?:\.\.\.|…)\s*truncated)\s*$", re.IGNORECASE
)
_MIDDLE_CUT = "(litellm_truncated "
# What stands for an image or a file that a policy of text cannot see (`traces/readers/media.py`).
_MEDIA = re.compile(
    r"\[(?:image|audio|video|file), [^\]\n]{0,80}(?:sha256 [0-9a-f]{16}|not in the log)\]"
    r"|\A<(?:image|audio|video)>|<(?:image|audio|video)>\Z"  # as data sets mark the place of one that a column names
)
_JSON_BEGUN = re.compile(r"\s*(?:\[\s*)?\{\s*\"(?:role|parts|messages|type|content)\"\s*:")
_TAIL = 200


def prompt_is_cut(messages: Iterable[Mapping[str, Any]]) -> bool:
    """Whether an exporter cut what the agent was told before its first turn: a mark of it, or JSON of messages that breaks off.

    So it is of a prompt with an image or a file, for which a placeholder stands.

    OpenTelemetry's limit of attributes leaves no mark, and messages that are no JSON any more are read as a text.
    """
    for message in messages:
        if message.get("role") not in ("system", "developer", "user"):
            return False
        text = message.get("content")
        if (
            isinstance(text, str)
            and text
            and (
                _ENDS_CUT.search(text[-_TAIL:])
                or _MIDDLE_CUT in text
                or _MEDIA.search(text)
                or (_JSON_BEGUN.match(text) and not _is_json(text))
            )
        ):
            return True
    return False


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def without_endings(messages: Iterable[Message]) -> list[Message]:
    """The messages without marks, as a program or a policy is to read them."""
    return [{key: part for key, part in message.items() if key != UNFINISHED} for message in messages]


def with_endings(messages: list[Any], info: Mapping[str, Any]) -> list[Any]:
    """The messages of a whole conversation with all their marks, those that they and the record's other fields say.

    Args:
        messages: As a reader found them.
        info: What else the record holds: a reason in it is that of the last turn.
    """
    last = len(messages) - 1
    told = {key: info[key] for key in (*REASONS, *_HOLDERS) if key in info}
    marked = []
    for position, message in enumerate(messages):
        if isinstance(message, dict):
            is_turn = message.get("role") == "assistant"
            mark = message.get(UNFINISHED) or (is_turn and ending(message)) or (position == last and is_turn and ending(told))
            goes_on = position < last and (not is_turn or (isinstance(mark, str) and _plain(mark.partition(":")[2]) == PAUSED))
            if how_unfinished({UNFINISHED: mark}) and goes_on:
                [message] = without_endings([message])
            elif mark and UNFINISHED not in message:
                message = {**message, UNFINISHED: mark}
        marked.append(message)
    return marked
