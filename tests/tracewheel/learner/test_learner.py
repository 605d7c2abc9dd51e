"""The learner's choices one by one: which trajectories they use, what they store, and their effect."""

import dataclasses
import json
import math

import pandas as pd
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from tracewheel.config import CriticConfig, PolicyGradientConfig
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.files import read_records, read_table, write_records
from tracewheel.core.types import Trajectory
from tracewheel.learner.batch import micro_batches
from tracewheel.learner.models import load_models
from tracewheel.learner.token_advantages import advantages_by_critic
from tracewheel.learner.trajectory_table import TrajectoryTable
from tracewheel.learner.value_learner import Critic

WEIGHTS = "adapter/adapter_model.safetensors"


def learner_state(folder):
    return json.loads((folder / "learner.json").read_text())


def test_trajectories_without_a_finite_reward_are_masked(run, trajectories, rewards, tmp_path, same_weights):
    unusable = {2: math.nan, 6: math.inf, 7: -math.inf, 10: None}
    full, metrics = run(rewards=[unusable.get(index, reward) for index, reward in enumerate(rewards)])
    assert metrics["masked_share"] == pytest.approx(4 / 12)
    usable = [index for index in range(len(rewards)) if index not in unusable]
    others, fewer = read_records(trajectories, Trajectory), tmp_path / "fewer.parquet"
    write_records(fewer, [others[index] for index in usable])
    assert same_weights(full / WEIGHTS, run(trajectories=fewer, rewards=[rewards[index] for index in usable])[0] / WEIGHTS)


def test_stale_trajectories_are_left_out(run, trajectories, rewards, tmp_path, same_weights):
    """The policy that is updated has version 3, whatever the iteration; a third of the episodes are of version 1."""
    episodes = read_records(trajectories, Trajectory)
    aged = [dataclasses.replace(t, policy_version=1 if index < 4 else 3) for index, t in enumerate(episodes)]
    path = tmp_path / "aged.parquet"
    write_records(path, aged)
    bounded, metrics = run({"off_policy": {"max_staleness": 1}}, trajectories=path, iteration=7)
    assert metrics["stale_share"] == pytest.approx(4 / 12)
    fresh = tmp_path / "fresh.parquet"
    write_records(fresh, aged[4:])
    assert same_weights(bounded / WEIGHTS, run(trajectories=fresh, rewards=rewards[4:], iteration=7)[0] / WEIGHTS)
    _, metrics = run({"off_policy": {"max_staleness": 2}}, trajectories=path, iteration=7)
    assert metrics["stale_share"] == 0.0


@pytest.fixture
def cut_off(trajectories, tmp_path):
    """The trajectories, with every third cut off by a limit; and the others alone."""

    def ended(number):
        return ("max_tokens", "finished", "finished", "max_turns", "finished", "finished")[number % 6]

    episodes = [
        dataclasses.replace(episode, stop_reason=ended(number))
        for number, episode in enumerate(read_records(trajectories, Trajectory))
    ]
    write_records(tmp_path / "cut.parquet", episodes)
    write_records(tmp_path / "whole.parquet", [episode for number, episode in enumerate(episodes) if number % 3])
    return tmp_path / "cut.parquet", tmp_path / "whole.parquet"


@pytest.mark.parametrize("kind", ["grpo", "rejection_sampling"])
def test_masked_truncated_episodes_count_for_nothing(run, rewards, cut_off, kind, same_weights):
    """Not in the loss, and not in the statistics of their group; by default they count with their score."""
    cut, whole = cut_off
    masked, metrics = run({"kind": kind, "truncated": "mask"}, trajectories=cut)
    assert metrics["truncated_share"] == pytest.approx(1 / 3)
    others = [reward for number, reward in enumerate(rewards) if number % 3]
    assert same_weights(masked / WEIGHTS, run({"kind": kind}, trajectories=whole, rewards=others)[0] / WEIGHTS)
    assert not same_weights(masked / WEIGHTS, run({"kind": kind}, trajectories=cut)[0] / WEIGHTS)


