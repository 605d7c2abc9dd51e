"""What a program and the policy said to each other, as one tree of tokens.

Each request is rendered with the ids of the policy's own turns as they were sampled. As far as the tree holds the same tokens
already, the context shares them; from there on it is a branch. So a token is stored once, what was sampled is never tokenised
again, and the tree's rows are what the policy read at its turns.
"""

from __future__ import annotations

import html
import itertools
import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jinja2

from tracewheel.chat.conversation import ReadTurn, call_head, prompt_ids
from tracewheel.chat.formats import WELL_FORMED
from tracewheel.chat.rewriting import OwnTurn
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.forks import TokenTree
from tracewheel.core.types import Turn, content_hash
from tracewheel.gateway.answer_form import begun
from tracewheel.gateway.exchange import ChatReply, ChatRequest, FinishReason, Message, Refusal, SampledToken
from tracewheel.gateway.histories import THINKING, Histories, History, Item

if TYPE_CHECKING:
    from tracewheel.chat.grammar import Grammar, GrammarState
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.engines.base import Generation


CHARACTER = 8  # tokens, more than a character has
SHORTEST_SUMMARY = 12  # characters; a shorter text may stand anywhere by chance
NEAR = 200  # characters between a call's name and its arguments
BESIDE = ("", "parallel", "sub_agent", "new_conversation")  # why a side request parts
OPENING = 60  # characters of a system prompt that tell its agent from others
PART = 0.3  # of a summary's text, at the least, that a harness takes over
_TAG = re.compile(r"</?[A-Za-z][\w-]*>")


def cut_at_stop(renderer: ChatRenderer, ids: list[int], stops: Sequence[str]) -> tuple[list[int], str, str | None]:
    """Cut a turn at the first of some texts.

    Returns:
        The ids that were said, their text without the end token and before the stop, and the stop that was found or None.
    """
    words = ids[:-1] if ids[-1] in renderer.end_of_turn_ids else ids
    text = renderer.decode(words)
    found = [(text.find(stop), stop) for stop in stops if stop and stop in text]
    if not found:
        return ids, text, None
    at, stop = min(found)
    counts = range(1, len(words) + 1)
    first = bisect_left(counts, at + len(stop), key=lambda count: len(renderer.decode(words[:count])))
    # A character of several tokens is several marks before it is whole: the least count may be a little less.
    near = counts[max(0, first - CHARACTER) :]
    count = next(count for count in near if len(renderer.decode(words[:count])) >= at + len(stop))
    return ids[:count], text[:at], stop


@dataclass(frozen=True)
class Context:
    """What the policy reads for a turn: the `ids`, of which the last `forced` begin its turn. `known` of them are a row's.

    `grammar` is what the turn may say, at its beginning; None for anything.
    """

    request: ChatRequest
    history: History
    ids: list[int]
    known: tuple[int, ...] = ()
    forced: int = 0
    grammar: GrammarState | None = None


@dataclass
class Branch:
    """A conversation that parted from all before for a `reason`: the numbers of its turns, and its messages so far."""

    reason: str
    agent: str
    turns: list[int]
    messages: list[Message]
    foreign: int

    def to_record(self) -> dict[str, Any]:
        """As it is stored in a trajectory."""
        return vars(self)


@dataclass(frozen=True)
class _Said:
    """A turn.

    Attributes:
        own: Its ids with an end token.
        row: The flat indices of the row up to its last own token.
        closing: What of its turn others wrote: the end token, where it has none of its own, and words before it.
        role: Of the message that it answered.
        branch: The number of its branch.
        said: What it said, as the program got it.
        sent: The items of the history that it read.
        told: The texts that others wrote in that history.
        agent: What tells the one that asked from others without a name: the tools offered, and how its system prompt begins.
        offered: Whether there were tools.
        named: Whether the program gave the agent a name of its own.
    """

    own: OwnTurn
    row: tuple[int, ...]
    closing: tuple[int, ...]
    role: str
    branch: int
    said: Message
    sent: tuple[Item, ...]
    told: str
    agent: str
    offered: bool
    named: bool


