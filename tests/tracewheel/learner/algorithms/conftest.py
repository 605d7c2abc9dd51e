"""Every algorithm, and the choices that change its update, as settings of the learner."""

import pytest

from tracewheel.config.algorithms import PRESETS

VARIANTS = {
    **{kind: {"kind": kind} for kind in PRESETS},
    "dpo": {"kind": "dpo"},
    "ppo by turn, light critic": {"kind": "ppo", "advantage": {"granularity": "turn", "critic": {"kind": "light"}}},
    "ppo with the KL in the reward": {"kind": "ppo", "kl": {"place": "reward", "estimator": "k1"}},
    "decoupled, truncated": {"off_policy": {"proximal": "recompute", "correction": "truncate"}},
    "decoupled, masked by sequence": {"off_policy": {"proximal": "recompute", "correction": "mask", "level": "sequence"}},
    "adaptive KL": {"kl": {"target": 0.01}},
    "entropy": {"entropy": {"bonus": 0.01}},
    "credit by turn": {"credit": {"kind": "turn", "discount": 0.9}},
    "packed": {"layout": "packed"},
    "shared prefixes": {"layout": "shared_prefix"},
}


# The algorithms that carry more than weights and the optimizer from one iteration to the next, and one that does not.
WITH_A_STATE = {"grpo", "ppo", "dpo", "ppo by turn, light critic", "adaptive KL", "entropy", "packed"}


def pytest_collection_modifyitems(items):
    """Resuming the algorithms without a state of their own repeats what the others show: these tests are slow ones."""
    for item in items:
        resuming = item.path.name == "test_every_algorithm.py" and "test_resuming" in item.name
        if resuming and item.callspec.params["settings"] not in WITH_A_STATE:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module", params=VARIANTS)
def settings(request, adapter):
    """The learner's settings of one algorithm; no critic warm-up, so that the first step counts."""
    learner = {**VARIANTS[request.param]}
    if learner.get("kind") in ("ppo", "vapo"):
        advantage = learner.get("advantage", {})
        learner["advantage"] = {**advantage, "critic": {"warmup_iterations": 0, **advantage.get("critic", {})}}
    if learner.get("kind") == "distillation":
        learner["advantage"] = {"adapter": str(adapter)}
    return learner


@pytest.fixture(scope="module")
def first(settings, run):
    """The state after one update."""
    return run(settings)[0]