class TestBootstrap:
    def advantages(self, truncated, stop_reason, **settings):
        """One episode with two turns of one token each, values 0.2 and 0.4, 0.6 after it, and reward 0."""
        learner = PolicyGradientConfig(kind="ppo", truncated=truncated, advantage=settings)
        frame = pd.DataFrame(
            {
                "token_ids": [[5, 6, 7, 8]],
                "action_mask": [[0, 1, 0, 1]],
                "logprobs": [[0.0, -1.0, 0.0, -1.0]],
                "reward": [0.0],
                "stop_reason": [stop_reason],
            }
        )
        values = {"values": [torch.tensor([0.0, 0.2, 0.0, 0.4])]}
        if truncated == "bootstrap":
            values["values_after"] = [torch.tensor([0.0, 0.3, 0.0, 0.6])]
        table = TrajectoryTable(frame, values)
        batches = table.batches(100, "cpu")
        found, returns = advantages_by_critic(learner, learner.advantage, table, batches, 0.0)
        return found[0][[1, 3]].tolist(), returns[0][[1, 3]].tolist()

    def test_by_hand(self):
        """Last: gamma 0.6 - 0.4. First, with lambda 1/2 across turns: 0.4 - 0.2 + that / 2. Ended: 0 - 0.4, and 0.2 - 0.2."""
        settings = {"gamma": 0.9, "turn_lam": 0.5}
        for reason in ("max_tokens", "max_turns"):
            advantages, returns = self.advantages("bootstrap", reason, **settings)
            assert advantages == pytest.approx([0.2 + 0.14 / 2, 0.14])
            assert returns == pytest.approx([0.4 + 0.14 / 2, 0.54])
        ended = ([pytest.approx(0.0), pytest.approx(-0.4)], [pytest.approx(0.2), pytest.approx(0.0)])
        assert self.advantages("bootstrap", "finished", **settings) == ended
        assert self.advantages("keep", "max_tokens", **settings) == ended

    def test_by_turn_the_turns_discount_counts(self):
        advantages, _ = self.advantages("bootstrap", "max_turns", granularity="turn", turn_gamma=0.5, turn_lam=1.0)
        assert advantages == pytest.approx([0.5 * 0.4 - 0.2 + 0.5 * -0.1, 0.5 * 0.6 - 0.4])

    def test_an_update_bootstraps_the_critics_value(self, run, cut_off):
        """After a first fit the critic is not 0, so where an episode is cut off makes a difference."""
        ppo = {"kind": "ppo", "advantage": {"critic": {"kind": "light", "warmup_iterations": 1}}}
        state, _ = run(ppo, trajectories=cut_off[0])
        found = {
            truncated: run({**ppo, "truncated": truncated}, trajectories=cut_off[0], state=state, iteration=2)[1]
            for truncated in ("keep", "bootstrap")
        }
        assert found["keep"]["policy_loss"] != found["bootstrap"]["policy_loss"]
        assert all(map(math.isfinite, found["bootstrap"].values()))

    def test_without_a_critic_it_is_refused(self):
        with pytest.raises(ValidationError, match="needs a critic, and advantage 'group' has none"):
            PolicyGradientConfig(truncated="bootstrap")


def test_keep_takes_a_step_on_the_kl_alone(run, rewards, adapter, same_weights):
    """Without variance no step is taken, unless `keep` is set and the policy differs from the reference."""
    first, _ = run({"learning_rate": 1e-2})
    equal = [1.0] * len(rewards)
    skipped, metrics = run({"replay_rows": 0}, rewards=equal, state=first, iteration=2)
    assert metrics["steps"] == 0.0 and same_weights(skipped / WEIGHTS, first / WEIGHTS)
    settings = {"replay_rows": 0, "kl": 0.01, "zero_variance": {"kind": "keep"}}
    kept, metrics = run(settings, rewards=equal, state=first, iteration=2)
    assert metrics["steps"] == 2.0 and not same_weights(kept / WEIGHTS, first / WEIGHTS)
    assert metrics["policy_loss"] == 0.0 and metrics["kl"] > 0.0


def test_a_batch_baseline_uses_groups_without_variance(run, rewards):
    """REINFORCE++ compares with the whole batch: two groups without variance differ from each other."""
    agreeing = [0.0] * 4 + [1.0] * 8
    _, by_group = run(rewards=agreeing)
    _, by_batch = run({"kind": "reinforce"}, rewards=agreeing)
    assert by_group["kept_rows"] == 0.0 and by_batch["kept_rows"] == 12.0
    _, all_equal = run({"kind": "reinforce"}, rewards=[1.0] * 12)
    assert all_equal["kept_rows"] == 0.0


