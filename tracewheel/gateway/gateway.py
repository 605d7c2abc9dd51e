"""One door for many programs over one engine: each has an episode, an address and a key of its own."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tracewheel.chat.conversation import turn_reader
from tracewheel.config import RolloutConfig
from tracewheel.gateway.engine_thread import EngineThread
from tracewheel.gateway.exchange import ChatReply, ChatRequest, Refusal
from tracewheel.gateway.live_episode import Draw, LiveEpisode
from tracewheel.gateway.off_loop import off_loop

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer

MODEL = "policy"


class Gateway:
    """The `Door` of programs that are trained on or evaluated.

    Args:
        engine: Samples the turns.
        renderer: Of the policy's chat format.
        config: Caps of an episode.
    """

    def __init__(self, engine: EngineThread, renderer: ChatRenderer, config: RolloutConfig) -> None:
        self._engine, self._renderer, self._config = engine, renderer, config
        self._read = turn_reader(renderer)
        self._episodes: dict[str, LiveEpisode] = {}
        self._numbers = itertools.count()
        self.address = ""  # of the server before it, as http://127.0.0.1:1234

    def open(self, draw: Draw) -> LiveEpisode:
        """Begin an episode."""
        number = next(self._numbers)
        key = f"tw-{number}-{secrets.token_urlsafe(12)}"
        episode = LiveEpisode(number, key, self._engine, self._renderer, self._read, self._config, draw)
        episode.anthropic_url = f"{self.address}/e/{number}"
        episode.openai_url = f"{episode.anthropic_url}/v1"
        self._episodes[key] = episode
        return episode

    def close(self, episode: LiveEpisode) -> None:
        """End an episode: its key opens nothing any more."""
        episode.end("the episode has ended")
        self._episodes.pop(episode.key, None)

    @contextmanager
    def episode(self, draw: Draw) -> Iterator[LiveEpisode]:
        """An episode for the time of a block."""
        episode = self.open(draw)
        try:
            yield episode
        finally:
            self.close(episode)

    def admits(self, key: str, episode: str | None) -> bool:
        """Whether `key` may ask at the base URL of `episode`, or at the common one (None). Who knocks too often is counted."""
        found = self._episodes.get(key)
        if found is None:
            return False
        found.knocks += 1
        return episode in (None, str(found.number))

    async def answer(self, key: str, request: ChatRequest) -> ChatReply:
        """The next turn for the program that holds `key`.

        Raises:
            Refusal: the key is unknown, the request cannot be answered, or a limit is reached.
        """
        return await self._found(key).answer(request)

    async def count_tokens(self, key: str, request: ChatRequest) -> int:
        """The tokens of the context that `request` would have.

        Raises:
            Refusal: the key is unknown, or the request cannot be answered.
        """
        return await off_loop(self._found(key).count, request)

    def models(self, key: str) -> list[str]:
        """Names of the models behind the door.

        Raises:
            Refusal: the key is unknown.
        """
        self._found(key)
        return [MODEL]

    def _found(self, key: str) -> LiveEpisode:
        episode = self._episodes.get(key)
        if episode is None:
            raise Refusal("authentication", "this key belongs to no episode that is open")
        return episode
