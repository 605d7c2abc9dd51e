"""The door of a served policy: conversations that are answered, logged with their tokens, and go on under new weights."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import secrets
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tracewheel.chat.conversation import ReadTurn, turn_reader
from tracewheel.config import RedactionConfig, RolloutConfig
from tracewheel.core import clock
from tracewheel.core.endings import UNFINISHED, mark_of
from tracewheel.core.strict_json import parse_json
from tracewheel.core.types import content_hash
from tracewheel.environments import ServedPrompt
from tracewheel.gateway.asking import ASKER, Asker
from tracewheel.gateway.conversation_log import ConversationLog, LogRedaction
from tracewheel.gateway.engine_thread import EngineThread
from tracewheel.gateway.exchange import MODEL, ChatReply, ChatRequest, Message, Refusal
from tracewheel.gateway.live_episode import Draw, LiveEpisode
from tracewheel.gateway.off_loop import off_loop
from tracewheel.policy.adapters import PolicyRef
from tracewheel.traces.statements import BY_SESSION, PREFIX, VERIFIED, Statement

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer

LOG = logging.getLogger(__name__)
FORMAT = "tracewheel"
MOST_TURNS = 10_000  # of a conversation; its tokens end it earlier
LETTERS = str.maketrans("0123456789", "ghijkmnpqr")  # digits in a row read as a phone number, and the log drops the token ids


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
    calls: set[str] = field(default_factory=set)  # ids of the calls that it made
    tip: str = ""  # its history with the last reply
    cut: list[Message] = field(default_factory=list)  # replies at their limit of tokens


class ServingDoor:
    """The `Door` of a served policy.

    Args:
        served: The champion.
        renderer: Of the policy's chat format.
        config: Caps of a conversation.
        log: Where conversations are written.
        keys: What programs must show, one of them.
        redaction: What is done to a record before it is written.
        prompt: Puts the champion's prompt in place of the program's; the log holds what the policy was given.

    Attributes:
        challenger: Of conversations that begin from now on; None for none.
    """

    def __init__(
        self,
        served: Served,
        renderer: ChatRenderer,
        config: RolloutConfig,
        log: ConversationLog,
        keys: frozenset[str],
        redaction: LogRedaction | None = None,
        prompt: ServedPrompt | None = None,
    ) -> None:
        self._served, self._renderer, self._log, self._keys, self._prompt = served, renderer, log, keys, prompt
        self._redaction = redaction or LogRedaction(RedactionConfig(), renderer)
        self._config = config.model_copy(update={"max_turns": MOST_TURNS})
        self._read: ReadTurn = turn_reader(renderer)
        self.challenger: Challenger | None = None
        self._open: dict[str, Conversation] = {}
        self._sessions: dict[tuple[str, str], Conversation] = {}
        self._histories: dict[str, list[Conversation]] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._refused = ""
        self._shadows: set[asyncio.Task[None]] = set()
        self.answered = self.logged = 0

    def take_over(self, policy: PolicyRef, name: str, prompt: ServedPrompt | None = None) -> None:
        """Serve another policy from the next token on, and its prompt; its canaries are compared first.

        Raises:
            AdapterMismatchError: the engine does not serve it as it was trained; the policy before goes on.
        """
        try:
            self._served.engine.call(lambda engine: engine.update_weights(policy)).result()
        except Exception as error:
            self._refused = f"{name}: {error}"
            raise
        self._served, self._prompt, self._refused = Served(self._served.engine, name), prompt, ""

    def health(self) -> dict[str, Any]:
        """What serves, and what was refused."""
        challenger = self.challenger
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
        same = [secrets.compare_digest(key.encode(), known.encode()) for known in self._keys]  # each, whichever it is
        return episode is None and any(same)

    def models(self, key: str) -> list[str]:
        """The one name that all policies are served under."""
        return [MODEL]

    async def answer(self, key: str, request: ChatRequest) -> ChatReply:
        """The next turn of the conversation that the request goes on with, or of a new one.

        Raises:
            Refusal: the request cannot be answered.
        """
        asker = ASKER.get(Asker())
        chain = await off_loop(_chain, key, request.messages) if asker.session is None else []
        with self._lock:
            conversation = self._conversation(key, asker, request, chain)
            conversation.answering += 1
        if self._prompt is not None:
            messages, tools = self._prompt(request.messages, request.tools)
            request = replace(request, messages=messages, tools=tools)
        try:
            reply = await conversation.episode.answer(request)
            # Unique among all servers, since feedback names the response long after this one is gone; and nobody else's guess.
            reply = replace(reply, id=f"{conversation.episode.key}-{reply.id.rpartition('-')[2]}")
        finally:
            with self._lock:
                conversation.answering -= 1
                conversation.used = time.monotonic()
        with self._lock:
            self.answered += 1
            conversation.cut += [reply.message] if reply.finish_reason == "length" else []
            conversation.tools = request.tools or conversation.tools
            if chain:
                said = _link(chain[-1], reply.message)
                conversation.tip = said
                conversation.calls |= {call["id"] for call in reply.message.get("tool_calls") or ()}
                if said not in conversation.histories:
                    conversation.histories.add(said)
                    self._histories.setdefault(said, []).append(conversation)
        if conversation.shadow is not None:
            task = asyncio.ensure_future(self._in_the_shadow(conversation, conversation.shadow, request, reply))
            self._shadows.add(task)
            task.add_done_callback(self._shadows.discard)
        return reply

    def end(self, key: str, session: str, outcome: float | None, given: dict[str, Any]) -> bool | None:
        """Log a session's conversation with its outcome; returns whether it was logged, None where it was not open.

        An outcome of one that is not open any more is logged as a statement: ingest joins it.

        Args:
            key: Who says so.
            session: Its name.
            outcome: Its reward; None leaves it unscored.
            given: `task` and `environment` of the trace, where known.
        """
        with self._lock:
            found = self._sessions.get((key, session))
        logged = None if found is None else self._finish(found, outcome, given)
        if logged is None and outcome is not None:
            self.say(key, Statement(BY_SESSION, session, outcome, VERIFIED, None, "", 0))
        return logged

    def say(self, key: str, statement: Statement) -> bool:
        """Log what is said of a conversation, whenever it was; returns whether it may be written.

        Who knows a response's id may speak of it. A session's name can be guessed, so it is that of the same key's session.
        """
        client = _client(key) if statement.by == BY_SESSION else None
        statement = statement._replace(said=statement.said or clock.now().isoformat(), client=client)
        record = self._redaction.statement(statement)
        if record is not None:
            self._log.write(record)
        return record is not None

    def end_idle(self, seconds: float, within: float = math.inf) -> int:
        """Log the conversations in which nothing was said for some seconds; returns for how many there was no time `within`."""
        now = time.monotonic()
        with self._lock:
            found = [each for each in self._open.values() if not each.answering and now - each.used >= seconds]
        while found and time.monotonic() < now + within:
            self._finish(found.pop(0), None, {})
        return len(found)

    def _conversation(self, key: str, asker: Asker, request: ChatRequest, chain: list[str]) -> Conversation:
        """The one that is open for the session, or that has said the most of what the request begins with, or a new one.

        Of several that said the same it is the one whose calls the request names, or else one that waits for its client, the
        newest: equal openings stay apart.
        """
        if asker.session is not None:
            return self._sessions.get((key, asker.session)) or self._begin(key, asker)
        said = zip(reversed(chain), reversed(request.messages), strict=True)
        calls = {call["id"] for message in request.messages for call in message.get("tool_calls") or ()}
        for link, message in said:
            if message["role"] == "assistant" and (known := self._histories.get(link)):
                waits = {each.episode.key: each.tip == link and not each.answering for each in known}
                return max(
                    known,
                    key=lambda one: (len(calls & one.calls), one.asker.user == asker.user, waits[one.episode.key], one.used),
                )
        return self._begin(key, asker)

    def _begin(self, key: str, asker: Asker) -> Conversation:
        number = next(self._numbers)
        name = f"{PREFIX}-{secrets.token_hex(6)}-{number}"
        challenger, served, shadow = self.challenger, self._served, None
        if challenger is not None and int(content_hash([name], 8), 16) < challenger.share * 16**8:
            if challenger.live:
                served = challenger.served
            else:
                shadow = self._episode(number, f"{name}-shadow", challenger.served.engine)
        episode = self._episode(number, name, served.engine)
        log = challenger.log if challenger and shadow else None
        conversation = Conversation(key, asker, episode, served, clock.now().isoformat(), shadow, log, used=time.monotonic())
        self._open[name] = conversation
        if asker.session is not None:
            self._sessions[key, asker.session] = conversation
        return conversation

    def _episode(self, number: int, name: str, engine: EngineThread) -> LiveEpisode:
        draw = Draw(int(content_hash([name], 15), 16))
        calls = f"call-{secrets.token_hex(4).translate(LETTERS)}"  # clients that open alike are told apart by them
        return LiveEpisode(number, name, engine, self._renderer, self._read, self._config, draw, calls)

    def _finish(self, conversation: Conversation, outcome: float | None, given: dict[str, Any]) -> bool | None:
        with self._lock:
            if self._open.pop(conversation.episode.key, None) is None:
                return None
            if conversation.asker.session is not None:
                del self._sessions[conversation.key, conversation.asker.session]
            for said in conversation.histories:
                self._histories[said].remove(conversation)
                if not self._histories[said]:
                    del self._histories[said]
        conversation.episode.end("the conversation has ended")
        if conversation.shadow is not None:
            conversation.shadow.end("the conversation has ended")
        if not conversation.episode.turns_so_far():
            return False
        record = self._redaction.conversation(self._record(conversation, outcome, given))
        if record is None:
            return False
        self._log.write(record)
        with self._lock:
            self.logged += 1
        return True

    def _record(self, conversation: Conversation, outcome: float | None, given: dict[str, Any]) -> dict[str, Any]:
        """The conversation as a trace with its tokens."""
        said = conversation.episode.record()
        info = {
            "policy": conversation.served.name,
            "client": _client(conversation.key),
            "policy_version": said.policy_version,
            "temperature": self._config.temperature,
            "top_p": self._config.top_p,
            "turns": said.turns,
            "stop_reason": said.limit or "finished",
            "requests": said.requests,
            **({"forks": said.forks} if said.forks else {}),
            **({"branches": said.branches} if said.branches else {}),
            **({"grammars": said.grammars} if said.grammars else {}),
        }
        return {
            "id": conversation.episode.key,
            "messages": [
                {**message, UNFINISHED: mark_of("length")} if message in conversation.cut else message
                for message in said.messages
            ],
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
            await off_loop(self._log_shadow, conversation, conversation.shadow_log, request, sent, reply)

    def _log_shadow(
        self, conversation: Conversation, log: ConversationLog, request: ChatRequest, sent: ChatReply, reply: ChatReply
    ) -> None:
        record = {
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
        if (redacted := self._redaction.shadow(record, request.messages)) is not None:
            log.write(redacted)


def _client(key: str) -> str:
    """What tells the keys of programs apart in the log; too short to try keys against."""
    return content_hash(["client", key], 8)


def _chain(key: str, messages: list[Message]) -> list[str]:
    """A key of what was said up to each message: made from the key before it, so that a history is hashed once."""
    return list(itertools.accumulate(messages, _link, initial=content_hash([key], 32)))[1:]


def _link(before: str, message: Message) -> str:
    return content_hash([before, _said(message)], 32)


def _said(message: Message) -> list[Any]:
    """What tells a message from others, whatever else the client's library adds to it."""
    calls = [[call["function"]["name"], _arguments(call)] for call in message.get("tool_calls") or []]
    return [message["role"], message.get("content") or "", calls]


def _arguments(call: dict[str, Any]) -> Any:
    try:
        return parse_json(call["function"]["arguments"])
    except ValueError:
        return call["function"]["arguments"]