def test_credit_by_turn_uses_groups_with_equal_totals(run, trajectories, profile_with, adapter, tmp_path):
    """Every total is 1; in each group one trajectory earned it in its first turn, the others in their last."""
    import pandas as pd

    from tracewheel.learner.batch import turn_numbers
    from tracewheel.learner.update import update
    from tracewheel.learner.update_files import UpdateFiles

    table = read_table(trajectories)
    turns = [max(turn_numbers(list(mask))) + 1 for mask in table["action_mask"]]
    earned = [[1.0] + [0.0] * (n - 1) if index % 4 == 0 else [0.0] * (n - 1) + [1.0] for index, n in enumerate(turns)]
    assert any(n > 1 for n in turns)
    scores = tmp_path / "scores.parquet"
    pd.DataFrame({"trajectory_id": table["id"], "total": 1.0, "turn_rewards": earned}).to_parquet(scores)

    def kept(credit):
        config = profile_with({"credit": {"kind": credit, "discount": 0.9}})
        files = UpdateFiles([trajectories], [scores], adapter.parent, adapter, tmp_path / credit)
        return update(config, files, iteration=1)["kept_rows"]

    assert kept("trajectory") == 0.0
    assert kept("turn") > 0.0


def test_the_adapted_kl_weight_is_stored(run):
    first, _ = run({"learning_rate": 1e-2})
    settings = {"kl": {"target": 1e-4, "weight": 0.01}}
    second, metrics = run(settings, state=first, iteration=2)
    assert metrics["kl"] > 1e-4 and metrics["kl_weight"] == 0.01
    assert learner_state(second)["kl_weight"] == pytest.approx(0.01 * (1 + 0.2 / 10))
    _, metrics = run(settings, state=second, iteration=3)
    assert metrics["kl_weight"] == pytest.approx(0.01 * (1 + 0.2 / 10))
    _, metrics = run({"kl": 0.03}, state=second, iteration=3)
    assert metrics["kl_weight"] == 0.03, "without a target the profile's weight counts"


def test_the_entropy_bonus_raises_entropy(run):
    """With nothing else in the loss entropy rises."""
    alone = {"replay_rows": 0, "kl": 0.0, "surrogate": {"kind": "clip"}, "learning_rate": 1e-3, "epochs": 4}
    _, without = run({**alone})
    _, with_bonus = run({**alone, "entropy": {"bonus": 1.0}})
    assert with_bonus["entropy"] > without["entropy"]


def test_kl_in_the_reward_changes_advantages(run, trajectories, tmp_path):
    """No penalty for samples of the reference itself; samples of a more certain policy are penalised by length."""
    settings = {"kind": "rloo", "kl": {"place": "reward", "estimator": "k1", "weight": 0.5}}
    plain = {**settings, "kl": {"weight": 0.0}}

    def furthest(one, other):
        pairs = zip(load_file(one / WEIGHTS).values(), load_file(other / WEIGHTS).values(), strict=True)
        return max((a - b).abs().max().item() for a, b in pairs)

    (near, figures), (near_plain, others) = run(settings), run(plain)
    assert figures["kl"] == pytest.approx(0.0, abs=1e-6) and "kl" not in others
    surer = tmp_path / "surer.parquet"
    write_records(
        surer,
        [
            dataclasses.replace(t, logprobs=[p + 0.1 * acted for p, acted in zip(t.logprobs, t.action_mask, strict=True)])
            for t in read_records(trajectories, Trajectory)
        ],
    )
    (far, figures), (far_plain, _) = (run(how, trajectories=surer) for how in (settings, plain))
    assert figures["kl"] == pytest.approx(math.exp(-0.1) + 0.1 - 1.0, rel=1e-2)
    assert furthest(near, near_plain) < 1e-5 < furthest(far, far_plain)


