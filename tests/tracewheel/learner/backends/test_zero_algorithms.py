"""Critics, full weights and mismatch corrections under ZeRO, compared with one process."""

import pytest

from tracewheel.core.files import read_json

PPO = {"kind": "ppo", "minibatches": 2}
ANY = 1e-12  # a threshold below rounding: every update is above it


@pytest.mark.slow
def test_the_mismatch_is_measured_over_all_processes(run, updates_in_turn, five_steps, on_two, assert_same_update):
    """Measured and corrected over the tokens of all processes together."""
    corrected = five_steps | {"mismatch": {"action": "correct", "threshold": ANY}}
    one, metrics = run(corrected)
    assert metrics["sampler_mismatch_action"] == 2.0 and metrics["sampler_mismatch_measured"] == 1.0
    outs = updates_in_turn((corrected | on_two(stage=2), None, 1), (corrected | on_two(stage=3), None, 1))
    for out in outs:
        assert_same_update(one, out)
        assert read_json(out / "metrics.json")["sampler_mismatch_mean"] == pytest.approx(
            metrics["sampler_mismatch_mean"], rel=0.3
        )


@pytest.mark.slow
def test_critics_learn_the_values_of_one_process(run, updates_in_turn, on_two, assert_same_update):
    """PPO with either critic, over its warm-up and one update of the policy."""
    for kind in ("trunk", "light"):
        ppo = PPO | {"advantage": {"critic": {"kind": kind}}}
        first, _ = run(ppo)
        second, _ = run(ppo, state=first, iteration=2)
        for stage in (2, 3):
            backend = on_two(stage=stage)
            one, two = updates_in_turn((ppo | backend, None, 1), (ppo | backend, 0, 2))
            assert_same_update(first, one)
            assert_same_update(second, two, tolerance=3e-5)


@pytest.mark.slow
def test_full_weights_train_as_in_one_process(run, updates_in_turn, five_steps, on_two, assert_same_update, distance):
    """Steps are small, because Adam takes full steps on noise: some embeddings have almost no gradient."""
    full = five_steps | {"weights": "full", "learning_rate": 1e-5}
    one, _ = run(full)
    again, _ = run(full, state=one, iteration=2)
    assert distance(one, again, "model/model.safetensors") > 3e-5
    for stage in (2, 3):
        first, second = updates_in_turn((full | on_two(stage=stage), None, 1), (full | on_two(stage=stage), 0, 2))
        assert_same_update(one, first)
        assert_same_update(again, second)


@pytest.mark.slow
def test_preferences_train_as_in_one_process(run, updates_in_turn, on_two, assert_same_update, distance, adapter):
    """DPO in three steps, with fewer pairs than processes; the second update starts from the first one's optimiser state."""
    dpo = {"kind": "dpo", "epochs": 3, "micro_batch_tokens": 600}
    one, figures = run(dpo)
    again, _ = run(dpo, state=one, iteration=2)
    assert figures["pairs"] >= 1 and figures["steps"] >= 3 and distance(one, adapter.parent) > 1e-3
    for stage in (2, 3):
        first, second = updates_in_turn((dpo | on_two(stage=stage), None, 1), (dpo | on_two(stage=stage), 0, 2))
        # Adam takes full steps on noise where a pair has almost no gradient.
        assert_same_update(one, first, tolerance=1e-4)
        assert_same_update(again, second, tolerance=1e-4)
