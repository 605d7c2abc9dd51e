"""Between messages and token ids, turn by turn, so that nothing sampled is ever tokenised again.

A conversation is tokenised in pieces: the prompt once, then for each assistant turn either the ids
that the policy sampled or (for demonstrations) the ids of the turn's text, then the ids of the
observation that follows. Demonstrations and rollouts go through the same pieces, so a demonstration
has exactly the ids that a rollout of the same words would have. What a message says is text: control
tokens that stand in it are spelled out (`tracewheel/chat/plain_text.py`).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracewheel.chat.hermes import REPLY_FRAMES, ParsedTurn, parse_hermes
from tracewheel.chat.plain_text import PlainText
from tracewheel.core.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PARSERS: dict[str, Callable[[str], ParsedTurn]] = {"hermes": parse_hermes}

Message = dict[str, Any]
_PROBE: list[Message] = [{"role": "user", "content": "probe"}]
_PROBE_REPLY: Message = {"role": "assistant", "content": "probe"}
# Two values of each type of JSON Schema that differ in their first character.
_VALUES: dict[str, tuple[Any, Any]] = {
    "string": ("a", "/"),
    "integer": (1, -2),
    "number": (1, -2),
    "boolean": (True, False),
    "array": ([], [1]),
    "object": ({}, {"a": 1}),
}


class ChatRenderer:
    """Renders with the tokenizer's own chat template and parses with a named tool-call format.

    Raises:
        ConfigError: the tokenizer has no chat template or no end token, it cannot spell its control tokens as
            plain text, or the format is unknown.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tool_format: str = "hermes") -> None:
        if tokenizer.chat_template is None:
            raise ConfigError(f"the tokenizer of {tokenizer.name_or_path} has no chat template")
        if tool_format not in PARSERS:
            raise ConfigError(f"no tool format is called '{tool_format}'; there are {', '.join(sorted(PARSERS))}")
        if tokenizer.eos_token_id is None:
            raise ConfigError(f"the tokenizer of {tokenizer.name_or_path} has no end-of-turn token (eos_token)")
        self.tokenizer = tokenizer
        self.end_of_turn_id: int = int(tokenizer.eos_token_id)
        self.parse = PARSERS[tool_format]
        self._plain = PlainText(tokenizer, REPLY_FRAMES)
        self._opening = len(self._render(_PROBE, add_generation_prompt=True))
        self._spoken = self._render([*_PROBE, _PROBE_REPLY])
        self._observation_cache: dict[tuple[tuple[str, str], ...], list[int]] = {}

    def prompt_ids(self, messages: list[Message], tools: list[dict[str, Any]]) -> list[int]:
        """Ids of a conversation up to where the assistant is to speak."""
        return self._plain.encode(self._render(messages, tools=self._plain.mark(tools), add_generation_prompt=True))

    def assistant_ids(self, message: Message) -> list[int]:
        """Ids of an assistant turn, its end token included: what a policy would sample to say it."""
        text = self._render([*_PROBE, message])[self._opening :]
        end = text.rindex(self._end_of_turn) + len(self._end_of_turn)
        return self._plain.encode(text[:end])

    def call_head(self, tool: dict[str, Any]) -> list[int]:
        """Ids that begin an assistant turn which calls `tool`, whatever it is called with; never a whole turn.

        They are what the turns of several calls with unlike arguments have in common, so the policy goes on
        from the ids it would have said itself: with most tools up to the first argument's value.
        """
        spoken = [self.assistant_ids(_call_message(tool["function"]["name"], given)) for given in _unlike_arguments(tool)]
        shared = itertools.takewhile(lambda ids: len(set(ids)) == 1, zip(*spoken, strict=False))
        return [ids[0] for ids in shared if ids[0] != self.end_of_turn_id]

    def observation_ids(self, tool_messages: list[Message]) -> list[int]:
        """Ids that follow an assistant turn's end token: the tools' replies and the next opening."""
        key = tuple((message["role"], message["content"]) for message in tool_messages)
        if key not in self._observation_cache:
            after = self._render([*_PROBE, _PROBE_REPLY, *tool_messages], add_generation_prompt=True)
            end = self._spoken.rindex(self._end_of_turn) + len(self._end_of_turn)
            if after[:end] != self._spoken[:end]:
                raise ConfigError(
                    "the chat template rewrites earlier turns when a tool replies; it cannot be trained on turn by turn"
                )
            self._observation_cache[key] = self._plain.encode(after[end:])
        return self._observation_cache[key]

    def conversation_ids(
        self, messages: list[Message], tools: list[dict[str, Any]], opening: int = 0
    ) -> tuple[list[int], list[int]]:
        """A whole conversation as (token ids, action mask), both of length T, cut after the last assistant turn.

        The mask is 1 on the ids of assistant turns, their end tokens included. The first `opening` messages are context,
        whoever said them: they are part of the prompt, as they are for a policy that goes on from them.
        """
        first = next(i for i, message in enumerate(messages) if message["role"] == "assistant" and i >= opening)
        ids = self.prompt_ids(messages[:first], tools)
        mask = [0] * len(ids)
        replies: list[Message] = []
        for index, message in enumerate(messages[first:]):
            if message["role"] != "assistant":
                replies.append(message)
                continue
            if index:
                observed = self.observation_ids(replies)
                ids, mask, replies = ids + observed, mask + [0] * len(observed), []
            spoken = self.assistant_ids(message)
            ids, mask = ids + spoken, mask + [1] * len(spoken)
        return ids, mask

    def encode(self, text: str) -> list[int]:
        """Ids of a text in which control tokens are meant as such."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def decode(self, ids: list[int]) -> str:
        """The text of ids, special tokens included."""
        return self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def assistant_message(self, text: str, parsed: ParsedTurn, call_prefix: str) -> Message:
        """An OpenAI message for what the policy said. A malformed turn keeps its raw text."""
        if any(call.malformed for call in parsed.calls) or not parsed.calls:
            return {"role": "assistant", "content": text}
        calls = [
            {
                "id": f"{call_prefix}-{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
            }
            for index, call in enumerate(parsed.calls)
        ]
        return {"role": "assistant", "content": parsed.content or None, "tool_calls": calls}

    @property
    def _end_of_turn(self) -> str:
        return str(self.tokenizer.eos_token)

    def _render(self, messages: list[Message], **options: Any) -> str:
        prepared = [self._marked(_prepared(message)) for message in messages]
        return str(self.tokenizer.apply_chat_template(prepared, tokenize=False, **options))

    def _marked(self, message: Message) -> Message:
        role = message["role"]
        return {**self._plain.mark(message, assistant=role == "assistant"), "role": role}


def _call_message(name: str, arguments: dict[str, Any]) -> Message:
    return {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}]}


def _unlike_arguments(tool: dict[str, Any]) -> list[dict[str, Any]]:
    """Arguments that a tool could be called with, no two with the same beginning of their first value."""
    schema = tool["function"].get("parameters") or {}
    properties = schema.get("properties") or {}
    required = list(schema.get("required") or [])
    if not properties:
        return [{}]

    def given(names: list[str], variant: int) -> dict[str, Any]:
        kinds = {name: properties[name].get("type") if isinstance(properties.get(name), dict) else None for name in names}
        return {name: _VALUES.get(str(kind), ("a", 1))[variant] for name, kind in kinds.items()}

    return [given(required, 0), given(required, 1)] if required else [{}, *(given([name], 0) for name in properties)]


def _prepared(message: Message) -> Message:
    """OpenAI logs keep arguments as JSON text and may have no content; chat templates want the object, and text."""
    calls = []
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        calls.append({**call, "function": {**call["function"], "arguments": arguments}})
    plain = {**message, "content": message.get("content") or ""}
    return {**plain, "tool_calls": calls} if calls else plain
