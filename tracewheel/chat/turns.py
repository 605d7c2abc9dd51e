"""Sampled turns read, and prompts rendered: once for all episodes that have the same."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracewheel.chat.formats import ParsedTurn

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer

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
