"""Endpoints and engines go through one loop: the same words give the same episode."""

import dataclasses
import json
import threading

import pytest

from tracewheel.config import RolloutConfig
from tracewheel.engines.chat_reply import Reply
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.rollout.episode import EpisodeLimits
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.teacher.attempt import EndpointEpisode, attempt_episode

ROOMY = RolloutConfig(max_tokens=4000, max_turn_tokens=1000, max_turns=10)


def message(turn, call):
    if call is None:
        return {"role": "assistant", "content": "Enough."}
    name, arguments = call
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call-{turn}-0", "type": "function", "function": function}],
    }


@pytest.mark.parametrize(("given_up", "max_turns"), [(False, 10), (True, 10), (False, 2)])
def test_endpoint_and_engine_play_the_same_episode(scripted_engine, renderer, tasks, call_text, given_up, max_turns):
    task, config = tasks[0], ROOMY.model_copy(update={"max_turns": max_turns})
    calls = [*solution(task)[:2], None] if given_up else solution(task)
    words = ["Enough." if call is None else call_text(call[0], **call[1]) for call in calls]
    (sampled,) = run_episodes(scripted_engine(renderer, [words]), renderer, config, RolloutPlan([task], samples=1, seed=0))
    replies = iter([Reply(message(turn, call), "stop") for turn, call in enumerate(calls, 1)])
    attempt = attempt_episode(lambda messages, tools: next(replies), EndpointEpisode(task, 0, 0, 1.0, "key"), max_turns)
    assert attempt.messages == sampled.messages
    assert (attempt.stop_reason, attempt.detail, attempt.final_state) == (
        sampled.stop_reason,
        sampled.detail,
        sampled.final_state,
    )
    counts = [{name: turn[name] for name in ("calls", "malformed")} for turn in sampled.turns]
    assert [{name: turn[name] for name in ("calls", "malformed")} for turn in attempt.turns] == counts


class Hangs(WorkspaceEnvironment):
    go_on = threading.Event()

    def step(self, tool, args):
        self.go_on.wait()
        return super().step(tool, args)


def test_a_tool_that_hangs_ends_the_endpoints_episode(tasks):
    task = dataclasses.replace(tasks[0], environment=f"{__name__}:{Hangs.__name__}")
    replies = iter([Reply(message(1, solution(tasks[0])[0]), "stop")])
    episode = EndpointEpisode(task, 0, 0, 1.0, "key")
    attempt = attempt_episode(lambda messages, tools: next(replies), episode, 10, EpisodeLimits(step_seconds=0.2))
    Hangs.go_on.set()
    assert attempt.stop_reason == "infrastructure_failed" and attempt.final_state is None and len(attempt.turns) == 1
    assert attempt.detail == f"TimeLimitError: step {solution(tasks[0])[0][0]}: over 0.2 s (rollout.step_seconds)"
