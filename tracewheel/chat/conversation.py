"""A conversation as the policy really sees it at each turn.

Most chat templates append: what they rendered stays, and each turn and observation follows it. Others rewrite earlier turns,
as Qwen3's does, which strips the thinking before the last user message. There the next turn's context is rendered anew, with
the sampled ids verbatim wherever the template keeps the turn's text (`tracewheel/chat/rewriting.py`), and a new row forks
from the last one after the longest beginning that is the same token by token.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tracewheel.chat.formats import ParsedTurn
from tracewheel.chat.rewriting import Message, OwnTurn
from tracewheel.core.forks import TokenTree, longest_row

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer


class Step(NamedTuple):
    """What a turn's context has beside the row so far: the row's first `keep` tokens stay, and `ids` follow them.

    The first `repeated` of these are not new: the template wrote them before, and they are stored and computed once more.
    """

    keep: int
    ids: list[int]
    repeated: int = 0


@dataclass(frozen=True)
class RenderedTurn:
    """A turn of a rendered conversation; positions are flat, and numbers of tokens are those of its row.

    `context` tokens precede the turn. `dropped` tokens of the row before are not in this one: the template rewrote them, and
    0 of them means that the turn continues its row. `repeated` is what the fork costs: context tokens that the template wrote
    before and that are stored and computed once more.
    """

    start: int
    end: int
    context: int
    dropped: int
    repeated: int


@dataclass(frozen=True)
class RenderedConversation:
    """A conversation in token ids [T], with the action mask [T], its forks (`core/forks.py`), and its turns."""

    ids: list[int]
    mask: list[int]
    forks: list[list[int]]
    turns: list[RenderedTurn]

    @property
    def longest(self) -> int:
        """The tokens of the longest row."""
        return longest_row(self.forks, len(self.ids))


class Conversation:
    """The contexts of an episode's turns.

    Args:
        renderer: Of the policy's chat format.
        messages: The opening messages.
        tools: The tools offered.
    """

    def __init__(self, renderer: ChatRenderer, messages: Sequence[Message], tools: list[dict[str, Any]]) -> None:
        self._renderer, self._tools = renderer, tools
        self._messages: list[Message | int] = list(messages)
        self._turns: list[OwnTurn] = []

    def add_turn(self, ids: Sequence[int]) -> None:
        """Continue with a turn of the policy, its end token included."""
        if not self._renderer.appends:
            last = self._messages[-1]
            self._turns.append(self._renderer.own_turn(ids, "assistant" if isinstance(last, int) else last["role"]))
            self._messages.append(len(self._turns) - 1)

    def observe(self, messages: list[Message], row: TokenTree) -> Step:
        """Continue with messages that others wrote; what the next turn's context has beside the row so far.

        Raises:
            ConfigError: the template cannot render the messages.
        """
        if self._renderer.appends:
            return Step(len(row.row), self._renderer.observation_ids(messages))
        self._messages += messages
        ids, new = self._renderer.context_ids(self._messages, self._turns, self._tools)
        had = row.row_ids()
        keep = next(
            (at for at, (one, other) in enumerate(zip(ids, had, strict=False)) if one != other), min(len(ids), len(had))
        )
        return Step(keep, ids[keep:], max(0, len(ids) - new - keep))


def render_conversation(
    renderer: ChatRenderer, messages: list[Message], tools: list[dict[str, Any]], opening: int = 0
) -> RenderedConversation:
    """A whole conversation, cut after the last assistant turn: each turn in the row where the policy would produce it.

    The mask is 1 on the ids of assistant turns, including their end tokens. The first `opening` messages are context and part
    of the prompt, even where they are assistant messages.
    """
    first = next(i for i, message in enumerate(messages) if message["role"] == "assistant" and i >= opening)
    tree, turns, replies = TokenTree(), list[RenderedTurn](), list[Message]()
    tree.add(renderer.prompt_ids(messages[:first], tools), sampled=False)
    conversation = Conversation(renderer, messages[:first], tools)
    for index, message in enumerate(messages[first:]):
        if message["role"] != "assistant":
            replies.append(message)
            continue
        dropped, repeated = 0, 0
        if index:
            step = conversation.observe(replies, tree)
            dropped, repeated = len(tree.row) - step.keep, step.repeated
            tree.cut(step.keep)
            tree.add(step.ids, sampled=False)
            replies = []
        said, start, context = renderer.assistant_ids(message), len(tree.ids), len(tree.row)
        tree.add(said, sampled=True)
        conversation.add_turn(said)
        turns.append(RenderedTurn(start, len(tree.ids), context, dropped, repeated))
    return RenderedConversation(tree.ids, tree.mask, tree.forks, turns)


CACHED_TURNS = 65536
CACHED_PROMPTS = 4096
# The text and the calls of a turn's ids, under the tools offered, as JSON.
ReadTurn = Callable[[tuple[int, ...], str], tuple[str, ParsedTurn]]


def turn_reader(renderer: ChatRenderer) -> ReadTurn:
    """Reads sampled turns; a turn that was read before is not parsed again."""

    @functools.lru_cache(maxsize=CACHED_TURNS)
    def read(ids: tuple[int, ...], tools: str) -> tuple[str, ParsedTurn]:
        text = renderer.decode(list(ids[:-1] if ids[-1] in renderer.end_of_turn_ids else ids))
        return text, renderer.parse(text, json.loads(tools))

    return read


@functools.lru_cache(maxsize=CACHED_PROMPTS)
def prompt_ids(renderer: ChatRenderer, messages: str, tools: str) -> tuple[int, ...]:
    """The ids of `ChatRenderer.prompt_ids`, from messages and tools as JSON texts.

    Raises:
        ConfigError: the template cannot render them.
    """
    return tuple(renderer.prompt_ids(json.loads(messages), json.loads(tools)))


@functools.lru_cache(maxsize=CACHED_PROMPTS)
def call_head(renderer: ChatRenderer, tool: str) -> tuple[int, ...]:
    """The ids of `ChatRenderer.call_head`, from a tool as JSON text."""
    head: Any = renderer.call_head(json.loads(tool))
    return tuple(head)


@functools.lru_cache(maxsize=8)
def longest_token(renderer: ChatRenderer) -> int:
    """The most characters of a text that one token may stand for."""
    return max(map(len, renderer.tokenizer.get_vocab()))
