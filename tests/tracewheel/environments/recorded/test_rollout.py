"""Rollouts in a recorded environment: prompts, ends of episodes, and scores."""

import pandas as pd
import pytest

from tests.replaying import replay_traces
from tracewheel.config import RolloutConfig, RubricConfig
from tracewheel.environments.recorded.traces import recorded_episodes
from tracewheel.rollout.rollout import RolloutPlan, rollout_metrics, run_episodes
from tracewheel.scoring.rubric import Rubric

ROOMY = RolloutConfig(max_tokens=8000, max_turn_tokens=1000)


@pytest.fixture
def task(logs, make_recording):
    """The second turn of a conversation: two teas were bought, and the user asks what is left."""
    said = [("user", "Two teas."), *logs.bought[:2], ("say", "Anything else?"), ("user", "What is left?"), logs.bought[2]]
    traces = pd.DataFrame([logs.record("win", logs.conversation(*said, ("say", "One.")), task="x", outcome=1.0)])
    kind, _ = make_recording(traces)
    _, tasks = replay_traces(recorded_episodes(traces, kind)[0], kind)
    return next(task for task in tasks.values() if task.prompt == "What is left?")


@pytest.fixture
def play(scripted_engine, renderer, task):
    """One episode with given turns, and its score."""

    def run(*words):
        (trajectory,) = run_episodes(
            scripted_engine(renderer, [list(words)]), renderer, ROOMY, RolloutPlan([task], samples=1, seed=0)
        )
        return trajectory, Rubric(RubricConfig(), [task]).score(task, trajectory)

    return run


def test_the_policy_sees_the_opening_but_never_the_goal(play, task, renderer):
    trajectory, _ = play("I do not know.")
    assert [message["role"] for message in trajectory.messages] == [
        "system", "user", "assistant", "tool", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert trajectory.messages[0]["content"] == "You keep a shop." and trajectory.messages[7]["content"] == "What is left?"
    shown = renderer.decode(trajectory.token_ids[: trajectory.turns[0]["start"]])
    assert "Two teas." in shown and "What is left?" in shown and "references" not in shown
    assert sum(trajectory.action_mask[: trajectory.turns[0]["start"]]) == 0, "what was said before was not sampled"


def test_the_logged_calls_succeed_and_no_calls_fail(play, call_text):
    trajectory, score = play(call_text("stock", item="tea"), "One.")
    assert (score.status, score.total, trajectory.stop_reason) == ("scored", 1.0, "no_tool_call")
    assert [message["content"] for message in trajectory.messages if message["role"] == "tool"][-1] == "1"
    assert play("I do not know.")[1].total == 0.0


def test_an_unrecorded_call_leaves_the_episode_unscored(play, call_text):
    trajectory, score = play(call_text("stock", item="tea"), call_text("stock", item="coffee"), "None.")
    assert (score.status, score.total) == ("unscored", None)
    assert "unrecorded call of stock" in score.detail and trajectory.stop_reason == "finished"


def test_diversity_covers_only_own_calls(scripted_engine, renderer, task, call_text):
    """The opening is the same for all, and would make any two episodes look similar."""
    engine = scripted_engine(renderer, [[call_text("stock", item="tea"), "One."], ["I do not know."]])
    episodes = run_episodes(engine, renderer, ROOMY, RolloutPlan([task], samples=2, seed=0))
    metrics = rollout_metrics(episodes)
    assert (metrics["group_diversity"], metrics["distinct_tool_sequences"]) == (1.0, 1.0)
