"""The VAPO preset: the critic is trained first, on the starting policy's own returns."""

import pytest

from tracewheel.config import PolicyGradientConfig


def test_the_preset_is_the_papers():
    vapo = PolicyGradientConfig(kind="vapo")
    gae = vapo.advantage
    assert (gae.kind, gae.granularity, gae.gamma, gae.turn_gamma) == ("gae", "token", 1.0, 1.0)
    assert (gae.lam_critic, gae.length_alpha) == (1.0, 0.05)
    assert (vapo.surrogate.low, vapo.surrogate.high, vapo.aggregation) == (0.2, 0.28, "token")
    assert (vapo.positive_examples.weight, vapo.kl.weight) == (0.1, 0.0)
    assert gae.critic.warmup_iterations * gae.critic.warmup_epochs * vapo.minibatches == 48, "about the paper's 50 steps"


def test_value_pretraining_fits_the_starting_policys_returns_before_the_policy_moves(run, adapter, same_weights):
    """With a reward per task; more epochs of the warm-up explain more of it."""
    by_task = [float(index // 4) / 2 for index in range(12)]

    def pretrained(epochs):
        critic = {"kind": "light", "learning_rate": 3e-3, "warmup_epochs": epochs}
        settings = {"kind": "vapo", "advantage": {"critic": critic}}
        state, first = run(settings, rewards=by_task)
        assert first["steps"] == 0.0 and same_weights(state, adapter.parent)
        assert first["explained_variance"] == pytest.approx(0.0, abs=1e-6)
        _, second = run(settings, rewards=by_task, state=state, iteration=2)
        assert second["steps"] > 0 and second["positive_loss"] > 0
        return second["explained_variance"]

    long, short = pretrained(40), pretrained(1)
    assert long > 0.2 and long > short + 0.1, (long, short)


def test_vapo_without_its_parts_is_ppo(run, same_weights):
    """Each part is a setting of its own: set back to PPO's, the update is PPO's to the byte."""
    critic = {"warmup_iterations": 0, "kind": "light"}
    ppo, _ = run({"kind": "ppo", "kl": 0.0, "advantage": {"critic": critic}})
    plain = {
        "lam_critic": None,
        "length_alpha": None,
        "critic": {**critic, "clip": 0.2, "warmup_epochs": None},
    }
    parts = {"positive_examples": {"weight": 0.0}, "surrogate": {"high": None}, "advantage": plain}
    vapo, _ = run({"kind": "vapo", **parts})
    assert same_weights(ppo, vapo)
    whole, _ = run({"kind": "vapo", "advantage": {"critic": critic}})
    assert not same_weights(ppo, whole)


@pytest.mark.parametrize("weight", [-0.1, "much"])
def test_a_weight_of_positive_examples_is_a_number_from_0(weight):
    with pytest.raises(ValueError, match="positive_examples.weight"):
        PolicyGradientConfig(kind="vapo", positive_examples={"weight": weight})