class EpisodeTree:
    """One program's tree.

    Args:
        renderer: Of the policy's chat format.
        read: The renderer's `turn_reader`, which episodes share.
        calls: What the ids of its calls begin with.
    """

    def __init__(self, renderer: ChatRenderer, read: ReadTurn, calls: str = "call") -> None:
        self._renderer, self._read, self._calls = renderer, read, calls
        self._histories = Histories()
        self._said: list[_Said] = []
        self.tokens = TokenTree()
        self.logprobs: list[float] = []
        self.turns: list[Turn] = []
        self.grammars: dict[str, Grammar] = {}
        self.branches: list[Branch] = []

    @property
    def last_row(self) -> tuple[int, ...]:
        """The flat indices of the row that ends with the last turn of the main agent."""
        return self._said[self.last_turn].row if self._said else ()

    @property
    def last_turn(self) -> int:
        """The last turn that was offered tools, as a request for a title is not; the last one where none was."""
        return max((number for number, said in enumerate(self._said) if said.offered), default=len(self._said) - 1)

    def side_turns(self) -> set[int]:
        """The turns beside an agent with tools that had none, and whose text no other turn has read."""
        beside = {number for number, said in enumerate(self._said) if not said.offered and not said.named}
        return beside - self.kept_turns() if any(said.offered for said in self._said) else set()

    def agent_of(self, turn: int) -> str:
        """The agent that had a turn: its name, else one made of its tools and system prompt; "" for the main agent."""
        said = self._said[turn]
        named = self.branches[said.branch].agent
        return named or ("" if said.agent == self._said[self.last_turn].agent else f"agent-{said.agent}")

    def named_branches(self) -> list[Branch]:
        """The branches, the main agent's first: what came before it, or has no tools beside it, is a side request."""
        side = self.side_turns()
        asked = [branch for branch in self.branches if branch.reason in BESIDE and side.issuperset(branch.turns)]
        rest = [branch for branch in self.branches if branch not in asked]
        if not asked or not rest:
            return self.branches
        return [replace(rest[0], reason=""), *rest[1:], *(replace(branch, reason="side_request") for branch in asked)]

    def kept_turns(self) -> set[int]:
        """The turns whose text reached the last turn's context: as they were said, or by way of a text of the policy's in it.

        Such a text is a summary that the program accepted, or what a sub-agent answered: the turns that it had read are kept
        with it. A summary that the program threw away is not kept, nor a reply that it asked for again.
        """
        kept: set[int] = set()
        waiting = [self.last_turn] if self._said else []
        while waiting:
            number = waiting.pop()
            kept |= {number, *self._histories.own_turns(self._said[number].sent)}
            waiting += self._quoted(number, kept)
            kept.update(waiting)
        return kept

    def _quoted(self, number: int, without: set[int]) -> list[int]:
        """The earlier turns whose text others repeat in what a turn read."""
        told = self._said[number].told
        return [at for at, said in enumerate(self._said[:number]) if at not in without and _repeats(told, said.said)]

    def context(self, request: ChatRequest) -> Context:
        """Render a request.

        Raises:
            Refusal: the template cannot render it, it has no message to answer, or it names a tool that it does not offer.
        """
        if not request.messages:
            raise Refusal("invalid_request", "there is no message that the model can answer", "messages")
        tools = json.dumps(request.tools)
        history = self._named(self._histories.read(request.messages, tools, request.agent), request.messages)
        for number, added in self._histories.added.items():
            self._close(number, added)
        try:
            ids, known = self._ids(request, history, tools)
            head = self._head(request)
            grammar = begun(self._renderer, request)
        except (ConfigError, DataError, jinja2.TemplateError) as error:
            raise Refusal("invalid_request", f"the model's chat template cannot write this: {error}", "messages") from error
        return Context(request, history, [*ids, *head], known, len(head), grammar)

    def add_turn(self, context: Context, generation: Generation, answer_id: str) -> ChatReply:
        """Record a sampled turn and give the reply to it."""
        request, history = context.request, context.history
        ids, text, stop = cut_at_stop(self._renderer, generation.token_ids, request.stop)
        logprobs, versions = generation.logprobs[: len(ids)], generation.versions[: len(ids)]
        branch = self._place(context)
        start = len(self.tokens.ids)
        head = context.ids[len(context.ids) - context.forced :]
        said = (*head, *ids)
        whole, parsed = self._read(said, history.tools)
        if stop is not None or generation.ended_by == "length":
            whole = (self._renderer.decode(head) if head else "") + text
            parsed = (
                replace(self._renderer.parse(whole, request.tools), calls=[])
                if stop is None
                else (self._renderer.parse(whole, request.tools))
            )
        self.tokens.add(ids, sampled=True)
        self.logprobs += logprobs
        number = len(self.turns)
        changes = [[start + at, new] for at, (old, new) in enumerate(itertools.pairwise(versions), 1) if new != old]
        malformed = sum(bool(call.malformed) for call in parsed.calls)
        turn = Turn(start, len(self.tokens.ids), len(parsed.calls), malformed, versions[0], context.forced, changes)
        if context.grammar is not None:
            grammar = context.grammar.grammar
            self.grammars[grammar.digest], turn = grammar, replace(turn, grammar=grammar.digest)
        self.turns.append(turn)
        message = self._sent(self._renderer.assistant_message(whole, parsed, f"{self._calls}-{number + 1}"))
        self._histories.add(history, message, stop)
        ended = ids[-1] in self._renderer.end_of_turn_ids
        closing = () if ended else (self._renderer.end_of_turn_id,)
        role = request.messages[-1]["role"]
        own = self._renderer.own_turn((*said, *closing), role)
        row, told = tuple(self.tokens.row), _told(request.messages, history.items)
        asker = _agent_of(request)
        offered = bool(request.tools)
        self._said.append(
            _Said(own, row, closing, role, branch, message, history.items, told, asker, offered, "/" in request.model)
        )
        self._extend(branch, context, message, number)
        finish: FinishReason = "tool_calls" if message.get("tool_calls") else "stop"
        if generation.ended_by == "length" and stop is None:
            finish = "length"
        shown = tuple(
            SampledToken(token, self._renderer.decode([token]), logprob) for token, logprob in zip(ids, logprobs, strict=True)
        )
        return ChatReply(
            message,
            finish,
            len(context.ids),
            shown,
            answer_id,
            stop_sequence=stop,
            policy_version=versions[-1],
            prompt_ids=tuple(context.ids),
        )

    def _close(self, number: int, added: str) -> None:
        """Note what a program has added to a turn that a stop text ended; the policy has not sampled it."""
        said = self._said[number]
        if not added or len(said.closing) > 1:
            return
        plain = self._renderer.plain_text
        closing = (*plain.encode(plain.mark(added, assistant=True), after=""), *said.closing)
        own = self._renderer.own_turn((*said.own.ids[: -len(said.closing)], *closing), said.role)
        self._said[number] = replace(said, own=own, closing=closing)

    def _named(self, history: History, messages: Sequence[Message]) -> History:
        """The history; one that begins anew with what the policy said of its own turns is a compaction."""
        if history.reason not in ("new_conversation", "parallel"):
            return history
        told = _told(messages, history.items)
        for number, said in enumerate(self._said):
            if _repeats(told, said.said) and (self._histories.own_turns(said.sent) or self._quoted(number, set())):
                return replace(history, reason="compaction")
        return history

    def _ids(self, request: ChatRequest, history: History, tools: str) -> tuple[list[int], tuple[int, ...]]:
        """The ids of a history, and the flat indices of the row that they are known to begin with."""
        messages = [self._own_key(message) for message in request.messages]
        if not any(isinstance(item, int) for item in history.items):
            return list(prompt_ids(self._renderer, json.dumps(messages), tools)), ()
        if history.after is not None and self._renderer.appends:
            rest = messages[history.items.index(history.after) + 1 :]
            if not any(message["role"] == "assistant" for message in rest):
                said = self._said[history.after]
                row = [self.tokens.ids[index] for index in said.row]
                return [*row, *said.closing, *self._renderer.observation_ids(rest)], said.row
        mixed: list[Message | int] = [
            item if isinstance(item, int) else message for item, message in zip(history.items, messages, strict=True)
        ]
        ids, _ = self._renderer.context_ids(mixed, [said.own for said in self._said], request.tools)
        return ids, ()

    def _head(self, request: ChatRequest) -> tuple[int, ...]:
        """The ids that begin a turn: the program's prefill, or what its call, or the calls of all tools, begin with."""
        if request.prefill:
            plain = self._renderer.plain_text
            return tuple(plain.encode(plain.mark(request.prefill, assistant=True), after=""))
        if not (request.tool or request.must_call):
            return ()
        wanted = [tool for tool in request.tools if request.tool in (None, tool["function"]["name"])]
        if not wanted:
            raise Refusal("invalid_request", f"tool_choice: '{request.tool or 'any'}' is not among the tools", "tool_choice")
        heads = [call_head(self._renderer, json.dumps(tool)) for tool in wanted]
        shared = itertools.takewhile(lambda ids: len(set(ids)) == 1, zip(*heads, strict=False))
        return tuple(ids[0] for ids in shared)

    def _place(self, context: Context) -> int:
        """Put the context into the tree, and find its branch or begin one. The tree's row ends with the context then."""
        history, tree = context.history, self.tokens
        tree.row = list(context.known)
        shared = len(context.known) + tree.follow(context.ids[len(context.known) :])
        missing = context.ids[shared:]
        tree.add(missing, sampled=False)
        self.logprobs += [0.0] * len(missing)
        if history.after is not None and history.reason is None:
            before = self._said[history.after]
            if tuple(tree.row[: len(before.row)]) == before.row:
                return before.branch
        reason = "template" if history.reason is None else history.reason
        self.branches.append(Branch(reason, history.agent, [], [], history.foreign))
        return len(self.branches) - 1

    def _extend(self, branch: int, context: Context, message: Message, turn: int) -> None:
        found = self.branches[branch]
        found.turns.append(turn)
        found.messages = [*context.request.messages, message]
        found.foreign = context.history.foreign

    def _own_key(self, message: Message) -> Message:
        """The message with its thinking under the key that the policy's template reads."""
        key = self._renderer.format.THINKING_KEY
        if THINKING not in message or key == THINKING:
            return message
        return {key if name == THINKING else name: value for name, value in message.items()}

    def _sent(self, message: Message) -> Message:
        """The message as the program gets it."""
        key = self._renderer.format.THINKING_KEY
        return {THINKING if name == key else name: value for name, value in message.items() if name != WELL_FORMED}


