"""Rendering of messages as token ids, turn by turn, so that sampled tokens are never tokenised again.

A conversation is tokenised in pieces: the prompt, then for each assistant turn either the sampled ids or (in
demonstrations) the ids of its text, then the ids of the observation that follows. Demonstrations and rollouts share this
code, so a demonstration has exactly the ids that a rollout of the same words would have. Control tokens inside a
message are encoded as ordinary text (`tracewheel/chat/plain_text.py`).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from tracewheel.chat.conversation import RenderedConversation, render_conversation
from tracewheel.chat.formats import WELL_FORMED, ParsedTurn
from tracewheel.chat.formats.base import THINK_CLOSE, THINK_OPEN, split_thinking
from tracewheel.chat.formats.detection import resolve_format, written_end
from tracewheel.chat.grammar import Grammars
from tracewheel.chat.plain_text import PlainText
from tracewheel.chat.rewriting import OwnTurn, opens_thinking, rendered_pieces
from tracewheel.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, Any]
CACHED_OBSERVATIONS = 4096
_PROBE: list[Message] = [{"role": "user", "content": "probe"}]
_PROBE_REPLY: Message = {"role": "assistant", "content": "probe"}
_PROBE_TURNS = ("probe", f"{THINK_OPEN}\nprobe\n{THINK_CLOSE}\n\nprobe", f"{THINK_OPEN}\n\n{THINK_CLOSE}\n\nprobe")
_REWRITES = (
    "the chat template rewrites earlier turns of this conversation, so that it has no single row of tokens: render it with "
    "`ChatRenderer.conversation`"
)
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
    """Renders with the tokenizer's chat template and parses with a tool-call format: a named one, or with `auto` the
    one that the template writes.

    Raises:
        ConfigError: the tokenizer has no chat template or no end-of-turn token, it cannot encode its control tokens as
            ordinary text, or the format is unknown or cannot be found.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tool_format: str = "hermes",
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        if tokenizer.chat_template is None:
            raise ConfigError(f"the tokenizer of {tokenizer.name_or_path} has no chat template")
        if tokenizer.eos_token_id is None:
            raise ConfigError(f"the tokenizer of {tokenizer.name_or_path} has no end-of-turn token (eos_token)")
        self.tokenizer = tokenizer
        self.format, self._dialect = resolve_format(tokenizer, tool_format)
        self._end_of_turn = written_end(tokenizer, self.format)
        self.end_of_turn_id: int = int(tokenizer.convert_tokens_to_ids(self._end_of_turn))
        # A turn may end with any of these; the template writes `end_of_turn_id` after words.
        self._ends = tuple({self._end_of_turn, str(tokenizer.eos_token), *self.format.END_TOKENS} & set(tokenizer.get_vocab()))
        self.end_of_turn_ids = frozenset(map(int, tokenizer.convert_tokens_to_ids(list(self._ends))))
        self._plain = PlainText(tokenizer, self.format.REPLY_FRAMES)
        self._options = dict(template_options or {})
        self._generation_prompts: dict[str, str] = {}
        self._probe_prompt = self._render(_PROBE, add_generation_prompt=True)
        self._probe_reply = self._render([*_PROBE, _PROBE_REPLY])
        self._observation_cache: dict[tuple[tuple[str, str], ...], list[int]] = {}

    def prompt_ids(self, messages: list[Message], tools: list[dict[str, Any]]) -> list[int]:
        """Ids of a conversation up to the start of the next assistant turn."""
        return self._plain.encode(self._render(messages, tools=self._plain.mark_tools(tools), add_generation_prompt=True))

    def assistant_ids(self, message: Message) -> list[int]:
        """Ids of an assistant turn with its end token, as a policy would sample it after the generation prompt."""
        if self._probe_prompt.rstrip().endswith(THINK_CLOSE):
            message = self._without_thinking(message)
        text = self._render([*_PROBE, message])
        if text.startswith(self._probe_prompt):
            text = text[len(self._probe_prompt) :]
        else:  # the template writes a finished turn in another frame than the one it begins a turn with
            text = self._after_another_frame(text, message)
        end = self._end_in(text)
        return self._plain.encode(text[:end], after="")

    def _without_thinking(self, message: Message) -> Message:
        _, content = self._split(message)
        return {key: value for key, value in message.items() if key != self.format.THINKING_KEY} | {"content": content.lstrip()}

    def _after_another_frame(self, text: str, message: Message) -> str:
        shared = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(text, self._probe_prompt, strict=False))
        text = text[len(list(shared)) :]
        if not opens_thinking(self._probe_prompt):
            return text
        thinking, _ = self._split(message)
        thinking = str(message.get(self.format.THINKING_KEY) or thinking)
        return f"{self._plain.mark(thinking, assistant=True)}\n{THINK_CLOSE}\n\n{text}"

    def _split(self, message: Message) -> tuple[str, str]:
        """The thinking and the rest of a message's content."""
        return split_thinking(message.get("content") or "", (*self.format.CALL_FRAMES, THINK_OPEN)[0])

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
        ids = self._observation_cache.get(key)
        if ids is None:
            after = self._render([*_PROBE, _PROBE_REPLY, *tool_messages], add_generation_prompt=True)
            end = self._probe_reply.rindex(self._end_of_turn) + len(self._end_of_turn)
            if after[:end] != self._probe_reply[:end]:
                raise ConfigError(_REWRITES)
            ids = self._plain.encode(after[end:], after=self._end_of_turn)
            if len(self._observation_cache) >= CACHED_OBSERVATIONS:
                self._observation_cache.clear()
            self._observation_cache[key] = ids
        return ids

    def conversation_ids(
        self, messages: list[Message], tools: list[dict[str, Any]], opening: int = 0
    ) -> tuple[list[int], list[int]]:
        """A whole conversation as (token ids, action mask), both of length T, by a template that only appends.

        See `render_conversation` for the arguments, and for templates that rewrite earlier turns.

        Raises:
            ConfigError: the template rewrites this conversation's earlier turns.
        """
        rendered = self.conversation(messages, tools, opening)
        if rendered.forks:
            raise ConfigError(_REWRITES)
        return rendered.ids, rendered.mask

    def conversation(self, messages: list[Message], tools: list[dict[str, Any]], opening: int = 0) -> RenderedConversation:
        """A whole conversation, cut after the last assistant turn, as a tree of rows; see `render_conversation`."""
        return render_conversation(self, messages, tools, opening)

    def own_turn(self, ids: Sequence[int], after: str) -> OwnTurn:
        """A turn of the policy, sampled or a demonstration's, after a message of the role `after`."""
        said = list(ids[:-1]) if ids and ids[-1] in self.end_of_turn_ids else list(ids)
        text = self.decode(said)
        escaped = self._plain.mark(text, assistant=True)
        return OwnTurn(tuple(ids), text, escaped, self._generation_prompt(after), self._end_of_turn, self.decode)

    def context_ids(
        self, messages: Sequence[Message | int], turns: list[OwnTurn], tools: list[dict[str, Any]]
    ) -> tuple[list[int], int]:
        """Ids of a conversation up to the start of the next turn, rendered as a whole; sampled ids stay where text does.

        Also returns how many of them, at the end, follow the last of the policy's tokens.

        Args:
            messages: The messages; a number stands for the policy's turn of that number.
            turns: The policy's turns.
            tools: The tools offered.

        Raises:
            ConfigError: the template cannot render these messages.
        """
        prepared = [each if isinstance(each, int) else self._prepare(each) for each in messages]
        options = {"tools": self._plain.mark_tools(tools), "add_generation_prompt": True}
        ids: list[int] = []
        last: Sequence[int] = ()
        for piece in rendered_pieces(lambda given: self._apply(given, **options), prepared, turns):
            if isinstance(piece, str):
                after = None if not ids else self.decode(ids[-1:]) if ids[-1] in self.end_of_turn_ids else ""
                last = self._plain.encode(piece, after=after)
            else:
                last = turns[piece.turn].ids[piece.first : piece.last]
            ids += last
        return ids, len(last)

    @cached_property
    def appends(self) -> bool:
        """Whether a turn's context is always that of the turn before, this turn, and the ids of the messages after it.

        Found by probes with tools, users and thinking. Then no conversation needs to be rendered as a whole.
        """
        return not any(self._rewrites(text, role) for text in _PROBE_TURNS for role in ("tool", "user"))

    def _rewrites(self, text: str, role: str) -> bool:
        """Whether contexts of a few turns with this text, and messages of this role between them, are made otherwise."""
        after = self._generation_prompt(role)
        said = text.removeprefix(f"{THINK_OPEN}\n") if opens_thinking(after) else text
        turns: list[OwnTurn] = []
        messages: list[Message | int] = list(_PROBE)
        row = self._plain.encode(self._render(_PROBE, add_generation_prompt=True))
        for number in range(3):
            turn = [*self._plain.encode(said, after=""), self.end_of_turn_id]
            turns.append(self.own_turn(turn, role if number else "user"))
            reply = {"role": role, "content": f"probe {number}"}
            messages += [number, reply]
            try:
                context, _ = self.context_ids(messages, turns, [])
            except Exception:  # a template raises whatever its author chose, for a role it does not know
                return False
            try:
                row += [*turn, *self.observation_ids([reply])]
            except ConfigError:
                return True
            if context != row:
                return True
        return False

    def _generation_prompt(self, role: str) -> str:
        """The text that the template appends after a message of this role to begin an assistant turn."""
        if role not in self._generation_prompts:
            before = [*_PROBE, _PROBE_REPLY, {"role": role, "content": "probe"}] if role != "user" else _PROBE
            try:
                plain, begun = (self._render(before, add_generation_prompt=begin) for begin in (False, True))
            except Exception:  # as above
                return self._generation_prompt("user") if role != "user" else ""
            self._generation_prompts[role] = begun[len(plain) :] if begun.startswith(plain) else ""
        return self._generation_prompts[role]

    def parse(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> ParsedTurn:
        """Parse the text of an assistant turn. A call within its thinking is none, also where the prompt opened that."""
        opened = self._opens_thinking and not text.lstrip().startswith(THINK_OPEN)
        return self.format.parse(f"{THINK_OPEN}\n{text}" if opened else text, tools)

    @cached_property
    def grammars(self) -> Grammars:
        """The grammars that its turns may be held to."""
        return Grammars(self.tokenizer)

    @property
    def thinks(self) -> Literal["opened", "no", "may"]:
        """Whether a turn begins within thinking, cannot think because the template has closed it, or may open it itself."""
        if self._opens_thinking:
            return "opened"
        return "no" if self._probe_prompt.rstrip().endswith(THINK_CLOSE) else "may"

    @cached_property
    def _opens_thinking(self) -> bool:
        return any(opens_thinking(self._generation_prompt(role)) for role in ("user", "tool"))

    def decode(self, ids: list[int]) -> str:
        """The text of ids, special tokens included."""
        return self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def assistant_message(self, text: str, parsed: ParsedTurn, call_prefix: str) -> Message:
        """An OpenAI message from the text of a turn, its thinking apart.

        A malformed turn keeps its raw text, with its well-formed calls beside.
        """
        good = [[call.name, call.arguments] for call in parsed.calls if not call.malformed]
        if len(good) < len(parsed.calls):
            return {"role": "assistant", "content": text, **({WELL_FORMED: good} if good else {})}
        thinking = {self.format.THINKING_KEY: parsed.thinking} if parsed.thinking else {}
        if not parsed.calls:
            same = not thinking and parsed.content == text.strip()
            return {"role": "assistant", "content": text if same else parsed.content, **thinking}
        calls = [
            {
                "id": f"{call_prefix}-{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
            }
            for index, call in enumerate(parsed.calls)
        ]
        return {"role": "assistant", "content": parsed.content or None, **thinking, "tool_calls": calls}

    def _end_in(self, text: str) -> int:
        """The position after the last token that ends a turn."""
        ends = [text.rindex(each) + len(each) for each in self._ends if each in text]
        if not ends:
            raise ConfigError(
                f"the chat template does not end an assistant turn with {' or '.join(sorted(self._ends))}: it writes "
                f"{text[-80:]!r}; set eos_token in tokenizer_config.json, or use another template"
            )
        return max(ends)

    @property
    def plain_text(self) -> PlainText:
        """The marks and control tokens of this tokenizer and format."""
        return self._plain

    def _render(self, messages: list[Message], **options: Any) -> str:
        return self._apply([self._prepare(message) for message in messages], **options)

    def _prepare(self, message: Message) -> Message:
        return self._plain.mark_message(self._dialect.prepare(_prepared(message)))

    def _apply(self, prepared: list[Message], **options: Any) -> str:
        return str(self.tokenizer.apply_chat_template(prepared, tokenize=False, **{**self._options, **options}))


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


def _arguments_of(text: str) -> Any:
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise DataError(f"a call's arguments are not a JSON object, so that no template can write it: {text[:80]!r}")
    return arguments


def _prepared(message: Message) -> Message:
    """Arguments as an object and content as text, as templates expect; OpenAI logs have JSON text and may lack content."""
    calls = []
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        if isinstance(arguments, str):
            arguments = _arguments_of(arguments)
        calls.append({**call, "function": {**call["function"], "arguments": arguments}})
    plain = {**message, "content": message.get("content") or ""}
    return {**plain, "tool_calls": calls} if calls else plain
