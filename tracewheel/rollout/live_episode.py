"""One episode under way: its environment, its tokens so far, and why it stopped.

What the policy sampled is kept as ids with the log-probabilities of the moment; the ids of prompts and
observations are put between, and nothing is tokenised twice. Tokens that exploration forces are context,
like an observation: never counted as sampled. An episode that goes wrong ends with a stop reason, never
with an exception.
"""

from __future__ import annotations

import functools
import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracewheel.chat.hermes import ParsedTurn
from tracewheel.config import RolloutConfig
from tracewheel.core.strict_json import fresh_copy
from tracewheel.core.types import StopReason, Task, Trajectory, Turn, content_hash
from tracewheel.environments import Environment, Observation, make_environment, opening_messages
from tracewheel.rollout.exploration import ForcedCalls, offered_tools

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.engines.base import Generation


@dataclass
class LiveEpisode:
    """One episode. Only `reset` and `carry_out` touch its environment, and they touch nothing that episodes share."""

    task: Task
    sample: int
    seed: int
    temperature: float
    config: RolloutConfig
    renderer: ChatRenderer
    environment: Environment = field(init=False)
    messages: list[dict[str, Any]] = field(init=False)
    ids: list[int] = field(init=False)
    mask: list[int] = field(init=False)
    logprobs: list[float] = field(init=False)
    forced_calls: ForcedCalls = field(init=False)
    forced: int = 0
    turns: list[Turn] = field(default_factory=list)
    stop_reason: StopReason | None = None
    detail: str = ""

    def reset(self) -> None:
        """Make the environment and reset it; may be done in a thread."""
        self.environment = make_environment(self.task.environment)
        try:
            self.environment.reset(self.task)
        except Exception as error:  # a user's environment may fail in any way; the rollout goes on without it
            self._fail(error)

    def open(self) -> None:
        """Render the prompt, once the environment is reset.

        Raises:
            ConfigError: `exploration.tools` names no tool that is offered.
        """
        try:
            self.messages = opening_messages(self.environment, self.task)
        except Exception as error:  # as at reset
            self._fail(error)
            self.messages = [{"role": "user", "content": self.task.prompt}]
        self.ids = list(_prompt_ids(self.renderer, self.environment, self.messages))
        self.mask, self.logprobs = [0] * len(self.ids), [0.0] * len(self.ids)
        prompt, most = len(self.ids), self.config.max_tokens
        if not self.stop_reason and prompt >= most:
            self._stop("max_tokens", f"the prompt has {prompt} tokens, and rollout.max_tokens is {most}")
        tools = offered_tools(self.config.exploration, self.environment.tools())
        heads = [_call_head(self.renderer, json.dumps(tool)) for tool in tools]
        self.forced_calls = ForcedCalls(self.config.exploration.epsilon, heads, self.seed)

    def begin_turn(self) -> list[int]:
        """Begin a turn; returns the ids it is begun with by force, for most turns none."""
        head = self.forced_calls.next_head(room=min(self.config.max_turn_tokens, self.config.max_tokens - len(self.ids)))
        self.forced = len(head)
        self._hear(head)
        return head

    def forced_ids(self) -> list[int]:
        return self.ids[len(self.ids) - self.forced :]

    def turn_budget(self) -> int:
        """How many tokens the policy may sample now: at least one."""
        return min(self.config.max_turn_tokens - self.forced, self.config.max_tokens - len(self.ids))

    def take_turn(self, generation: Generation, read: tuple[str, ParsedTurn]) -> ParsedTurn | None:
        """Record a sampled turn. Returns it when it has calls to carry out, None when the episode has ended."""
        text, parsed = read
        start, versions = len(self.ids), generation.versions
        self.ids += generation.token_ids
        self.mask += [1] * len(generation.token_ids)
        self.logprobs += generation.logprobs
        malformed = sum(bool(call.malformed) for call in parsed.calls)
        changes = [[start + at, new] for at, (old, new) in enumerate(itertools.pairwise(versions), 1) if new != old]
        self.turns.append(Turn(start, len(self.ids), len(parsed.calls), malformed, versions[0], self.forced, changes))
        self.messages.append(self.renderer.assistant_message(text, parsed, f"call-{len(self.turns)}"))
        if generation.ended_by == "length":
            self._stop("max_tokens")
            return None
        if not parsed.calls:
            self._stop("no_tool_call")
            return None
        return parsed

    def observe(self, replies: list[dict[str, Any]]) -> list[int] | None:
        """Take in what `carry_out` came to. Returns the observation's ids, None when the episode has ended."""
        if self.stop_reason:
            return None
        self.messages += replies
        if len(self.turns) >= self.config.max_turns:
            self._stop("max_turns")
            return None
        observed = self.renderer.observation_ids(replies)
        if len(self.ids) + len(observed) >= self.config.max_tokens:
            self._stop("max_tokens")
            return None
        self._hear(observed)
        return observed

    def _hear(self, ids: list[int]) -> None:
        """Append ids that the policy did not sample."""
        self.ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def carry_out(self, parsed: ParsedTurn) -> list[dict[str, Any]]:
        """Carry out a turn's calls; may be done in a thread. Returns the tools' messages."""
        replies: list[dict[str, Any]] = []
        ids = [call["id"] for call in self.messages[-1].get("tool_calls", [])] or [""] * len(parsed.calls)
        for call, call_id in zip(parsed.calls, ids, strict=True):
            if call.malformed:
                observation = Observation(f"error: malformed call {call.malformed}", error=True)
            else:
                try:
                    # A copy: episodes that say the same words share what was parsed.
                    observation = self.environment.step(call.name, fresh_copy(call.arguments))
                    observation.text.encode()
                except Exception as error:  # as at reset
                    self._fail(error)
                    return replies
            if observation.done:
                self._stop("finished")
                return replies
            replies.append({"role": "tool", "tool_call_id": call_id, "name": call.name, "content": observation.text})
        return replies

    def _stop(self, reason: StopReason, detail: str = "") -> None:
        self.stop_reason, self.detail = reason, detail

    def _fail(self, error: Exception) -> None:
        if self.stop_reason != "infrastructure_failed":
            self._stop("infrastructure_failed", f"{type(error).__name__}: {error}")

    def _final_state(self) -> dict[str, Any]:
        try:
            return self.environment.snapshot()
        except Exception as error:  # as at reset
            self._fail(error)
            return {}

    def trajectory(self, policy_version: int) -> Trajectory:
        """The record of an episode that has ended; `policy_version` is for one in which nothing was sampled."""
        final_state = self._final_state()
        assert self.stop_reason is not None
        oldest = min((turn.oldest_version for turn in self.turns), default=policy_version)
        identity = [self.task.id, self.sample, self.seed, oldest, self.ids]
        return Trajectory(
            id=content_hash(identity),
            task_id=self.task.id,
            group=self.task.id,
            sample=self.sample,
            seed=self.seed,
            policy_version=oldest,
            temperature=self.temperature,
            token_ids=self.ids,
            action_mask=self.mask,
            logprobs=self.logprobs,
            turns=[{**vars(turn)} for turn in self.turns],
            final_state=final_state,
            messages=self.messages,
            stop_reason=self.stop_reason,
            detail=self.detail,
        )


@functools.lru_cache(maxsize=4096)
def _call_head(renderer: ChatRenderer, tool: str) -> tuple[int, ...]:
    return tuple(renderer.call_head(json.loads(tool)))


def _prompt_ids(renderer: ChatRenderer, environment: Environment, messages: list[dict[str, Any]]) -> tuple[int, ...]:
    return _encode_prompt(renderer, json.dumps(messages), json.dumps(environment.tools()))


@functools.lru_cache(maxsize=4096)
def _encode_prompt(renderer: ChatRenderer, messages: str, tools: str) -> tuple[int, ...]:
    return tuple(renderer.prompt_ids(json.loads(messages), json.loads(tools)))
