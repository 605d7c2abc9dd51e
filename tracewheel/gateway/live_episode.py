"""An episode of a program that brings its own loop, while it runs."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tracewheel.chat.conversation import ReadTurn, longest_token
from tracewheel.config import RolloutConfig
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.types import Turn, stored_json
from tracewheel.gateway.engine_thread import Answer, Ask, EngineThread
from tracewheel.gateway.episode_tree import Context, EpisodeTree
from tracewheel.gateway.exchange import ChatReply, ChatRequest, Message, Refusal
from tracewheel.gateway.histories import THINKING
from tracewheel.gateway.off_loop import off_loop

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer

OVERRIDDEN = ("temperature", "top_p", "seed")  # of a request, where an episode is drawn as its run says
LONGEST_REFUSAL = 300
Credit = Literal["auto", "all", "last", "kept", "per_agent"]


def credited_turns(tree: EpisodeTree, credit: Credit) -> list[Turn]:
    """The turns with whom their reward is for.

    `all`: every turn gets the episode's. `last`: only turns that the last one has read, as it led to the outcome; the others
    are not trained on. `kept`: those whose text reached the last context, also by way of summaries that the program accepted.
    `auto`: `kept` where the program compacted its history, else `all` but side requests, as for a title. `per_agent`: each
    agent's turns are compared with those of the same agent in other episodes, and get the part `agent.<name>` of the verifier's
    breakdown where it has one.
    """
    if credit == "auto":
        if not any(branch.reason == "compaction" for branch in tree.branches):
            side = tree.side_turns()
            return [replace(turn, credit="") if number in side else turn for number, turn in enumerate(tree.turns)]
        credit = "kept"
    if credit == "all":
        return list(tree.turns)
    if credit == "per_agent":
        return [replace(turn, credit=tree.agent_of(number) or None) for number, turn in enumerate(tree.turns)]
    if credit == "kept":
        kept = tree.kept_turns()
        return [replace(turn, credit=None if number in kept else "") for number, turn in enumerate(tree.turns)]
    last = set(tree.last_row)
    return [replace(turn, credit=None if turn.end - 1 in last else "") for turn in tree.turns]


@dataclass(frozen=True)
class Draw:
    """How an episode's tokens are drawn: by its own seed, and not as the program asks where it is trained on.

    With `by_request` the program's temperature counts, where it names one.
    """

    seed: int = 0
    temperature: float | None = None
    greedy: bool = False
    by_request: bool = False


@dataclass(frozen=True)
class EpisodeTokens:
    """What is left of an episode, as a trajectory holds it.

    Attributes:
        token_ids: [T], each token once.
        action_mask: [T], 1 where the policy sampled.
        logprobs: [T], of the sampled tokens.
        forks: See `core/forks.py`.
        turns: The turns' records, with their `credit`.
        branches: The branches' records; none where the program's history never parted.
        grammars: Those that turns were held to, by the names that turns give them.
        messages: The conversation of the last turn.
        policy_version: The oldest version that sampled a token.
        requests: How many were `asked`, `refused` and `unmatched`, and the `lost_tokens`; see `Trajectory`.
        refused: How many were refused, by kind.
        refusal: What the program was last told when a request was refused.
        limit: The limit that it was refused for since its last turn: `max_turns`, `max_tokens`, or "".
    """

    token_ids: list[int]
    action_mask: list[int]
    logprobs: list[float]
    forks: list[list[int]]
    turns: list[dict[str, Any]]
    branches: list[dict[str, Any]]
    grammars: dict[str, Any]
    messages: list[Message]
    policy_version: int
    requests: dict[str, int]
    refused: dict[str, int]
    refusal: str
    limit: str


class LiveEpisode:
    """One program's episode. Its methods may be called from any thread, but requests are answered in one loop.

    Attributes:
        key: What the program shows at the door.
        number: Its place among the gateway's episodes, part of its address.
        openai_url: For clients of OpenAI; ends with `/v1`.
        anthropic_url: For clients of Anthropic and of Gemini.
    """

    def __init__(
        self,
        number: int,
        key: str,
        engine: EngineThread,
        renderer: ChatRenderer,
        read: ReadTurn,
        config: RolloutConfig,
        draw: Draw,
        calls: str = "call",
    ) -> None:
        self.number, self.key = number, key
        self.openai_url = self.anthropic_url = ""
        self._engine, self._renderer, self._config, self._draw = engine, renderer, config, draw
        self._tree = EpisodeTree(renderer, read, calls)
        self._lock = threading.Lock()  # of the tree; held for long, so never taken in the loop
        self._longest = longest_token(renderer)
        self.knocks = 0  # requests that came to the door with its key
        self._asked, self._unmatched, self._open = 0, 0, 0
        self._refused: Counter[str] = Counter()
        self._fields: Counter[str] = Counter()  # requests by what of them was dropped, or refused
        self._refusal = ""
        self.first = self.largest = 0  # tokens of the first context that was asked for, and of the largest
        self.tools: set[str] = set()  # names of tools that were offered
        self._limit = ""
        self._closed = ""

    async def answer(self, request: ChatRequest) -> ChatReply:
        """The policy's next turn.

        Raises:
            Refusal: the episode has ended, a limit is reached, or the request cannot be answered.
        """
        self._asked += 1
        dropped = set(request.dropped)
        if not self._draw.by_request:
            dropped |= {name for name in OVERRIDDEN if getattr(request, name) is not None}
        self._fields.update(f"dropped.{name}" for name in dropped)
        self.tools |= {tool["function"]["name"] for tool in request.tools}
        try:
            return await self._answer(request)
        except Refusal as refusal:
            self._note(refusal)
            raise

    def refuse(self, refusal: Refusal) -> None:
        """Count a request that could not be read."""
        self._asked += 1
        self._note(refusal)

    def _note(self, refusal: Refusal) -> None:
        self._refused[refusal.kind] += 1
        self._fields[f"refused.{refusal.field}"] += 1
        self._refusal = str(refusal)[:LONGEST_REFUSAL]

    def count(self, request: ChatRequest) -> int:
        """The tokens of the context that a request would have; it is no request of the episode.

        Raises:
            Refusal: the episode has ended, or the request cannot be answered.
        """
        with self._lock:
            self._check_open()
            return len(self._context(request).ids)

    def end(self, why: str) -> None:
        """Answer no more: `why` is what the program is told."""
        self._closed = self._closed or why
        self._engine.release(self.key)

    def turns_so_far(self) -> int:
        """How many turns the policy has had."""
        return len(self._tree.turns)

    def requests_so_far(self) -> int:
        """How many requests there were, also those that were refused or could not be read."""
        return max(self._asked, self.knocks)

    def record(self, credit: Credit = "all") -> EpisodeTokens:
        """What was said until now."""
        with self._lock:
            tree = self._tree
            turns = credited_turns(tree, credit)
            last = next((branch for branch in tree.branches if tree.last_turn in branch.turns), None)
            return EpisodeTokens(
                list(tree.tokens.ids),
                list(tree.tokens.mask),
                list(tree.logprobs),
                [list(fork) for fork in tree.tokens.forks],
                [turn.to_record() for turn in turns],
                [branch.to_record() for branch in tree.named_branches()] if len(tree.branches) > 1 else [],
                {digest: grammar.to_record() for digest, grammar in tree.grammars.items()},
                list(last.messages) if last else [],
                min((turn.oldest_version for turn in tree.turns), default=self._engine.policy_version),
                self._counts(),
                dict(self._refused),
                self._refusal,
                self._limit,
            )

    def _counts(self) -> dict[str, int]:
        return {
            "asked": self._asked,
            "refused": sum(self._refused.values()),
            "unmatched": self._unmatched,
            "lost_tokens": self._engine.lost_tokens(self.key),
            **self._fields,
        }

    async def _answer(self, request: ChatRequest) -> ChatReply:
        self._check()
        self._open += 1
        try:
            context, ask = await off_loop(self._prepared, request)
            self._check_open()  # else it would have a session that nobody closes
            self._unmatched += bool(context.history.foreign)
            answer: Answer = await asyncio.wrap_future(self._engine.ask(ask))
            return await off_loop(self._taken, context, answer)
        except InfrastructureError as error:
            raise Refusal("server_error", str(error)) from error
        except asyncio.CancelledError:
            if self._closed:  # the engine has let go of it; a client that left is told nothing
                raise Refusal("invalid_request", self._closed) from None
            raise
        finally:
            self._open -= 1

    def _prepared(self, request: ChatRequest) -> tuple[Context, Ask]:
        with self._lock:
            try:
                context = self._context(request)
                return context, self._ask(context)
            except Refusal as refusal:
                if refusal.kind == "context_length_exceeded":
                    self._limit = "max_tokens"
                raise

    def _taken(self, context: Context, answer: Answer) -> ChatReply:
        with self._lock:
            self._check_open()
            reply = self._tree.add_turn(context, answer.generation, f"{self.number}-{len(self._tree.turns) + 1}")
            self._limit = ""  # a program that has made its history shorter goes on
        return replace(reply, cached_tokens=answer.cached)

    def _context(self, request: ChatRequest) -> Context:
        """The request's tokens; what is longer than any tokens that the episode may have is not rendered."""
        most = self._config.max_tokens
        if request.form is not None and not self._engine.constrains:
            raise Refusal(
                "invalid_request", "the engine cannot hold an answer to a schema (rollout.engine)", request.form.param
            )
        if max(len(request.messages), _characters(request) // self._longest) > most:
            raise Refusal("context_length_exceeded", f"the messages have over {most} tokens (rollout.max_tokens)", "messages")
        context = self._tree.context(request)
        self.first, self.largest = self.first or len(context.ids), max(self.largest, len(context.ids))
        return context

    def _check_open(self) -> None:
        if self._closed:
            raise Refusal("invalid_request", self._closed)

    def _check(self) -> None:
        self._check_open()
        if len(self._tree.turns) + self._open >= self._config.max_turns:
            self._limit = self._limit or "max_turns"
            raise Refusal("invalid_request", f"the episode has had its {self._config.max_turns} turns (rollout.max_turns)")

    def _ask(self, context: Context) -> Ask:
        request, config, draw = context.request, self._config, self._draw
        room = config.max_tokens - len(context.ids)
        if room < 1:
            raise Refusal(
                "context_length_exceeded",
                f"the messages have {len(context.ids)} tokens, and {config.max_tokens} is the most (rollout.max_tokens)",
                "messages",
            )
        most = min(room, config.max_turn_tokens - context.forced, request.max_tokens or room)
        if most < 1:
            raise Refusal("invalid_request", "tool_choice begins the turn with more tokens than a turn may have", "tool_choice")
        temperature, greedy = draw.temperature, draw.greedy
        if draw.by_request and request.temperature is not None:
            temperature, greedy = (None, True) if request.temperature == 0 else (request.temperature, False)
        return Ask(self.key, context.ids, most, draw.seed, temperature, greedy, context.grammar)


def _characters(request: ChatRequest) -> int:
    texts = (message.get(name) or "" for message in request.messages for name in ("content", THINKING))
    calls = (call["function"]["arguments"] for message in request.messages for call in message.get("tool_calls") or ())
    return sum(map(len, texts)) + sum(map(len, calls)) + sum(len(stored_json(tool)) for tool in request.tools)
