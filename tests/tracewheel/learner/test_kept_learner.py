"""A learner that stays loaded from update to update writes what a new one writes."""

import pytest

from tracewheel.config import UpdateSections
from tracewheel.core.fingerprint import digest_file
from tracewheel.learner.kept_learner import is_kept, kept_learner, release_learner

ALGORITHMS = [
    pytest.param({"kind": "ppo", "minibatches": 2}, id="critic"),
    pytest.param({"kl": {"target": 0.1}}, id="adaptive-kl", marks=pytest.mark.slow),
    pytest.param({"weights": "full", "learning_rate": 1e-5}, id="every-weight", marks=pytest.mark.slow),
]


@pytest.fixture(autouse=True)
def none_kept():
    release_learner()
    yield
    release_learner()


def files_of(out):
    return {str(path.relative_to(out)): digest_file(path) for path in sorted(out.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("learner", ALGORITHMS)
def test_three_updates_with_a_kept_learner_write_the_bytes_of_three_new_ones(run, learner):
    outs = {}
    for keep in (True, False):
        state = {}
        for iteration in (1, 2, 3):
            out, _ = run(learner, iteration=iteration, placement={"keep_learner": keep}, **state)
            outs[keep, iteration], state = files_of(out), {"state": out}
            assert is_kept() == keep
    for iteration in (1, 2, 3):
        assert outs[True, iteration] == outs[False, iteration]
    assert outs[True, 2] != outs[True, 3]


def test_a_learner_is_kept_while_settings_reference_and_shape_stay(profile_with, run, adapter):
    config = UpdateSections.of(profile_with())
    first, _ = run()
    with kept_learner(config, first, adapter) as one:
        pass
    with kept_learner(config, first, adapter) as again:
        assert again is one
    other = UpdateSections.of(profile_with({"learning_rate": 1e-4}))
    with kept_learner(other, first, adapter) as changed:
        assert changed is not one
    with kept_learner(other, first, first / "adapter") as moved:
        assert moved is not changed
    with kept_learner(other, adapter.parent, first / "adapter") as begun:
        assert begun is not moved, "a start without an optimiser has nothing to continue"


def test_no_learner_is_kept_after_an_error(profile_with, adapter):
    """Its weights may be those of half an update."""
    with pytest.raises(KeyboardInterrupt), kept_learner(UpdateSections.of(profile_with()), adapter.parent, adapter):
        raise KeyboardInterrupt
    assert not is_kept()