def _agent_of(request: ChatRequest) -> str:
    """What tells agents without names apart, the same in all episodes: where they work stands later in a system prompt."""
    system = next((message["content"] or "" for message in request.messages if message["role"] == "system"), "")
    return content_hash([sorted(tool["function"]["name"] for tool in request.tools), system.strip()[:OPENING]], 6)


def _told(messages: Sequence[Message], items: Sequence[Item]) -> str:
    """What others than the policy wrote in a history, with single spaces and without the escapes of XML."""
    texts = [message.get("content") or "" for message, item in zip(messages, items, strict=True) if isinstance(item, str)]
    return " ".join(html.unescape(" ".join(texts)).split())


def _repeats(told: str, said: Message) -> bool:
    """Whether others repeat what a turn said: its text, a large part of it in tags of its own, or else all its calls.

    A harness that writes the whole history into a request for a summary repeats calls, too.
    """
    text = said.get("content") or ""
    parts = [" ".join(part.split()) for part in (text, *_TAG.split(text))]
    least = max(SHORTEST_SUMMARY, PART * len(parts[0]))
    if len(parts[0]) >= SHORTEST_SUMMARY:
        return any(len(part) >= least and part in told for part in parts)
    calls = said.get("tool_calls") or []
    return bool(calls) and all(_repeats_call(told, **call["function"]) for call in calls)


def _repeats_call(told: str, name: str, arguments: str) -> bool:
    """Whether a call's name, and soon after it its arguments, stand in what others wrote, JSON within JSON or not."""
    given = " ".join(arguments.split())
    forms = {given, given.replace('"', '\\"'), given.replace(": ", ":").replace(", ", ","), given.replace('"', "'")}
    return any(name in before[-NEAR:] for form in forms if form for before in told.split(form)[:-1])
