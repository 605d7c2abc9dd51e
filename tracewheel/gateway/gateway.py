"""One door for many programs over one engine: each has an episode, an address and a key of its own."""

from __future__ import annotations

import hmac
import itertools
import json
import secrets
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tracewheel.chat.conversation import turn_reader
from tracewheel.config import RolloutConfig
from tracewheel.core.types import content_hash
from tracewheel.gateway.engine_thread import EngineThread
from tracewheel.gateway.exchange import MODEL, ChatReply, ChatRequest, Refusal
from tracewheel.gateway.live_episode import Draw, LiveEpisode
from tracewheel.gateway.off_loop import off_loop

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer


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

    def refused(self, key: str, refusal: Refusal) -> None:
        """Count a request of the program with `key` that could not be read."""
        if key in self._episodes:
            self._episodes[key].refuse(refusal)

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


CONVERSATIONS, TURNS = 256, 1000  # kept at once, and the most turns of one; the one that rested longest goes first


class StandingDoor:
    """The `Door` of `tracewheel serve --gateway`. All requests that open alike are one conversation, with one tree of tokens.

    A conversation that was forgotten goes on all the same: what the policy said in it is then tokenised from its text. The
    names of episodes in a URL are free.

    Args:
        gateway: Answers. Its caps hold for each conversation.
        key: What programs show.
        seed: Of the first conversation; each further one has the next.
        most: The most conversations that are kept at once.
    """

    def __init__(self, gateway: Gateway, key: str, seed: int = 0, most: int = CONVERSATIONS) -> None:
        self._gateway, self._key, self._most = gateway, key.encode(), most
        self._seeds = itertools.count(seed)
        self._open: OrderedDict[str, LiveEpisode] = OrderedDict()
        self._busy: Counter[str] = Counter()

    def admits(self, key: str, episode: str | None) -> bool:
        """Whether this is the door's key."""
        return hmac.compare_digest(key.encode(), self._key)

    def models(self, key: str) -> list[str]:
        """The one model. Any other name is answered by it, too."""
        return [MODEL]

    async def answer(self, key: str, request: ChatRequest) -> ChatReply:
        """The next turn.

        Raises:
            Refusal: the key is unknown, or the request cannot be answered.
        """
        if not self.admits(key, None):
            raise Refusal("authentication", "this key does not open this door")
        opening = await off_loop(_opening, request)
        episode = self._conversation(opening)
        self._busy[opening] += 1
        try:
            return await episode.answer(request)
        finally:
            self._busy[opening] -= 1

    async def count_tokens(self, key: str, request: ChatRequest) -> int:
        """The tokens of the context that `request` would have.

        Raises:
            Refusal: the key is unknown, or the request cannot be answered.
        """
        if not self.admits(key, None):
            raise Refusal("authentication", "this key does not open this door")
        return await off_loop(self._conversation(await off_loop(_opening, request)).count, request)

    def _conversation(self, opening: str) -> LiveEpisode:
        found = self._open.get(opening)
        if found is not None and found.turns_so_far() >= TURNS and not self._busy[opening]:
            self._forget(opening)
            found = None
        if found is None:
            resting = [one for one in self._open if not self._busy[one]]
            for one in resting[: max(0, len(self._open) + 1 - self._most)]:
                self._forget(one)
            found = self._open[opening] = self._gateway.open(Draw(next(self._seeds), by_request=True))
        self._open.move_to_end(opening)
        return found

    def _forget(self, opening: str) -> None:
        self._gateway.close(self._open.pop(opening))
        del self._busy[opening]


def _opening(request: ChatRequest) -> str:
    """What a conversation begins with: its messages before the first turn, its tools, and the agent that asks."""
    before = itertools.takewhile(lambda message: message["role"] != "assistant", request.messages)
    return content_hash(json.dumps([request.agent, request.tools, *before]), 64)  # of the text: the order of keys counts
