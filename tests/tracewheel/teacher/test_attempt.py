"""Endpoints and engines go through one loop: the same words give the same episode."""

import json

import pytest

from tracewheel.config import RolloutConfig
from tracewheel.engines.chat_reply import Reply
from tracewheel.environments.workspace.agent import solution
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
