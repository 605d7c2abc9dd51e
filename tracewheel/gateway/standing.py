"""A door that stays open: one key, and as many conversations as come."""

from __future__ import annotations

import hmac
import itertools
import json
from collections import Counter, OrderedDict

from tracewheel.core.types import content_hash
from tracewheel.gateway.exchange import ChatReply, ChatRequest, Refusal
from tracewheel.gateway.gateway import MODEL, Gateway
from tracewheel.gateway.live_episode import Draw, LiveEpisode
from tracewheel.gateway.off_loop import off_loop

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
