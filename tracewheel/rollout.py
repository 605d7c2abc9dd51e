"""The rollout stage: many episodes at once, token in and token out.

Each episode owns its environment. What the policy sampled is kept as ids with the log-probabilities
of the moment; the ids of prompts and observations are put between, and nothing is tokenised twice.
Tokens that exploration forces are context, like an observation: never counted as sampled.
An episode that goes wrong is a trajectory with a stop reason, never an exception.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.adapters import PolicyRef
from tracewheel.chat.hermes import ParsedTurn
from tracewheel.config import ExplorationConfig, RetrainConfig, RolloutConfig
from tracewheel.diversity import group_diversity
from tracewheel.environments import Environment, Observation, make_environment
from tracewheel.exploration import ForcedCalls, group_temperatures, offered_tools
from tracewheel.files import write_json, write_records
from tracewheel.types import StopReason, Task, Trajectory, Turn, content_hash

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.engines.base import Engine, Generation

Progress = Callable[[int, int], None]


def rollout(
    config: RetrainConfig,
    policy: PolicyRef,
    tasks: list[Task],
    out: Path,
    *,
    samples: int,
    seed: int,
    greedy: bool = False,
    temperature: float | None = None,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Roll a policy out on tasks and write `trajectories.parquet` and `metrics.json` to `out`.

    Args:
        samples: Episodes a task; those of one task form a group.
        seed: Fixes every random number of every episode.
        greedy: Take the most likely token at each step instead of sampling; nothing is then explored.
        temperature: What to sample at instead of the profile's `rollout.temperature`.
        progress: Called with (episodes done, episodes in all).

    Raises:
        AdapterMismatchError: the policy's adapter belongs to another base.
        DataError: the base cannot be loaded.
        InputError: the engine would get the base's logits wrong.
    """
    changed: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
    if greedy:
        changed["exploration"] = ExplorationConfig()
    config = config.model_copy(update={"rollout": config.rollout.model_copy(update=changed)})
    engine, renderer = make_engine(config, policy, greedy=greedy, slots=len(tasks) * samples)
    trajectories = run_episodes(engine, renderer, config.rollout, tasks, samples=samples, seed=seed, progress=progress)
    out.mkdir(parents=True, exist_ok=True)
    write_records(out / "trajectories.parquet", trajectories)
    metrics: dict[str, float] = {
        "episodes": len(trajectories),
        "prompt_and_observation_tokens": sum(len(t.action_mask) - sum(t.action_mask) for t in trajectories),
        "generated_tokens": sum(sum(t.action_mask) for t in trajectories),
        **group_diversity([t.group for t in trajectories], [t.messages for t in trajectories]),
    }
    if config.rollout.exploration.epsilon:
        forced = [turn["forced"] for t in trajectories for turn in t.turns if turn["forced"]]
        metrics |= {"forced_turns": len(forced), "forced_tokens": sum(forced)}
    write_json(out / "metrics.json", metrics)
    return metrics


def make_engine(config: RetrainConfig, policy: PolicyRef, *, greedy: bool, slots: int) -> tuple[Engine, ChatRenderer]:
    """The configured engine with the policy loaded, and the renderer of its chat format."""
    import torch

    from tracewheel.engines.base import Sampling
    from tracewheel.engines.policy_model import load_for_generation, load_renderer
    from tracewheel.engines.transformers import TransformersEngine

    torch.set_num_threads(config.threads)
    renderer = load_renderer(policy.base, config.policy.tool_format)
    engine = TransformersEngine(
        load_for_generation(config.policy, policy),
        stop_id=renderer.end_of_turn_id,
        sampling=Sampling(config.rollout.temperature, config.rollout.top_p, greedy),
        slots=min(slots, config.rollout.engine.slots),
        policy_version=policy.version,
        longest=config.rollout.max_tokens,
    )
    return engine, renderer


