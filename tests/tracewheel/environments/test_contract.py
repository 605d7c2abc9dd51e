"""The promises of `contract.py`, of the environments that the core holds and of a team's own class."""

import pytest

from tests.tracewheel.environments.contract import THOROUGH, check_rewards, check_sixty_four, check_snapshots
from tracewheel.core.kinds import kind_text
from tracewheel.environments import ENVIRONMENTS

CORE = [kind for kind in ENVIRONMENTS if ENVIRONMENTS.place(kind).startswith("tracewheel.")]
GENERATORS = [kind for kind in CORE if hasattr(ENVIRONMENTS[kind], "make_tasks")]
GENERATORS += ["examples.marketing_environment:Marketing", kind_text("order_desk", {"noisy": True})]


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
def test_sixty_four_at_once_in_any_order_are_as_one_at_a_time(kind):
    check_sixty_four(kind)
