"""The door of a served policy: conversations that are answered, logged with their tokens, and go on under new weights."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracewheel.chat.turns import ReadTurn, turn_reader
from tracewheel.config import RolloutConfig
from tracewheel.core import clock
from tracewheel.core.types import content_hash
from tracewheel.gateway.asker import ASKER, Asker
from tracewheel.gateway.conversation_log import ConversationLog
from tracewheel.gateway.engine_thread import EngineThread
from tracewheel.gateway.exchange import ChatReply, ChatRequest, Message, Refusal
from tracewheel.gateway.live_episode import Draw, LiveEpisode
from tracewheel.policy.adapters import PolicyRef

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer

LOG = logging.getLogger(__name__)
MODEL, FORMAT = "policy", "tracewheel"
MOST_TURNS = 10_000  # of a conversation; its tokens end it earlier


@dataclass(frozen=True)
class Served:
    """A policy on an engine.

    Attributes:
        engine: Where it is sampled.
        name: As logs and `/health` name it.
    """

    engine: EngineThread
    name: str


@dataclass(frozen=True)
class Challenger:
    """A second policy, for a share of the conversations.

    Attributes:
        served: The policy.
        share: Of the conversations, from 0 to 1.
        live: Whether its reply is the one that is sent; else it answers in the shadow.
        log: Where replies in the shadow are written.
    """

    served: Served
    share: float
    live: bool = False
    log: ConversationLog | None = None


@dataclass(eq=False)
class Conversation:
    """A conversation that is open."""

    key: str
    asker: Asker
    episode: LiveEpisode
    served: Served
    created: str
    shadow: LiveEpisode | None = None
    shadow_log: ConversationLog | None = None
    tools: list[dict[str, Any]] = field(default_factory=list)
    used: float = 0.0
    answering: int = 0
    histories: set[str] = field(default_factory=set)


class ServingDoor:
    """The `Door` of a served policy.

    Args:
        served: The champion.
        renderer: Of the policy's chat format.
        config: Caps of a conversation.
        log: Where conversations are written.
        keys: What programs must show, one of them.
    """

    def __init__(
        self, served: Served, renderer: ChatRenderer, config: RolloutConfig, log: ConversationLog, keys: frozenset[str]
    ) -> None:
        self._served, self._renderer, self._log, self._keys = served, renderer, log, keys
        self._config = config.model_copy(update={"max_turns": MOST_TURNS})
        self._read: ReadTurn = turn_reader(renderer)
        self._challenger: Challenger | None = None
        self._open: dict[str, Conversation] = {}
        self._histories: dict[str, Conversation] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._run = secrets.token_hex(4)
        self._refused = ""
        self._shadows: set[asyncio.Task[None]] = set()
        self.answered = self.logged = 0

    def challenge(self, challenger: Challenger | None) -> None:
        """Give new conversations a challenger, or none any more."""
        self._challenger = challenger

    def take_over(self, policy: PolicyRef, name: str) -> None:
        """Serve another policy from the next token on; its canaries are compared first.

        Raises:
            AdapterMismatchError: the engine does not serve it as it was trained; the policy before goes on.
        """
        try:
            self._served.engine.call(lambda engine: engine.update_weights(policy)).result()
        except Exception as error:
            self._refused = f"{name}: {error}"
            raise
        self._served, self._refused = Served(self._served.engine, name), ""

    def health(self) -> dict[str, Any]:
        """What serves, and what was refused."""
        challenger = self._challenger
        return {
            "status": "ok",
            "policy": self._served.name,
            "policy_version": self._served.engine.policy_version,
            "challenger": None if challenger is None else challenger.served.name,
            "refused": self._refused,
            "open": len(self._open),
            "answered": self.answered,
            "logged": self.logged,
        }

    def admits(self, key: str, episode: str | None) -> bool:
        """Whether `key` is one of those that may ask; there are no episodes with URLs of their own."""
        return episode is None and any(secrets.compare_digest(key.encode(), known.encode()) for known in self._keys)

    def models(self, key: str) -> list[str]:
        """The one name that all policies are served under."""
        return [MODEL]

    async def answer(self, key: str, request: ChatRequest) -> ChatReply:
        """The next turn of the conversation that the request goes on with, or of a new one.

        Raises:
            Refusal: the request cannot be answered.
        """
        with self._lock:
            conversation = self._conversation(key, ASKER.get(Asker()), request)
            conversation.answering += 1
        try:
            reply = await conversation.episode.answer(request)
        finally:
            with self._lock:
                conversation.answering -= 1
                conversation.used = time.monotonic()
        with self._lock:
            self.answered += 1
            conversation.tools = request.tools or conversation.tools
            said = _key(key, conversation.asker.session, [*request.messages, reply.message])
            conversation.histories.add(said)
            self._histories[said] = conversation
        if conversation.shadow is not None:
            task = asyncio.ensure_future(self._in_the_shadow(conversation, conversation.shadow, request, reply))
            self._shadows.add(task)
            task.add_done_callback(self._shadows.discard)
        return reply

    def end(self, key: str, session: str, outcome: float | None, given: dict[str, Any]) -> bool:
        """Log a session's conversation with its outcome; returns whether it was open.

        Args:
            key: Who says so.
            session: Its name.
            outcome: Its reward; None leaves it unscored.
            given: `task` and `environment` of the trace, where known.
        """
        with self._lock:
            found = [each for each in self._open.values() if (each.key, each.asker.session) == (key, session)]
        for conversation in found:
            self._finish(conversation, outcome, given)
        return bool(found)

    def end_idle(self, seconds: float) -> None:
        """Log the conversations in which nothing was said for some seconds."""
        now = time.monotonic()
        with self._lock:
            found = [each for each in self._open.values() if not each.answering and now - each.used >= seconds]
        for conversation in found:
            self._finish(conversation, None, {})

    def _conversation(self, key: str, asker: Asker, request: ChatRequest) -> Conversation:
        if asker.session is not None:
            own = (each for each in self._open.values() if (each.key, each.asker.session) == (key, asker.session))
            found = next(own, None)
        else:
            known = (self._histories.get(said) for said in _prefixes(key, request.messages))
            found = next((each for each in known if each is not None), None)
        return found or self._begin(key, asker)

    def _begin(self, key: str, asker: Asker) -> Conversation:
        number = next(self._numbers)
        name = f"served-{self._run}-{number}"
        challenger, served, shadow = self._challenger, self._served, None
        if challenger is not None and int(content_hash([name], 8), 16) < challenger.share * 16**8:
            if challenger.live:
                served = challenger.served
            else:
                shadow = self._episode(number, f"{name}-shadow", challenger.served.engine)
        episode = self._episode(number, name, served.engine)
        created = clock.now().isoformat()
        log = challenger.log if challenger and shadow else None
        conversation = Conversation(key, asker, episode, served, created, shadow, log, used=time.monotonic())
        self._open[name] = conversation
        return conversation

    def _episode(self, number: int, name: str, engine: EngineThread) -> LiveEpisode:
        draw = Draw(int(content_hash([name], 15), 16))
        return LiveEpisode(number, name, engine, self._renderer, self._read, self._config, draw)

    def _finish(self, conversation: Conversation, outcome: float | None, given: dict[str, Any]) -> None:
        with self._lock:
            if self._open.pop(conversation.episode.key, None) is None:
                return
            for said in conversation.histories:
                self._histories.pop(said, None)
        conversation.episode.end("the conversation has ended")
        if conversation.shadow is not None:
            conversation.shadow.end("the conversation has ended")
        if conversation.episode.turns_so_far():
            self._log.write(self._record(conversation, outcome, given))
            self.logged += 1

    def _record(self, conversation: Conversation, outcome: float | None, given: dict[str, Any]) -> dict[str, Any]:
        """The conversation as a trace with its tokens."""
        said = conversation.episode.record()
        info = {
            "policy": conversation.served.name,
            "policy_version": said.policy_version,
            "temperature": self._config.temperature,
            "top_p": self._config.top_p,
            "turns": said.turns,
            "stop_reason": said.limit or "finished",
            "requests": said.requests,
            **({"forks": said.forks} if said.forks else {}),
            **({"branches": said.branches} if said.branches else {}),
        }
        return {
            "id": conversation.episode.key,
            "messages": said.messages,
            "tools": conversation.tools,
            "environment": given.get("environment"),
            "session": conversation.asker.session or conversation.episode.key,
            "user": conversation.asker.user,
            "created": conversation.created,
            "model": conversation.served.name,
            "outcome": outcome,
            "source_file": "",
            "source_line": 0,
            "format": FORMAT,
            "task": given.get("task"),
            "tokens": {"token_ids": said.token_ids, "action_mask": said.action_mask, "logprobs": said.logprobs},
            "info": info,
        }

    async def _in_the_shadow(
        self, conversation: Conversation, shadow: LiveEpisode, request: ChatRequest, sent: ChatReply
    ) -> None:
        """Log what the challenger would have said; whatever goes wrong is no matter of the program that asked."""
        try:
            reply = await shadow.answer(request)
        except Refusal as refusal:
            LOG.warning("the challenger did not answer: %s", refusal)
            return
        if conversation.shadow_log is not None:
            conversation.shadow_log.write(
                {
                    "conversation": conversation.episode.key,
                    "session": conversation.asker.session,
                    "user": conversation.asker.user,
                    "turn": sent.id,
                    "sent": sent.message,
                    "sent_by": sent.policy_version,
                    "shadow": reply.message,
                    "shadow_by": reply.policy_version,
                    "token_ids": [token.id for token in reply.tokens],
                    "logprobs": [token.logprob for token in reply.tokens],
                }
            )


def _key(key: str, session: str | None, messages: list[Message]) -> str:
    return content_hash([key, session, [_said(message) for message in messages]], 32)


def _said(message: Message) -> list[Any]:
    """What tells a message from others, whatever else the client's library adds to it."""
    calls = [[call["function"]["name"], _arguments(call)] for call in message.get("tool_calls") or []]
    return [message["role"], message.get("content") or "", calls]


def _arguments(call: dict[str, Any]) -> Any:
    try:
        return json.loads(call["function"]["arguments"])
    except ValueError:
        return call["function"]["arguments"]


def _prefixes(key: str, messages: list[Message]) -> Iterator[str]:
    """Keys of what was said up to each assistant message, the longest first."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place]["role"] == "assistant":
            yield _key(key, None, messages[: place + 1])