def run_episodes(
    engine: Engine,
    renderer: ChatRenderer,
    config: RolloutConfig,
    tasks: list[Task],
    *,
    samples: int,
    seed: int,
    progress: Progress | None = None,
) -> list[Trajectory]:
    """Run `samples` episodes of each task; trajectories in the order of tasks, then samples.

    Raises:
        ConfigError: `exploration.tools` names no tool that is offered.
    """
    from tracewheel.engines.base import Request

    read = functools.lru_cache(maxsize=65536)(lambda ids: _read_turn(renderer, ids))
    temperatures = group_temperatures(config.temperature, config.exploration.temperature_spread, samples)
    episodes: list[_Episode] = []
    for task in tasks:
        for sample, temperature in enumerate(temperatures):
            seed_of_episode = int(content_hash([seed, task.id, sample], 15), 16)
            episode = _Episode(task, sample, seed_of_episode, temperature, config, renderer)
            if not episode.stop_reason:
                episode.begin_turn()
                opening = Request(len(episodes), list(episode.ids), episode.turn_budget(), episode.seed, temperature)
                engine.submit(opening)
            episodes.append(episode)
    open_episodes = sum(not episode.stop_reason for episode in episodes)
    while open_episodes:
        for generation in engine.step():
            episode = episodes[generation.session]
            said = (*episode.forced_ids(), *generation.token_ids)
            observed = episode.take_turn(generation, read(said), engine.policy_version)
            if observed is None:
                engine.close(generation.session)
                open_episodes -= 1
                if progress:
                    progress(len(episodes) - open_episodes, len(episodes))
            else:
                new_ids = observed + episode.begin_turn()
                engine.submit(Request(generation.session, new_ids, episode.turn_budget()))
    return [episode.trajectory(engine.policy_version) for episode in episodes]


def _read_turn(renderer: ChatRenderer, ids: tuple[int, ...]) -> tuple[str, ParsedTurn]:
    spoken = list(ids[:-1]) if ids[-1] == renderer.end_of_turn_id else list(ids)
    text = renderer.decode(spoken)
    return text, renderer.parse(text)


@dataclass
class _Episode:
    """One episode under way: its environment, its tokens so far, and why it stopped."""

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

    def __post_init__(self) -> None:
        self.environment = make_environment(self.task.environment)
        try:
            self.environment.reset(self.task)
        except Exception as error:  # a user's environment may fail in any way; the rollout goes on without it
            self._fail(error)
        self.messages = [
            {"role": "system", "content": self.environment.system_prompt},
            {"role": "user", "content": self.task.prompt},
        ]
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

    def take_turn(self, generation: Generation, read: tuple[str, ParsedTurn], policy_version: int) -> list[int] | None:
        """Record a sampled turn and carry out its calls. Returns the observation's ids, None at the end."""
        text, parsed = read
        start = len(self.ids)
        self.ids += generation.token_ids
        self.mask += [1] * len(generation.token_ids)
        self.logprobs += generation.logprobs
        malformed = sum(bool(call.malformed) for call in parsed.calls)
        self.turns.append(Turn(start, len(self.ids), len(parsed.calls), malformed, policy_version, self.forced))
        message = self.renderer.assistant_message(text, parsed, f"call-{len(self.turns)}")
        self.messages.append(message)
        if generation.ended_by == "length":
            self._stop("max_tokens")
            return None
        if not parsed.calls:
            self._stop("no_tool_call")
            return None
        replies = self._carry_out(parsed, message)
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

    def _carry_out(self, parsed: ParsedTurn, message: dict[str, Any]) -> list[dict[str, Any]]:
        replies: list[dict[str, Any]] = []
        ids = [call["id"] for call in message.get("tool_calls", [])] or [""] * len(parsed.calls)
        for call, call_id in zip(parsed.calls, ids, strict=True):
            if call.malformed:
                observation = Observation(f"error: malformed call {call.malformed}", error=True)
            else:
                try:
                    # A copy: episodes that say the same words share what was parsed.
                    observation = self.environment.step(call.name, copy.deepcopy(call.arguments))
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
        final_state = self._final_state()
        assert self.stop_reason is not None
        identity = [
            self.task.id,
            self.sample,
            self.seed,
            self.turns[0].policy_version if self.turns else policy_version,
            self.ids,
        ]
        return Trajectory(
            id=content_hash(identity),
            task_id=self.task.id,
            group=self.task.id,
            sample=self.sample,
            seed=self.seed,
            policy_version=policy_version,
            temperature=self.temperature,
            token_ids=self.ids,
            action_mask=self.mask,
            logprobs=self.logprobs,
            turns=[asdict(turn) for turn in self.turns],
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
