"""The promises that the core's environments keep, of these."""

import pytest

from tests.tracewheel.environments.contract import LIMITS, THOROUGH, check_rewards, check_sixty_four, check_snapshots
from tracewheel_worlds.patch import patch_tests

GENERATORS = ("assistant", "code", "math", "patch", "retrieval", "terminal")


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_solver_scores_one_and_a_no_op_and_near_misses_zero(kind):
    check_rewards(kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", GENERATORS)
def test_the_same_on_two_hundred_tasks(kind):
    check_rewards(kind, THOROUGH)


@pytest.mark.parametrize("kind", GENERATORS)
def test_an_episode_goes_on_from_a_snapshot(kind):
    check_snapshots(kind)


@pytest.mark.parametrize("kind", GENERATORS)
def test_sixty_four_at_once_in_any_order_are_as_one_at_a_time(kind, monkeypatch):
    monkeypatch.setattr(patch_tests, "LIMITS", patch_tests.LIMITS.model_copy(update=LIMITS["limits"]))
    monkeypatch.setattr("tracewheel_worlds.code.claims.SECONDS_OF_PROGRAM", LIMITS["limits"]["seconds"])
    check_sixty_four(kind)