@pytest.mark.parametrize("kind", ["trunk", "light"])
def test_the_critic_learns_expected_rewards(run, trajectories, kind):
    """With a reward per task the values explain most of its variance after some updates."""
    by_task = [float(index // 4) / 2 for index in range(len(read_table(trajectories)))]
    critic = {"kind": kind, "epochs": 8, "learning_rate": 3e-3, "clip": None, "warmup_iterations": 99}
    settings = {"kind": "ppo", "advantage": {"critic": critic}}
    state, explained = None, []
    for iteration in range(1, 7):
        state, metrics = run(settings, rewards=by_task, iteration=iteration, **({"state": state} if state else {}))
        explained.append(metrics["explained_variance"])
    assert explained[0] == pytest.approx(0.0, abs=1e-6), "it starts at value 0 everywhere"
    assert explained[-1] > 0.5
    assert metrics["value_loss"] < 0.05


def test_critic_warm_up_does_not_change_the_policy(run, adapter, same_weights):
    settings = {"kind": "ppo", "advantage": {"critic": {"warmup_iterations": 1}}}
    first, metrics = run(settings)
    assert metrics["steps"] == 0.0 and metrics["value_loss"] > 0.0
    assert same_weights(first / WEIGHTS, adapter / "adapter_model.safetensors")
    second, metrics = run(settings, state=first, iteration=2)
    assert metrics["steps"] == 2.0 and not same_weights(second / WEIGHTS, first / WEIGHTS)


def test_values_belong_to_the_state_before_each_action(profile_with, trajectories, adapter):
    """Changing the last token changes no value: each belongs to the state in which its token is chosen."""
    models = load_models(profile_with(), adapter.parent, adapter)
    critic = Critic(CriticConfig(kind="light"), models, "padded", seed=1)
    torch.nn.init.normal_(critic.head[-1].weight)
    (batch,) = micro_batches(read_table(trajectories).iloc[:1], [0.0], 10_000)
    changed = dataclasses.replace(batch, token_ids=batch.token_ids.clone())
    changed.token_ids[0, -1] = (changed.token_ids[0, -1] + 1) % 50
    with torch.no_grad(), critic.active() as model:
        values, others, after = critic.values(model, batch), critic.values(model, changed), critic.values_after(model, batch)
    assert torch.equal(values, others)
    within = (batch.action_mask[:, :-1] * batch.action_mask[:, 1:]).bool()
    assert torch.equal(after[:, :-1][within], values[:, 1:][within]), "the state after a token is the one before the next"
    assert after[0, int(batch.action_mask[0].nonzero().max())] != 0.0
    assert (values[batch.action_mask == 0] == 0.0).all() and (values[batch.action_mask == 1] != 0.0).all()


def test_the_state_of_another_critic_is_refused(run):
    light, _ = run({"kind": "ppo", "advantage": {"critic": {"kind": "light"}}})
    with pytest.raises(DataError, match="of another critic"):
        run({"kind": "ppo"}, state=light, iteration=2)


def test_all_weights_can_be_trained_with_a_light_critic(run):
    settings = {"kind": "ppo", "weights": "full", "learning_rate": 1e-4, "kl": 0.01}
    light = {"critic": {"kind": "light", "warmup_iterations": 0}}
    first, metrics = run({**settings, "advantage": light})
    assert metrics["steps"] == 2.0 and (first / "model").is_dir() and not (first / "adapter").exists()
    _, metrics = run({**settings, "advantage": light}, state=first, iteration=2)
    assert metrics["steps"] == 2.0 and metrics["kl"] > 0.0
    with pytest.raises(ConfigError, match="use 'light'"):
        run({**settings, "advantage": {"critic": {"kind": "trunk"}}})


def test_doubled_and_incomplete_scores_are_refused(run, trajectories, rewards, profile_with, adapter, tmp_path):
    import pandas as pd

    from tracewheel.learner.update import update
    from tracewheel.learner.update_files import UpdateFiles

    scores = tmp_path / "scores.parquet"
    ids = read_table(trajectories)["id"].tolist()
    doubled = pd.DataFrame({"trajectory_id": [*ids, ids[0]], "total": [*rewards, 0.5]})
    doubled.to_parquet(scores)
    with pytest.raises(DataError, match=f"trajectory {ids[0]} has more than one score"):
        update(profile_with(), UpdateFiles([trajectories], [scores], adapter.parent, adapter, tmp_path), iteration=1)
    doubled.drop(columns="total").to_parquet(scores)
    with pytest.raises(DataError, match=r"scores\.parquet: has no column total"):
        update(profile_with(), UpdateFiles([trajectories], [scores], adapter.parent, adapter, tmp_path), iteration=1)
