"""Every algorithm: it reads nothing at prompt and observation tokens, and resumed it gives an uninterrupted run's bytes."""

import math

from tracewheel.learner.dpo.learner import learn_dpo
from tracewheel.learner.learner import Learner
from tracewheel.learner.update_files import UpdateFiles

WEIGHTS = "adapter/adapter_model.safetensors"


def uninterrupted(config, scored, first, adapter, out):
    """The state after two iterations in one learner; DPO has no learner between iterations, so it starts from `first`."""
    if config.learner.kind == "dpo":
        learn_dpo(config, scored, UpdateFiles([], [], first, adapter, out), 2)
        return
    learner = Learner(config, adapter.parent, adapter)
    for iteration in (1, 2):
        learner.learn(scored, iteration)
    learner.save(out, version=2)


def test_logprobs_of_observations_do_not_change_the_state(settings, first, run, with_nonsense_at_observations, files_of):
    spoilt, _ = run(settings, trajectories=with_nonsense_at_observations)
    assert files_of(spoilt) == files_of(first)


def test_resuming_gives_the_bytes_of_an_uninterrupted_run(
    settings, first, run, profile_with, scored_trajectories, adapter, tmp_path, files_of
):
    second, metrics = run(settings, state=first, iteration=2)
    uninterrupted(profile_with(settings), scored_trajectories, first, adapter, tmp_path / "whole")
    expected = {name: content for name, content in files_of(second).items() if name != "metrics.json"}
    assert files_of(tmp_path / "whole") == expected
    assert metrics["steps"] > 0
    assert all(math.isfinite(value) for value in metrics.values())
    assert expected[WEIGHTS] != files_of(first)[WEIGHTS], "the second update has changed the policy"
