"""A check of benchmarks/time_to_success.py: an episode of the same turns has the same tokens and final state on both sides.

A policy knows the tokens of its warm start, so a prompt or an observation in other tokens would handicap TRL. Scripted turns
(a task's known solution, and what a policy does wrong) go through our loop and through GRPOTrainer's, as they are in a run.
"""

from __future__ import annotations

import json
from typing import Any

from tracewheel.chat.renderer import ChatRenderer
from tracewheel.config import RetrainConfig
from tracewheel.core.types import Task, Trajectory
from tracewheel.engines.base import Generation, Request
from tracewheel.environments import make_environment, opening_messages
from tracewheel.environments.base import Solver
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.loading import policy_renderer
from tracewheel.rollout.rollout import RolloutPlan, run_episodes

Script = list[list[int]]  # token ids of an episode's turns


class ScriptedEngine:
    """Samples the turns of a script; a session's number is its script's."""

    policy_version = 0

    def __init__(self, scripts: list[Script], ends: frozenset[int]) -> None:
        self._left = [list(script) for script in scripts]
        self._ends = ends
        self._open: list[int] = []

    @property
    def idle(self) -> bool:
        return not self._open

    def submit(self, request: Request) -> None:
        self._open.append(request.session)

    def step(self) -> list[Generation]:
        sessions, self._open = self._open, []
        return [self._turn(session, self._left[session].pop(0)) for session in sessions]

    def close(self, session: int) -> None:
        pass

    def update_weights(self, policy: PolicyRef) -> None:
        pass

    def _turn(self, session: int, ids: list[int]) -> Generation:
        ended = ids[-1] in self._ends
        return Generation(session, ids, [0.0] * len(ids), "stop" if ended else "length", [0] * len(ids))


def scripts_of(tasks: list[Task], renderer: ChatRenderer) -> list[Script]:
    """A script for each task: its solution; the same after a wrong turn of one kind or another; a turn that ends an episode."""
    environment = make_environment(tasks[0].environment)
    assert isinstance(environment, Solver)

    def calling(*calls: tuple[str, dict[str, Any]]) -> list[int]:
        made = [{"type": "function", "function": {"name": name, "arguments": given}} for name, given in calls]
        return renderer.assistant_ids({"role": "assistant", "content": "", "tool_calls": made})

    scripts: list[Script] = []
    for number, task in enumerate(tasks):
        calls = environment.solution(task) or []
        turns = [calling(call) for call in calls]
        damaged = turns[0][:-2] + turns[0][-1:]  # the token before the end is missing
        match number % 7:
            case 1:
                turns = [calling(("no_such_tool", {"of": "any kind"})), *turns]
            case 2:
                turns = [damaged, *turns]
            case 3:
                turns = [calling((calls[0][0], {"wrong": 1})), *turns]
            case 4:
                turns = [calling(*calls[:2]), *turns[2:]]
            case 5:
                turns = [turns[0], turns[1][:-1]]  # cut off
            case 6:
                turns = [turns[0], renderer.assistant_ids({"role": "assistant", "content": "I am done."})]
        scripts.append(turns)
    return scripts


def our_episodes(config: RetrainConfig, tasks: list[Task], scripts: list[Script]) -> list[Trajectory]:
    """The scripts through our loop, which forces no call into them."""
    renderer = policy_renderer(config.policy)
    engine = ScriptedEngine(scripts, renderer.end_of_turn_ids)
    settings = config.rollout
    return run_episodes(engine, renderer, settings, RolloutPlan(tasks, samples=1, seed=0))


def trl_rows(tasks: list[Task]) -> list[dict[str, Any]]:
    """The tasks, all of one environment, as rows of a dataset for GRPOTrainer."""
    environment = make_environment(tasks[0].environment)
    rows = []
    for task in tasks:
        environment.reset(task)
        rows.append({"prompt": opening_messages(environment, task), "task": json.dumps(task.to_record())})
    return rows


def trl_episodes(trainer: Any, tasks: list[Task], scripts: list[Script]) -> list[tuple[list[int], list[int], dict[str, Any]]]:
    """The scripts through GRPOTrainer: token ids, action mask and final state of each episode; all prompts must differ."""
    prompts: list[list[int]] = []
    left = [list(script) for script in scripts]

    def single_turn(prompt_ids: list[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        if not prompts:
            prompts.extend(prompt_ids)
        numbers = [next(at for at, prompt in enumerate(prompts) if ids[: len(prompt)] == prompt) for ids in prompt_ids]
        # A script that has run out was not ended where it should: a turn without a call ends it, and the tokens differ.
        return [left[number].pop(0) if left[number] else [trainer.processing_class.eos_token_id] for number in numbers], None

    trainer._generate_single_turn = single_turn
    try:
        made = trainer._generate_and_score_completions(trl_rows(tasks))
    finally:
        del trainer._generate_single_turn
    episodes = []
    for number, prompt in enumerate(prompts):
        whole = made["prompt_ids"][number][made["prompt_mask"][number].bool()].tolist()
        kept = made["completion_mask"][number].bool()
        sampled = made["tool_mask"][number][kept].tolist()
        ids = whole + made["completion_ids"][number][kept].tolist()
        episodes.append((ids, [0] * len(prompt) + sampled, trainer.environments[number].final_state))
    return episodes


def check_same_tokens(trainer: Any, config: RetrainConfig, tasks: list[Task]) -> None:
    """Compare whole episodes of some tasks on both sides.

    Raises:
        SystemExit: tokens, masks or final states differ.
    """
    renderer = policy_renderer(config.policy)
    distinct = list({task.prompt: task for task in tasks}.values())[: 2 * config.rollout.group_size]
    distinct = distinct[: len(distinct) // config.rollout.group_size * config.rollout.group_size]
    scripts = scripts_of(distinct, renderer)
    ours = our_episodes(config, distinct, scripts)
    theirs = trl_episodes(trainer, distinct, scripts)
    for mine, (ids, mask, state) in zip(ours, theirs, strict=True):
        if (mine.token_ids, mine.action_mask, mine.final_state) != (ids, mask, state):
            said = [renderer.decode(each) for each in (mine.token_ids, ids)]
            raise SystemExit(f"the sides differ:\n{said[0]!r}, {mine.final_state}\n{said[1]!r}, {state}")
