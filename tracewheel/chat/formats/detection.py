"""Which tool-call format a chat template writes, found by rendering a known call and reading it back.

Templates also differ in how they want a message: arguments as an object or as JSON text, no words as an empty text or as
none, and call ids of nine letters (Mistral's). The probe finds this too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from tracewheel.chat.formats import AUTO, FORMATS, ParsedCall, ParsedTurn, ToolFormat, make_format
from tracewheel.core.errors import ConfigError
from tracewheel.core.kind_table import WHEELS, how_to_get

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, Any]
SHORT_ID = 9
_USER: Message = {"role": "user", "content": "probe"}
_CALL = ParsedCall("probe_tool", {"place": "somewhere"})
_REPLY = "what the tool replied"
_TOOL = {
    "type": "function",
    "function": {
        "name": _CALL.name,
        "description": "A tool.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "A place."}},
            "required": ["place"],
        },
    },
}
_GIVE_ONE = "give a chat template with tools: policy.chat_template"


@dataclass(frozen=True)
class Dialect:
    """How a chat template wants assistant messages with calls."""

    text_arguments: bool = False
    no_words_as_none: bool = False
    short_ids: bool = False

    def prepare(self, message: Message) -> Message:
        """A message, whose arguments are objects and whose content is text, as the template wants it."""
        calls = [self._call(call) for call in message.get("tool_calls") or []]
        prepared = {**message, "tool_calls": calls} if calls else message
        if calls and self.no_words_as_none and not message.get("content"):
            prepared = {**prepared, "content": None}
        if self.short_ids and "tool_call_id" in message:
            prepared = {**prepared, "tool_call_id": short_id(message["tool_call_id"])}
        return prepared

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        if self.short_ids:
            call = {**call, "id": short_id(call.get("id", ""))}
        if not self.text_arguments:
            return call
        arguments = json.dumps(call["function"]["arguments"], ensure_ascii=False)
        return {**call, "function": {**call["function"], "arguments": arguments}}


def short_id(call_id: str) -> str:
    """A call id of nine letters and digits; such a one stays as it is."""
    if len(call_id) == SHORT_ID and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:SHORT_ID]


def resolve_format(tokenizer: PreTrainedTokenizerBase, name: str) -> tuple[ToolFormat, Dialect]:
    """The format of that name, or for `auto` the one that the chat template writes, and how the template wants messages.

    Raises:
        ConfigError: there is no such format, or see `detect_format`.
    """
    if name == AUTO:
        built_in = {each: make_format(each) for each in FORMATS}
        found, dialect = detect_format(tokenizer, built_in)
        return built_in[found], dialect
    made = make_format(name)
    return made, find_dialect(tokenizer, made)


def written_end(tokenizer: PreTrainedTokenizerBase, made: ToolFormat) -> str:
    """The token that the chat template writes after an assistant's words; the tokenizer's `eos_token` if it writes none.

    Some tokenizers name another token as their `eos_token` than the one that ends a turn, for instance Gemma's.
    """
    said = "a probe that no template would write by itself"
    own = str(tokenizer.eos_token)
    try:
        whole = str(tokenizer.apply_chat_template([_USER, {"role": "assistant", "content": said}], tokenize=False))
    except Exception:  # as below; the renderer reports it when it renders the conversation itself
        return own
    vocabulary = tokenizer.get_vocab()
    ends = {*made.END_TOKENS, *map(str, tokenizer.all_special_tokens)} & vocabulary.keys()
    after = whole[whole.rfind(said) + len(said) :].lstrip()
    return max((each for each in ends if after.startswith(each)), key=len, default=own)


def detect_format(tokenizer: PreTrainedTokenizerBase, formats: dict[str, ToolFormat]) -> tuple[str, Dialect]:
    """The name of the format that the tokenizer's chat template writes, and how the template wants its messages.

    Raises:
        ConfigError: the template shows no tools, calls or replies, or none or several of the formats read its calls.
    """
    name = tokenizer.name_or_path
    errors, turns = [], []
    for dialect in _dialects():
        try:
            turn = _rendered_call(tokenizer, dialect)
        except Exception as error:  # a template raises whatever its author chose
            errors.append(str(error))
            continue
        found = [each for each, made in formats.items() if _reads(tokenizer, turn, made)]
        if len(found) > 1:
            raise ConfigError(
                f"the calls of the chat template of {name} can be read as {' and as '.join(found)}; "
                "set policy.tool_format to the right one"
            )
        if found:
            _check_frame(tokenizer, dialect)
            return found[0], dialect
        turns.append(turn)
    written = next((turn for turn in turns if _CALL.name in turn), None)
    if written is not None:
        absent = [each for each in WHEELS["tool format"] if each not in formats]
        more = f"; the wheel formats knows {', '.join(absent)}, {how_to_get('tool format', absent[0])}" if absent else ""
        raise ConfigError(
            f"the chat template of {name} writes calls in a format that is not known: {written.strip()[:200]!r}; set "
            f"policy.tool_format to one of {', '.join(formats)}, or to your own as 'module:Class', or {_GIVE_ONE}{more}"
        )
    because = "" if turns else f" ({errors[0]})"
    raise ConfigError(f"the chat template of {name} writes no tool calls{because}; {_GIVE_ONE}")


def find_dialect(tokenizer: PreTrainedTokenizerBase, made: ToolFormat) -> Dialect:
    """How the tokenizer's chat template wants messages with calls of this format; the default if it writes none."""
    for dialect in _dialects():
        try:
            if _reads(tokenizer, _rendered_call(tokenizer, dialect), made):
                return dialect
        except Exception:  # as above
            continue
    return Dialect()


