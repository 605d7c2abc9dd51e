"""Rendering of messages as token ids, turn by turn, so that sampled tokens are never tokenised again.

A conversation is tokenised in pieces: the prompt, then for each assistant turn either the sampled ids or (in
demonstrations) the ids of its text, then the ids of the observation that follows. Demonstrations and rollouts share this
code, so a demonstration has exactly the ids that a rollout of the same words would have. Control tokens inside a
message are encoded as ordinary text (`tracewheel/chat/plain_text.py`).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tracewheel.chat.formats import ParsedTurn, make_format
from tracewheel.chat.plain_text import PlainText
from tracewheel.core.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, Any]
_PROBE: list[Message] = [{"role": "user", "content": "probe"}]
_PROBE_REPLY: Message = {"role": "assistant", "content": "probe"}
# Two values of each JSON Schema type, with different first characters.
_VALUES: dict[str, tuple[Any, Any]] = {
    "string": ("a", "/"),
    "integer": (1, -2),
    "number": (1, -2),
    "boolean": (True, False),
    "array": ([], [1]),
    "object": ({}, {"a": 1}),
}


class ChatRenderer:
    """Renders with the tokenizer's chat template and parses with a named tool-call format.

    Raises:
        ConfigError: the tokenizer has no chat template or no end-of-turn token, it cannot encode its control tokens as
            ordinary text, or the format is unknown.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tool_format: str = "hermes") -> None:
        if tokenizer.chat_template is None:
            raise ConfigError(f"the tokenizer of {tokenizer.name_or_path} has no chat template")
        if tokenizer.eos_token_id is None:
            raise ConfigError(f"the tokenizer of {tokenizer.name_or_path} has no end-of-turn token (eos_token)")
        self.tokenizer = tokenizer
        self.end_of_turn_id: int = int(tokenizer.eos_token_id)
        self.format = make_format(tool_format)
        self.parse = self.format.parse
        # A turn may end with any of these; the template writes `end_of_turn_id` after words.
        self.end_of_turn_ids = frozenset({self.end_of_turn_id, *token_ids(tokenizer, self.format.END_TOKENS)})
        self._plain = PlainText(tokenizer, self.format.REPLY_FRAMES)
        self._probe_length = len(self._render(_PROBE, add_generation_prompt=True))
        self._probe_reply = self._render([*_PROBE, _PROBE_REPLY])
        self._observation_cache: dict[tuple[tuple[str, str], ...], list[int]] = {}

    def prompt_ids(self, messages: list[Message], tools: list[dict[str, Any]]) -> list[int]:
        """Ids of a conversation up to the start of the next assistant turn."""
        return self._plain.encode(self._render(messages, tools=self._plain.mark_tools(tools), add_generation_prompt=True))

    def assistant_ids(self, message: Message) -> list[int]:
        """Ids of an assistant turn with its end token, as a policy would sample it."""
        text = self._render([*_PROBE, message])[self._probe_length :]
        end = text.rindex(self._end_of_turn) + len(self._end_of_turn)
        return self._plain.encode(text[:end], after="")

    def call_head(self, tool: dict[str, Any]) -> list[int]:
        """Ids that begin an assistant turn which calls `tool`, whatever its arguments; never a whole turn.

        They are the common prefix of calls with different arguments, so the policy continues from ids that it would have
        sampled itself. For most tools they end before the value of the first argument.
        """
        turns = [self.assistant_ids(_call_message(tool["function"]["name"], given)) for given in _distinct_arguments(tool)]
        shared = itertools.takewhile(lambda ids: len(set(ids)) == 1, zip(*turns, strict=False))
        return [ids[0] for ids in shared if ids[0] != self.end_of_turn_id]

    def observation_ids(self, tool_messages: list[Message]) -> list[int]:
        """Ids that follow an assistant turn's end token: the tools' replies and the start of the next turn."""
        key = tuple((message["role"], message["content"]) for message in tool_messages)
        if key not in self._observation_cache:
            after = self._render([*_PROBE, _PROBE_REPLY, *tool_messages], add_generation_prompt=True)
            end = self._probe_reply.rindex(self._end_of_turn) + len(self._end_of_turn)
            if after[:end] != self._probe_reply[:end]:
                raise ConfigError(
                    "the chat template rewrites earlier turns when a tool replies, so it cannot be tokenised turn by turn"
                )
            self._observation_cache[key] = self._plain.encode(after[end:], after=self._end_of_turn)
        return self._observation_cache[key]

    def conversation_ids(
        self, messages: list[Message], tools: list[dict[str, Any]], opening: int = 0
    ) -> tuple[list[int], list[int]]:
        """A whole conversation as (token ids, action mask), both of length T, cut after the last assistant turn.

        The mask is 1 on the ids of assistant turns, including their end tokens. The first `opening` messages are context
        and part of the prompt, even where they are assistant messages.
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
            turn = self.assistant_ids(message)
            ids, mask = ids + turn, mask + [1] * len(turn)
        return ids, mask

    def decode(self, ids: list[int]) -> str:
        """The text of ids, special tokens included."""
        return self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def assistant_message(self, text: str, parsed: ParsedTurn, call_prefix: str) -> Message:
        """An OpenAI message from the text of a turn. A malformed turn keeps its raw text."""
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
        prepared = [self._plain.mark_message(_prepared(message)) for message in messages]
        return str(self.tokenizer.apply_chat_template(prepared, tokenize=False, **options))


def token_ids(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> set[int]:
    """The ids of those texts that are added tokens of the vocabulary."""
    added = tokenizer.get_added_vocab()
    return {added[text] for text in texts if text in added}


def _call_message(name: str, arguments: dict[str, Any]) -> Message:
    return {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}]}


def _distinct_arguments(tool: dict[str, Any]) -> list[dict[str, Any]]:
    """Valid arguments for a tool; the first values of no two begin alike."""
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
    """Arguments as an object and content as text, as templates expect; OpenAI logs have JSON text and may lack content."""
    calls = []
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        calls.append({**call, "function": {**call["function"], "arguments": arguments}})
    plain = {**message, "content": message.get("content") or ""}
    return {**plain, "tool_calls": calls} if calls else plain
