"""Turn rewards: worked by hand, by replay of real rollouts, and failures to replay."""

import random
from dataclasses import replace

import pytest

from tracewheel.chat.formats import WELL_FORMED
from tracewheel.config import RolloutConfig, RubricConfig
from tracewheel.core.errors import DataError
from tracewheel.environments import ENVIRONMENTS
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.environments.workspace.tasks import FAMILIES, make_task, workspace_task
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.scoring.rubric import Rubric, replay_turns, shaped_rewards
from tracewheel.scoring.verifiers import VERIFIERS

TASK = workspace_task(
    prompt="Move *.log from /a to /b, then write /b/manifest.json listing them.",
    initial_state={"folders": ["", "/a", "/b"], "files": {"/a/x.log": "1", "/a/y.log": "2", "/a/z.txt": "3"}},
    goal={
        "selector": {"kind": "pattern", "value": ".log"},
        "source": "/a",
        "destination": "/b",
        "manifest": "/b/manifest.json",
    },
)


@pytest.fixture
def play(renderer, scripted_engine):
    """Trajectories of real rollouts with given turns."""

    def run(task, words, **values):
        engine = scripted_engine(renderer, [words])
        config = RolloutConfig(max_tokens=4000, max_turn_tokens=400, **values)
        return run_episodes(engine, renderer, config, RolloutPlan([task], samples=1, seed=0))[0]

    return run


def score(task, trajectory, **values):
    return Rubric(RubricConfig(turn_rewards=True, **values), [task]).score(task, trajectory)


def test_shaped_rewards_by_hand():
    assert shaped_rewards([0.0, 0.25, 0.5, 0.9], 1.0) == [0.25, 0.25, 0.5]
    assert shaped_rewards([0.5, 0.75, 0.25], 0.0) == [0.25, -0.25], "a lost episode gives back what it had gained"
    assert shaped_rewards([0.5, 0.1], 1.0) == [1.0], "one turn gets all"
    assert shaped_rewards([0.5], 1.0) == []


def test_each_turn_gets_the_progress_it_made(play, call_text):
    """Two files and a manifest are a third each. Listing is no progress; damaging a file undoes all of it."""
    move = [call_text("move_file", source=f"/a/{name}", destination="/b") for name in ("x.log", "y.log", "z.txt")]
    words = [
        call_text("list_files", path="/a"),
        move[0],
        move[2],
        call_text("move_file", source="/b/z.txt", destination="/a"),
        move[1] + call_text("write_file", path="/b/manifest.json", content='["x.log", "y.log"]'),
        call_text("finish"),
    ]
    trajectory = play(TASK, words)
    scored = score(TASK, trajectory)
    assert (scored.total, trajectory.stop_reason) == (1.0, "finished")
    assert scored.turn_rewards == pytest.approx([0.0, 1 / 3, -1 / 3, 1 / 3, 2 / 3, 0.0])


def test_a_failed_episode_s_rewards_sum_to_its_total(play, call_text):
    words = [call_text("move_file", source="/a/x.log", destination="/b"), call_text("finish")]
    scored = score(TASK, play(TASK, words))
    assert scored.total == 0.0
    assert scored.turn_rewards == pytest.approx([1 / 3, -1 / 3])


def test_rewards_sum_to_the_total_before_the_penalty(play, call_text):
    words = ["<tool_call>\nno json\n</tool_call>" + call_text("move_file", source="/a/x.log", destination="/b")]
    trajectory = play(TASK, [*words, "Done."])
    scored = score(TASK, trajectory, malformed_penalty=0.5, verifiers=[{"kind": "task"}, {"kind": "workspace"}])
    assert scored.breakdown["malformed_penalty"] == 0.5
    assert scored.turn_rewards == pytest.approx([1 / 3, -1 / 3]), "the valid call of the malformed turn was executed"


def test_a_malformed_turn_is_replayed_from_its_stored_calls_or_by_an_old_record_from_its_text(play, call_text):
    words = ["<tool_call>\nno json\n</tool_call>" + call_text("move_file", source="/a/x.log", destination="/b"), "Done."]
    trajectory = play(TASK, words)
    at = next(i for i, message in enumerate(trajectory.messages) if WELL_FORMED in message)
    stored = trajectory.messages[at]
    for changed in (stored | {"content": "in a format that nobody reads"}, {"role": "assistant", "content": stored["content"]}):
        messages = [*trajectory.messages[:at], changed, *trajectory.messages[at + 1 :]]
        for tool_format in ("auto", "hermes"):
            assert replay_turns(TASK, replace(trajectory, messages=messages), tool_format)[-1] == trajectory.final_state