def _dialects() -> Iterable[Dialect]:
    """The usual dialect first."""
    for short_ids, no_words_as_none, text_arguments in product((False, True), repeat=3):
        yield Dialect(text_arguments, no_words_as_none, short_ids)


def _rendered_call(tokenizer: PreTrainedTokenizerBase, dialect: Dialect) -> str:
    """The turn with the probe's call as the template writes it, without what it begins a turn with."""
    prompt = _render(tokenizer, [_USER], add_generation_prompt=True)
    whole = _render(tokenizer, [_USER, dialect.prepare(_call_message())])
    both = zip(prompt, whole, strict=False)
    shared = next((index for index, (one, other) in enumerate(both) if one != other), min(len(prompt), len(whole)))
    return whole[shared:]


def _reads(tokenizer: PreTrainedTokenizerBase, turn: str, made: ToolFormat) -> bool:
    ends = {*made.END_TOKENS, *map(str, tokenizer.all_special_tokens)}
    turn = turn.rstrip()
    turn = turn.removesuffix(max((end for end in ends if turn.endswith(end)), key=len, default=""))
    parsed = made.parse(turn, [_TOOL])
    return ParsedTurn(parsed.content, parsed.calls) == ParsedTurn("", [_CALL])


def _check_frame(tokenizer: PreTrainedTokenizerBase, dialect: Dialect) -> None:
    """Check that the template shows tools and replies.

    Raises:
        ConfigError: it does not.
    """
    name = tokenizer.name_or_path
    if _CALL.name not in _render(tokenizer, [_USER], add_generation_prompt=True):
        raise ConfigError(f"the chat template of {name} does not show the tools that are offered; {_GIVE_ONE}")
    call = _call_message()
    reply = {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "name": _CALL.name, "content": _REPLY}
    messages = [_USER, *map(dialect.prepare, (call, reply))]
    try:
        shown = _REPLY in _render(tokenizer, messages, add_generation_prompt=True)
    except Exception as error:  # as above
        raise ConfigError(f"the chat template of {name} refuses a tool's reply ({error}); {_GIVE_ONE}") from error
    if not shown:
        raise ConfigError(f"the chat template of {name} does not show what a tool replies; {_GIVE_ONE}")


def _call_message() -> Message:
    function = {"name": _CALL.name, "arguments": dict(_CALL.arguments)}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call-1-0", "type": "function", "function": function}],
    }


def _render(tokenizer: PreTrainedTokenizerBase, messages: list[Message], **options: Any) -> str:
    return str(tokenizer.apply_chat_template(messages, tools=[_TOOL], tokenize=False, **options))
