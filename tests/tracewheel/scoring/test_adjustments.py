"""What is added to a verifier's reward and subtracted from it: overlong episodes, flawed successes, process rewards."""

from dataclasses import replace

import pytest
from trl.rewards import get_soft_overlong_punishment

from tracewheel.config import OverlongConfig, RubricConfig
from tracewheel.core.types import Trajectory
from tracewheel.environments.workspace.tasks import workspace_task
from tracewheel.scoring.adjustments import overlong_penalty
from tracewheel.scoring.rubric import Rubric, success_of
from tracewheel.scoring.verifiers import VERIFIERS

TASK = workspace_task(
    prompt="Move it.",
    initial_state={"folders": ["", "/a", "/b"], "files": {"/a/x.log": "1"}},
    goal={
        "selector": {"kind": "pattern", "value": ".log"},
        "source": "/a",
        "destination": "/b",
        "manifest": "/b/manifest.json",
    },
)
SOLVED = {"folders": ["", "/a", "/b"], "files": {"/b/x.log": "1", "/b/manifest.json": '["x.log"]'}}
UNSOLVED = {"folders": ["", "/a", "/b"], "files": {"/a/x.log": "1"}}


def asks(index, name, reply="done"):
    """The messages of a turn with one call."""
    function = {"name": name, "arguments": "{}"}
    call = {"id": f"call-{index}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call-{index}", "name": name, "content": reply},
    ]


def episode(names=("list_files", "move_file", "write_file"), replies=None, state=SOLVED, tokens=None, rewards=None, **changes):
    """An episode with one call a turn, and one sampled and one observed token a turn."""
    replies = replies or [f"reply {index}" for index in range(len(names))]
    messages = [message for index, name in enumerate(names) for message in asks(index, name, replies[index])]
    turns = [
        {"start": 2 * index + 1, "end": 2 * index + 2, "calls": 1, "malformed": 0, "policy_version": 0}
        | ({} if rewards is None or rewards[index] is None else {"reward": rewards[index]})
        for index in range(len(names))
    ]
    mask = [0, 1] * len(names) if tokens is None else [1] * tokens
    found = Trajectory(
        "t", TASK.id, "g", 0, 0, 0, 1.0, [1] * len(mask), mask, [-0.1] * len(mask), turns, state, messages, "finished"
    )
    return replace(found, **changes)


def score(trajectory, **values):
    return Rubric(RubricConfig.model_validate(values), [TASK]).score(TASK, trajectory)


@pytest.mark.parametrize(
    ("generated", "punished"),
    [(0, 0.0), (60, 0.0), (61, 0.025), (80, 0.5), (99, 0.975), (100, 1.0), (101, 1.0), (5000, 1.0)],
)
def test_the_overlong_punishment_is_the_papers(generated, punished):
    """DAPO, equation 13, with L_max 100 and L_cache 40: 0 to 60, then (60 - length) / 40, then -1."""
    assert overlong_penalty(100, 40, generated) == pytest.approx(punished / 2)


def test_the_overlong_punishment_is_trls():
    for longest, cache in ((100, 40), (64, 64), (50, 1)):
        theirs = get_soft_overlong_punishment(longest, cache)([[1] * length for length in range(130)])
        ours = [-2 * overlong_penalty(longest, cache, n) for n in range(130)]
        assert ours == pytest.approx(theirs)


def test_overlong_episodes_lose_reward_and_keep_their_success():
    overlong = {"max_tokens": 100, "cache": 40}
    long = score(episode(tokens=80), overlong=overlong)
    assert (long.total, long.breakdown["overlong_penalty"], success_of(long)) == (0.75, 0.25, 1.0)
    short = score(episode(tokens=20), overlong=overlong)
    assert (short.total, short.breakdown["overlong_penalty"]) == (1.0, 0.0)
    failed = score(episode(state=UNSOLVED, tokens=300), overlong=overlong)
    assert failed.total == -0.5, "as in the paper, a failure that is too long is worse than one that is not"


def test_a_cache_beyond_the_limit_is_refused():
    with pytest.raises(ValueError, match="cache .50. is larger than max_tokens .40."):
        OverlongConfig(max_tokens=40, cache=50)


class Stern:
    """A second verifier that disagrees."""

    kind = "stern"

    def verify(self, task, final_state):
        return 0.2, {}


FLAWED = {
    "malformed": episode(turns=[{**turn, "malformed": 1} for turn in episode().turns]),
    "invented tool": episode(("list_files", "teleport", "write_file")),
    "half the calls failed": episode(replies=["error: no such file", "error: no such file", "done"]),
    "loop": episode(("list_files",) * 3, ["a.log"] * 3),
    "cut off": episode(stop_reason="max_turns"),
}


@pytest.mark.parametrize("kind", FLAWED)
def test_a_correct_answer_by_flawed_steps_can_lower_the_reward(kind):
    assert score(FLAWED[kind]).total == 1.0, "by default the end alone counts"
    charged = score(FLAWED[kind], flawed_penalty=0.25)
    assert (charged.total, charged.breakdown["flawed_penalty"], success_of(charged)) == (0.75, 0.25, 1.0)
    failed = score(replace(FLAWED[kind], final_state=UNSOLVED), flawed_penalty=0.25)
    assert (failed.total, failed.breakdown["flawed_penalty"]) == (0.0, 0.0), "failures have no reward to lower"


def test_clean_successes_and_recovered_errors_are_not_charged():
    clean = score(episode(), flawed_penalty=0.25)
    assert (clean.total, clean.breakdown["flawed_penalty"]) == (1.0, 0.0)
    assert score(episode(replies=["error: no such file", "b", "c"]), flawed_penalty=0.25).total == 1.0


def test_a_verifier_that_disagrees_is_a_flaw(monkeypatch):
    monkeypatch.setitem(VERIFIERS, Stern.kind, Stern)
    both = score(episode(), verifiers=[{"kind": "task", "weight": 3}, {"kind": "stern"}], flawed_penalty=0.25)
    assert both.total == pytest.approx(0.8 - 0.25)


def test_process_rewards_are_added_to_the_total_and_to_their_turns():
    scored = score(episode(rewards=[0.25, None, -0.5]))
    assert (scored.total, scored.breakdown["process_reward"], success_of(scored)) == (0.75, -0.25, 1.0)
    assert scored.turn_rewards == [0.25, 0.0, 0.5]


def test_process_rewards_are_absent_where_none_were_returned():
    plain = score(episode())
    assert plain.turn_rewards is None and "process_reward" not in plain.breakdown


def test_an_unscored_episode_has_no_total_whatever_the_environment_returned():
    failed = score(episode(rewards=[1.0, 1.0, 1.0], stop_reason="infrastructure_failed"))
    assert (failed.total, failed.turn_rewards, failed.breakdown) == (None, None, {})


def test_penalties_do_not_hide_a_negative_process_reward():
    charged = score(episode(state=UNSOLVED, rewards=[-0.5, None, None]), malformed_penalty=0.1)
    assert charged.total == -0.5
