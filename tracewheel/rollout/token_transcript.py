"""An episode in token ids: what the policy sampled and what it observed.

Sampled ids are kept with the log-probabilities of the moment; the ids of prompts and observations are put between
them, and nothing is tokenised twice. Tokens that exploration forces are context, like an observation: never counted
as sampled.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, cast

from tracewheel.chat.conversation import Conversation, ReadTurn, call_head, prompt_ids
from tracewheel.chat.formats import ParsedTurn
from tracewheel.config import RolloutConfig
from tracewheel.core.forks import TokenTree
from tracewheel.core.types import StopReason, Trajectory, Turn, content_hash
from tracewheel.engines.base import Request
from tracewheel.rollout.episode import Call, Ending, EpisodeSpec, Message, PolicyTurn, Stop
from tracewheel.rollout.exploration import ForcedCalls, offered_tools

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.engines.base import Generation


class TokenTranscript:
    """The `Transcript` of a policy on an engine.

    Args:
        spec: Which episode.
        config: Caps and exploration.
        renderer: Of the policy's chat format.
        read: The renderer's `turn_reader`, which episodes share.
    """

    def __init__(self, spec: EpisodeSpec, config: RolloutConfig, renderer: ChatRenderer, read: ReadTurn) -> None:
        self._spec, self._config, self._renderer, self._read = spec, config, renderer, read
        self._messages: list[Message] = []
        self._tree = TokenTree()
        self._logprobs: list[float] = []
        self._turns: list[Turn] = []
        self._submitted = 0  # the row's tokens that the engine has
        self._kept = 0  # how many of them stay
        self._forced = 0

    @property
    def submitted(self) -> bool:
        """Whether the engine has a session of this episode."""
        return self._submitted > 0

    def open(self, messages: list[Message], tools: list[dict[str, Any]]) -> Stop | None:
        """Render the prompt.

        Raises:
            ConfigError: `exploration.tools` names no tool that is offered.
        """
        self._messages, self._tools = messages, json.dumps(tools)
        self._add_context(prompt_ids(self._renderer, json.dumps(messages), self._tools))
        exploration = self._config.exploration
        heads = [call_head(self._renderer, json.dumps(tool)) for tool in offered_tools(exploration, tools)]
        self._forced_calls = ForcedCalls(0.0 if self._spec.greedy else exploration.epsilon, heads, self._spec.seed)
        self._conversation = Conversation(self._renderer, messages, tools)
        prompt, most = len(self._tree.row), self._config.max_tokens
        if prompt < most:
            return None
        return Stop("max_tokens", f"the prompt has {prompt} tokens, and rollout.max_tokens is {most}")

    def request(self, session: int) -> Request:
        """Begin a turn: the ids that the engine does not have yet, and how many the policy may sample, at least one."""
        room = min(self._config.max_turn_tokens, self._config.max_tokens - len(self._tree.row))
        head = self._forced_calls.next_head(room)
        self._forced = len(head)
        self._add_context(head)
        budget = min(self._config.max_turn_tokens - self._forced, self._config.max_tokens - len(self._tree.row))
        keep = self._kept if self._kept < self._submitted else None
        fresh, spec = self._tree.row_ids(self._kept), self._spec
        return Request(session, fresh, budget, spec.seed, spec.temperature, greedy=spec.greedy, keep=keep)

    def add_turn(self, reply: Generation) -> PolicyTurn:
        """Record a sampled turn."""
        start, versions = len(self._tree.ids), reply.versions
        said = (*self._tree.ids[start - self._forced :], *reply.token_ids)
        text, parsed = self._read(said, self._tools)
        self._conversation.add_turn(said)
        self._tree.add(reply.token_ids, sampled=True)
        self._logprobs += reply.logprobs
        self._submitted = self._kept = len(self._tree.row)
        malformed = sum(bool(call.malformed) for call in parsed.calls)
        changes = [[start + at, new] for at, (old, new) in enumerate(itertools.pairwise(versions), 1) if new != old]
        self._turns.append(Turn(start, len(self._tree.ids), len(parsed.calls), malformed, versions[0], self._forced, changes))
        message = self._renderer.assistant_message(text, parsed, f"call-{len(self._turns)}")
        self._messages.append(message)
        return PolicyTurn(_calls(parsed, message), cut_off=reply.ended_by == "length", text=message["content"] or "")

    def add_results(self, results: list[Message], *, interrupted: bool) -> None:
        """Record the messages that follow the turn; those of an interrupted turn, which no policy observes, are left out."""
        if not interrupted:
            self._messages += results

    def observe(self, results: list[Message]) -> Stop | None:
        """Append the ids of the messages that followed the turn, in a new row where the template rewrites earlier turns."""
        keep, observed, _ = self._conversation.observe(results, self._tree)
        if keep + len(observed) >= self._config.max_tokens:
            return Stop("max_tokens")
        self._tree.cut(keep)
        self._kept = keep
        self._add_context(observed)
        return None

    def trajectory(self, ending: Ending, policy_version: int) -> Trajectory:
        """The record of an episode that has ended; `policy_version` is for one in which nothing was sampled."""
        spec = self._spec
        oldest = min((turn.oldest_version for turn in self._turns), default=policy_version)
        identity = [spec.task.id, spec.sample, spec.seed, oldest, self._tree.ids]
        return Trajectory(
            id=content_hash(identity),
            task_id=spec.task.id,
            group=spec.task.id,
            sample=spec.sample,
            seed=spec.seed,
            policy_version=oldest,
            temperature=spec.temperature,
            token_ids=self._tree.ids,
            action_mask=self._tree.mask,
            logprobs=self._logprobs,
            turns=ending.with_marks([turn.to_record() for turn in self._turns]),
            final_state=ending.final_state or {},
            messages=self._messages,
            stop_reason=cast(StopReason, ending.stop.reason),
            detail=ending.stop.detail,
            forks=self._tree.forks,
            fault=ending.stop.fault,
            traceback=ending.stop.traceback,
        )

    def _add_context(self, ids: list[int] | tuple[int, ...]) -> None:
        """Append ids that the policy did not sample."""
        self._tree.add(ids, sampled=False)
        self._logprobs += [0.0] * len(ids)


def _calls(parsed: ParsedTurn, message: Message) -> list[Call]:
    """The calls of a turn with the ids that its message gives them; a malformed turn's message has none."""
    if named := message.get("tool_calls"):
        return [Call(given["id"], call.name, call.arguments) for given, call in zip(named, parsed.calls, strict=True)]
    return [
        Call("", call.name, call.arguments, f"error: malformed call {call.malformed}" if call.malformed else "")
        for call in parsed.calls
    ]
