"""Step values of a policy that is known, the model against scikit-learn, calibration by hand, and credit that sums up."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tracewheel import ConfigError, DataError, PolicyRef, RolloutSections, Score, wilson_interval
from tracewheel.config.algorithms import GroupAdvantageConfig
from tracewheel.environments.workspace.agent import solution
from tracewheel.learner.advantages.trajectories import turn_advantages
from tracewheel_search import continuing
from tracewheel_search.continuing import Branch, Player
from tracewheel_search.process_model import (
    HiddenStates,
    ProcessModel,
    Steps,
    calibration_error,
    critic_of,
    fit,
    steps_of,
    train,
)
from tracewheel_search.process_model import (
    tested as compared,
)
from tracewheel_search.step_values import StepSettings, StepValue, chosen_steps, step_values, surprise
from tracewheel_search.turn_credit import credited, turn_rewards


@pytest.fixture
def scripted_player(config, base, renderer, scripted_engine, monkeypatch):
    """A player whose policy says the lines of `scripts`, one script an episode that is begun."""

    def make(scripts):
        class Many(scripted_engine):
            """Numbers of sessions begin anew with every call of `play`; scripts go on."""

            begun = 0

            def submit(self, request):
                if request.session not in self.ids:
                    self._scripts[request.session] = type(self._scripts[0])(scripts[self.begun])
                    self.begun += 1
                super().submit(request)

            def close(self, session):
                super().close(session)
                del self.ids[session]

        monkeypatch.setattr(continuing, "make_engine", lambda *_, **__: (Many(renderer, [["x"]] * 200), renderer))
        roomy = config.rollout.model_copy(update={"max_tokens": 4000, "max_turn_tokens": 1000})
        return Player(RolloutSections.of(config.model_copy(update={"rollout": roomy})), PolicyRef(base), 4)

    return make


def test_the_values_of_a_policy_that_is_known(config, tasks, call_text, scripted_player, tmp_path):
    """The episode solves the task. From each of its K states the policy goes on rightly three times and gives up once: 3/4;
    before the last turn, which only says that it is finished, giving up succeeds too.
    """
    task = tasks[0]
    words = [call_text(name, **arguments) for name, arguments in solution(task)]
    count = len(words)
    tries = [script for step in range(count) for script in (words[step:], words[step:], words[step:], ["I give up."])]
    player = scripted_player([words, *tries])
    (whole,) = player.play([Branch(task, 0, 0)])
    assert len(whole.turns) == count and whole.stop_reason == "finished"
    settings = StepSettings(budget=10**6)
    values, figures = step_values(config, player, {task.id: task}, [(whole, 1.0)], settings, tmp_path)
    told = [(step, 4.0 if step == count - 1 else 3.0, 4) for step in range(count)]
    assert [(each.turn, each.successes, each.tried) for each in values] == [*told, (count, 1.0, 0)]
    assert values[0].value == 0.75 and (values[0].low, values[0].high) == tuple(wilson_interval(3, 4))
    assert (values[-1].low, values[-1].high) == (1.0, 1.0)
    assert figures["continuations"] == 4 * count and figures["steps_without_budget"] == 0
    # Each state's tries share its ids, which are not sampled again.
    assert figures["sampled_tokens"] == player.sampled - sum(whole.action_mask)


def test_tries_end_with_the_budget_and_none_is_counted_in_part(config, tasks, call_text, scripted_player, tmp_path):
    task = tasks[0]
    words = [call_text(name, **arguments) for name, arguments in solution(task)]
    player = scripted_player([words, *[["I give up."]] * 100])
    (whole,) = player.play([Branch(task, 0, 0)])
    steps = len(whole.turns)
    for budget, tried in ((4500, 0), (7999, 0), (9000, steps)):  # two tries from the start may take 8,000 tokens
        settings = StepSettings(budget=budget, continuations=2)
        values, figures = step_values(config, player, {task.id: task}, [(whole, None)], settings, tmp_path / str(budget))
        assert [each.tried for each in values] == [2] * tried
        assert figures["steps_without_budget"] == steps - tried and figures["sampled_tokens"] <= budget


def turned(logprobs):
    """A trajectory whose turns have these log-probabilities, one token between them."""
    ids, mask, spans, values = [0], [0], [], [0.0]
    for turn in logprobs:
        spans.append({"start": len(ids), "end": len(ids) + len(turn), "policy_version": 0})
        ids, mask, values = ids + [1] * len(turn) + [0], mask + [1] * len(turn) + [0], [*values, *turn, 0.0]
    return SimpleNamespace(
        id="t", task_id="k", token_ids=ids, action_mask=mask, logprobs=values, turns=spans, branches=[], forks=[],
        token_versions=lambda: [0] * len(ids),
    )  # fmt: skip


def test_the_least_sure_turns_are_tried_before_and_after():
    episode = turned([[-0.1, -0.1], [-2.0], [-0.2], [-1.0, -2.0]])
    assert surprise(episode) == pytest.approx([0.1, 2.0, 0.2, 1.5])
    settings = {"budget": 1, "where": "uncertain"}
    assert chosen_steps(episode, StepSettings(turns=1, **settings)) == [1, 2]
    assert chosen_steps(episode, StepSettings(turns=2, **settings)) == [1, 2, 3]
    assert chosen_steps(episode, StepSettings(budget=1)) == [0, 1, 2, 3]


def test_the_fit_is_scikit_learns():
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    features, tried = rng.normal(size=(80, 3)) * [1.0, 5.0, 0.1] + 2.0, np.full(80, 4.0)
    successes = rng.binomial(4, 1 / (1 + np.exp(-(features[:, 0] - 2.0) * 2))).astype(float)
    model = fit(features, successes, tried)
    x = (features - features.mean(0)) / features.std(0)
    rows, labels = np.concatenate([x, x]), np.repeat([1, 0], 80)
    theirs = linear.LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(
        rows, labels, sample_weight=np.concatenate([successes, tried - successes])
    )
    assert model.weights == pytest.approx(theirs.coef_[0], abs=1e-3) and model.shift == pytest.approx(
        theirs.intercept_[0], abs=1e-3
    )
    assert model.values(features) == pytest.approx(theirs.predict_proba(x)[:, 1], abs=1e-3)


def test_calibration_by_hand():
    """Predictions 0.2, 0.25 and 0.9 with 1, 0 and 2 of 2 tries: bins [0.2, 0.3) with |0.9 - 1| and [0.9, 1] with |1.8 - 2|."""
    predicted, good, tried = np.array([0.2, 0.25, 0.9]), np.array([1.0, 0.0, 2.0]), np.array([2.0, 2.0, 2.0])
    assert calibration_error(predicted, good, tried) == pytest.approx((0.1 + 0.2) / 6)
    steps = Steps(np.zeros((3, 1)), good, tried, ["a", "a", "b"], np.array([0.0, 1.0, 1.0]))
    figures = compared(ProcessModel(np.zeros(1), 0.0, np.zeros(1), np.ones(1)), steps, steps)
    assert figures["brier"] == 0.25 and figures["success"] == 0.5 and figures["tries"] == 6
    assert figures["brier_floor"] == pytest.approx((1 * 1 / 1 + 0 + 0) / 6)
    assert figures["brier_by_turn_alone"] == 0.25 and figures["by_turn"]["1"]["success"] == 0.5
    assert figures["ece"] == 0.0 and figures["by_turn"]["0"]["steps"] == 1


def held_out(steps):
    """The tasks that `train` tests on with seed 0."""
    names = sorted(set(steps.tasks))
    order = np.random.default_rng(0).permutation(len(names))
    return {names[place] for place in order[round(0.6 * len(names)) :]}


def test_a_model_is_tested_on_other_tasks_and_comes_back_from_its_file(tmp_path):
    rng = np.random.default_rng(1)
    names = [f"k{number // 6}" for number in range(120)]
    features = rng.normal(size=(120, 4))
    chances = 1 / (1 + np.exp(-3 * features[:, 0]))
    steps = Steps(features, rng.binomial(4, chances).astype(float), np.full(120, 4.0), names, np.arange(120) % 6.0)
    model, figures = train(steps, 0)
    assert (figures["fitted_tasks"], figures["tasks"]) == (12, 8)
    assert figures["brier"] < figures["brier_by_turn_alone"] and figures["gain_interval"][0] > 0
    assert figures["brier_floor"] < figures["brier_by_turn_alone"]  # the floor is an estimate: by chance a model is below it
    model.save(tmp_path, {"test": figures})
    again = ProcessModel.load(tmp_path)
    assert np.array_equal(again.values(features), model.values(features))
    with pytest.raises(DataError, match="a process model of 4 features, and the policy gives 5"):
        again.values(np.zeros((1, 5)))
    lost = replace(steps, successes=np.where([name in held_out(steps) for name in names], 0.0, steps.successes))
    with pytest.raises(DataError, match="all tries of 8 tasks ended alike: nothing to test a value by"):
        train(lost, 0)
    with pytest.raises(DataError, match="at least 4 are needed"):
        train(steps.take(np.array([name in ("k0", "k1") for name in names])), 0)
    (tmp_path / "process_model.json").write_text("{}")
    with pytest.raises(DataError, match=r"process_model\.json: not a process model"):
        ProcessModel.load(tmp_path)


def test_hidden_states_are_those_of_the_policy_at_the_ends_of_turns(config, base, tasks, tmp_path):
    player = Player(RolloutSections.of(config), PolicyRef(base), 4)
    (episode,) = player.play([Branch(tasks[0], 0, 7)])
    hidden = HiddenStates(config, PolicyRef(base))
    found = hidden.of(episode)
    assert found.shape[0] == len(episode.turns) + 1
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    for number, end in enumerate([episode.turns[0]["start"], *(turn["end"] for turn in episode.turns)]):
        with torch.no_grad():
            states = model(torch.tensor([episode.token_ids[:end]]), output_hidden_states=True).hidden_states[-1]
        assert torch.allclose(states[0, -1].double(), torch.from_numpy(found[number]), atol=1e-4)
    width = found.shape[1]
    ProcessModel(np.zeros(width), math.log(3), np.zeros(width), np.ones(width)).save(tmp_path, {})
    assert critic_of(tmp_path, config, PolicyRef(base))([episode]) == [pytest.approx(0.75)]
    values = [StepValue(episode.id, "k", 0, 1, 1.0, 4, 0.25, 0.0, 1.0)] * 2 + [
        StepValue(episode.id, "k", 1, 1, 1.0, 0, 1, 1, 1)
    ]
    assert steps_of(values, {episode.id: found}).features.shape == (1, width)  # an equal beginning once; no outcome


def test_turn_rewards_by_hand():
    """Values 0.5, 0.8 after turns 1, 2 of 3, outcome 1: 0.5, 0.3, 0.2; half shaping: 0.25, 0.15, 0.1 + 0.5."""
    assert turn_rewards([0.5, 0.8], 1.0) == pytest.approx([0.5, 0.3, 0.2])
    assert turn_rewards([0.5, 0.8], 1.0, 0.5) == pytest.approx([0.25, 0.15, 0.6])
    assert turn_rewards([math.nan, 0.8], 0.0) == pytest.approx([0.0, 0.8, -0.8])
    assert turn_rewards([], 0.25) == [0.25]


def test_credit_changes_no_total_and_becomes_the_advantage_of_turns():
    """Two episodes from one start: 0.5, 1 and 0.2, 0. The learner's advantages without scale, discount 0, are V_k - V_(k-1)
    less the group's mean; the value of the start, which they share, is gone.
    """
    scores = [Score("a", "k", "k", "scored", 1.0, {"success": 1.0}), Score("b", "k", "k", "scored", 0.0, {"success": 0.0})]
    scores.append(Score("c", "k", "k", "unscored", None))
    found = credited(scores, {"a": {0: 0.4, 1: 0.5}, "b": {0: 0.4, 1: 0.2}}, {"a": 2, "b": 2, "c": 3})
    assert [(each.total, each.breakdown) for each in found] == [(each.total, each.breakdown) for each in scores]
    assert found[0].turn_rewards == pytest.approx([0.5, 0.5]) and found[1].turn_rewards == pytest.approx([0.2, -0.2])
    assert found[2] is scores[2] and all(sum(each.turn_rewards) == pytest.approx(each.total) for each in found[:2])
    config = GroupAdvantageConfig(scale=False)
    given = turn_advantages(config, [each.turn_rewards for each in found[:2]], ["k", "k"], 0.0)
    assert given == [pytest.approx([0.15, 0.35]), pytest.approx([-0.15, -0.35])]
    shaped = credited(scores[:2], {"a": {1: 0.5}, "b": {1: 0.2}}, {"a": 2, "b": 2}, "shaping", 0.5)
    assert shaped[0].turn_rewards[-1] >= 0.5 and sum(shaped[0].turn_rewards) == pytest.approx(1.0)
    with pytest.raises(ConfigError, match="the outcome keeps at least half"):
        credited(scores, {}, {}, "shaping", 0.6)
