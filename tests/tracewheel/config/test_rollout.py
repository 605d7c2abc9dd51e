"""Rollout modes and workers."""

import pytest
from pydantic import ValidationError

from tracewheel.config import RetrainConfig


def profile(**rollout):
    return RetrainConfig.model_validate({"name": "x", "rollout": rollout})


@pytest.mark.parametrize(("mode", "lag"), [("sync", 0), ("async", 3)])
def test_the_mode_determines_the_maximum_age_of_tokens(mode, lag):
    assert profile(mode=mode, max_staleness=3).rollout.lag == lag


def test_greedy_baselines_count_in_the_budget_and_need_episodes_of_one_policy():
    remax = {"name": "x", "learner": {"kind": "remax"}, "rollout": {"group_size": 4}, "training": {"tasks_per_iteration": 8}}
    config = RetrainConfig.model_validate(remax)
    assert (config.greedy_baseline, config.episodes_per_iteration) == (True, 8 * 5)
    assert not RetrainConfig.model_validate(remax | {"learner": {"kind": "rloo"}}).greedy_baseline
    with pytest.raises(ValidationError, match="'greedy_baseline' compares episodes of one policy.*set it to 'sync'"):
        RetrainConfig.model_validate(remax | {"rollout": {"mode": "async"}})


def test_dynamic_sampling_requires_sync_mode():
    values = {"name": "x", "rollout": {"mode": "async"}, "learner": {"zero_variance": {"kind": "dynamic"}}}
    with pytest.raises(ValidationError, match="set rollout.mode to 'sync'"):
        RetrainConfig.model_validate(values)
    assert RetrainConfig.model_validate(values | {"rollout": {"mode": "sync"}})


def test_workers_are_discriminated_by_kind():
    assert profile(workers={"kind": "ray", "count": 4}).rollout.workers.address is None
    with pytest.raises(ValidationError, match="threads"):
        profile(workers={"kind": "ray", "threads": 4})


def test_a_section_without_a_kind_gets_the_default_kind():
    settings = profile(engine={"slots": 8}, workers={"count": 3}).rollout
    assert (settings.engine.kind, settings.engine.slots) == ("transformers", 8)
    assert (settings.workers.kind, settings.workers.count) == ("local", 3)
    with pytest.raises(ValidationError, match="expected tags"):
        profile(engine={"kind": "vlm"})
