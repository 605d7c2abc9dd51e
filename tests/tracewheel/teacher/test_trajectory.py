"""When an endpoint's episode is trainable, and what is kept of it otherwise."""

import re

import pytest

from tracewheel.core.types import Trajectory, first_turn
from tracewheel.teacher.attempt import Attempt
from tracewheel.teacher.baseline import to_trajectory

USAGE = {"prompt_tokens": 1, "cached_tokens": 0, "completion_tokens": 1, "cost": None, "known": True}


def turn(prompt, said, logprobs, *, calls=1, malformed=0, without=""):
    tokens = {"prompt_ids": prompt, "token_ids": said, "logprobs": logprobs} if prompt else None
    return {"calls": calls, "malformed": malformed, "usage": USAGE, "tokens": tokens, "without_tokens": without}


def attempt(*turns, temperature=1.0, stop_reason="finished", final_state=None, **changes):
    messages = [{"role": "user", "content": "do"}, *({"role": "assistant", "content": "x"} for _ in turns)]
    made = Attempt("key", "task", 2, 9, temperature, messages, [], list(turns), stop_reason)
    made.final_state = {"files": {}} if final_state is None else final_state
    for name, value in changes.items():
        setattr(made, name, value)
    return made


# Prompt 1 2 3, reply 7 8; the next prompt adds the observation 4 5, reply 9.
FIRST = turn([1, 2, 3], [7, 8], [-0.1, -0.2])
SECOND = turn([1, 2, 3, 7, 8, 4, 5], [9], [-0.3], calls=2, malformed=1)


def test_the_trajectory_keeps_the_endpoints_tokens():
    trajectory, why = to_trajectory(attempt(FIRST, SECOND), processed_logprobs=False)
    assert why == ""
    assert trajectory.token_ids == [1, 2, 3, 7, 8, 4, 5, 9]
    assert trajectory.action_mask == [0, 0, 0, 1, 1, 0, 0, 1]
    assert trajectory.logprobs == [0.0, 0.0, 0.0, -0.1, -0.2, 0.0, 0.0, -0.3]
    spans = [(turn["start"], turn["end"], turn["calls"], turn["malformed"]) for turn in trajectory.turns]
    assert spans == [(3, 5, 1, 0), (7, 8, 2, 1)]
    assert (trajectory.task_id, trajectory.sample, trajectory.seed, trajectory.stop_reason) == ("task", 2, 9, "finished")
    assert trajectory.policy_version == -1 and set(trajectory.token_versions()) == {-1}, "nobody knows whose they are"
    assert Trajectory.from_record(trajectory.to_record()) == trajectory


def test_an_episode_that_continues_a_conversation_trains_only_its_own_turns():
    """The turns have the same ids: the earlier conversation is part of the first prompt."""
    plain = attempt(FIRST, SECOND)
    earlier = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "y"}]
    opened = attempt(FIRST, SECOND, messages=[*earlier, *plain.messages])
    assert (plain.opening, opened.opening) == (0, 2)
    trajectory, why = to_trajectory(opened, processed_logprobs=False)
    assert why == "" and trajectory.messages == opened.messages
    assert first_turn(trajectory.messages, trajectory.turns) == 3
    expected, _ = to_trajectory(plain, processed_logprobs=False)
    for name in ("token_ids", "action_mask", "logprobs", "turns"):
        assert getattr(trajectory, name) == getattr(expected, name)


@pytest.mark.parametrize(
    ("messages", "turns", "opening"),
    [
        ([], 0, 0),  # the environment failed before anything was said
        (["system", "user"], 0, 0),
        (["system", "user", "assistant", "tool", "assistant"], 2, 0),
        (["system", "user", "user", "assistant"], 1, 0),
        (["system", "assistant", "user"], 0, 2),
        (["system", "assistant", "user", "assistant"], 1, 2),
        (["user", "assistant", "tool", "assistant", "user", "assistant", "tool", "assistant"], 2, 4),
    ],
)
def test_the_opening_ends_before_the_prompt(messages, turns, opening):
    said = [{"role": role, "content": "x"} for role in messages]
    assert attempt(*[FIRST] * turns, messages=said).opening == opening


@pytest.mark.parametrize(
    ("second", "why"),
    [
        # The server's template encodes the reply with other ids.
        (turn([1, 2, 3, 7, 6, 4, 5], [9], [-0.3]), "turn 2: its prompt does not go on from the 5 tokens before it.*at token 4"),
        (turn([0, 2, 3, 7, 8, 4, 5], [9], [-0.3]), "part at token 0"),
        (turn([1, 2, 3, 7], [9], [-0.3]), "part at token 4"),
        (turn(None, [], [], without="the endpoint gives no token ids"), "turn 2: the endpoint gives no token ids"),
    ],
)
def test_prompts_that_do_not_continue_exactly_are_not_trainable(second, why):
    trajectory, reason = to_trajectory(attempt(FIRST, second), processed_logprobs=False)
    assert re.search(why, reason)
    assert trajectory.token_ids == trajectory.action_mask == trajectory.logprobs == [], "no update can take it for one that has"
    assert [(turn["start"], turn["end"]) for turn in trajectory.turns] == [(0, 0), (0, 0)]
    assert trajectory.stop_reason == "finished" and trajectory.final_state == {"files": {}}, "it can be judged all the same"


@pytest.mark.parametrize(
    ("temperature", "processed", "why"),
    [(0.0, True, "greedily"), (0.7, False, "temperature 0.7"), (0.7, True, ""), (1.0, False, "")],
)
def test_log_probabilities_must_be_those_at_the_temperature(temperature, processed, why):
    trajectory, reason = to_trajectory(attempt(FIRST, temperature=temperature), processed_logprobs=processed)
    assert (why in reason) and bool(reason) == bool(why)
    assert trajectory.temperature == temperature and bool(trajectory.token_ids) == (not why)


@pytest.mark.parametrize("stop_reason", ["refused", "budget", "infrastructure_failed"])
def test_refusals_and_budget_stops_count_as_failed_machinery(stop_reason):
    failed = attempt(stop_reason=stop_reason, detail="because", final_state={})
    trajectory, why = to_trajectory(failed, processed_logprobs=False)
    assert (trajectory.stop_reason, trajectory.detail) == ("infrastructure_failed", "because")
    assert why == f"the episode has no end: {stop_reason}"