def test_cost_falls_on_the_last_turn(play, call_text):
    """Success has weight 3 and cost 1: three quarters are progress; 4 of 8 turns leave half of the last quarter."""
    words = [call_text("move_file", source=f"/a/{name}", destination="/b") for name in ("x.log", "y.log")]
    words += [call_text("write_file", path="/b/manifest.json", content='["x.log", "y.log"]'), call_text("finish")]
    objectives = [
        {"kind": "part", "name": "success", "part": "success", "weight": 3},
        {"kind": "cost", "name": "thrift", "measure": "turns", "budget": 8},
    ]
    scored = score(TASK, play(TASK, words), objectives=objectives)
    assert scored.total == 0.875
    assert scored.turn_rewards == pytest.approx([0.25, 0.25, 0.25, 0.125])


@pytest.mark.parametrize("family", FAMILIES)
def test_real_rollouts_replay_and_sum_to_their_totals(family, play, solution_words):
    rng = random.Random(family)
    for tier in (1, 3):
        task = make_task(family, tier, rng)
        words = solution_words(task)
        for said in (words, words[:-2] + words[-1:], [*words[:2], "I give up."], words[1:], [words[0]]):
            trajectory = play(task, said, max_turns=12)
            scored = score(task, trajectory)
            assert scored.detail == ""
            assert len(scored.turn_rewards) == len(trajectory.turns)
            assert sum(scored.turn_rewards) == pytest.approx(scored.total, abs=1e-12)
        assert score(task, play(task, words)).total == 1.0


def test_an_empty_or_early_manifest_loses_no_progress(play, call_text):
    early = call_text("write_file", path="/b/manifest.json", content='["x.log", "y.log"]')
    moves = [call_text("move_file", source=f"/a/{name}", destination="/b") for name in ("x.log", "y.log")]
    scored = score(TASK, play(TASK, [early, *moves, call_text("finish")]))
    assert scored.turn_rewards == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0])


def test_a_truncated_turn_is_not_executed(play, call_text):
    move = call_text("move_file", source="/a/x.log", destination="/b")
    trajectory = play(TASK, [move, move + "and so on " * 200])
    assert trajectory.stop_reason == "max_tokens"
    assert replay_turns(TASK, trajectory)[1:] == [trajectory.final_state] * 2
    assert score(TASK, trajectory).turn_rewards == pytest.approx([1 / 3, -1 / 3])


class Fickle(WorkspaceEnvironment):
    """An environment that is not deterministic."""

    kind = "fickle"
    episodes = 0

    def reset(self, task):
        super().reset(task)
        Fickle.episodes += 1
        self._files["/noise.txt"] = str(Fickle.episodes)


class Graded:
    """A verifier with neither parts nor progress."""

    kind = "graded"

    def verify(self, task, state):
        return len([path for path in state["files"] if path.startswith("/b/")]) / 4, {}


class OffScale(Graded):
    kind = "off_scale_progress"

    def progress(self, task, state):
        return 2.0


@pytest.fixture
def plugins(monkeypatch):
    monkeypatch.setitem(ENVIRONMENTS, "fickle", Fickle)
    for verifier in (Graded, OffScale):
        monkeypatch.setitem(VERIFIERS, verifier.kind, verifier)


def test_without_progress_the_potential_is_the_mean_of_parts_or_the_total(plugins, play, call_text):
    moves = [call_text("move_file", source=f"/a/{name}", destination="/b") for name in ("x.log", "z.txt")]
    trajectory = play(TASK, [*moves, call_text("finish")])
    scored = score(TASK, trajectory, verifiers=[{"kind": "graded"}])
    assert (scored.total, scored.turn_rewards) == (0.5, pytest.approx([0.25, 0.25, 0.0]))


def test_an_episode_that_cannot_be_replayed_keeps_its_total(plugins, play, call_text):
    fickle = replace(TASK, environment="fickle")
    scored = score(fickle, play(fickle, [call_text("finish")]))
    assert (scored.status, scored.total, scored.turn_rewards) == ("scored", 0.0, None)
    assert "another state" in scored.detail
    trajectory = play(TASK, [call_text("finish")])
    lost = score(TASK, replace(trajectory, messages=trajectory.messages[:2]))
    assert lost.turn_rewards is None and "0 assistant messages for 1 turns" in lost.detail
    off = score(TASK, trajectory, verifiers=[{"kind": "off_scale_progress"}])
    assert off.turn_rewards is None and "progress 2.0" in off.detail
    with pytest.raises(DataError, match="another state"):
        replay_turns(TASK, replace(trajectory, final_state={"files": {}}))


def test_without_the_setting_nothing_is_replayed(plugins, play, call_text):
    trajectory = play(TASK, [call_text("finish")])
    assert Rubric(RubricConfig(), [TASK]).score(TASK, trajectory).turn_rewards is None
