"""Drawing tokens from a session's own random numbers."""

import pytest

from tracewheel.engines.draws import Draws


def test_skip_continues_the_sequence():
    whole = Draws(seed=7).uniforms(700)
    assert whole[:300] + Draws(seed=7, skip=300).uniforms(400) == whole
    assert Draws(seed=8).uniforms(3) != whole[:3]


def test_random_numbers_are_those_of_the_transformers_engine():
    import numpy as np

    from tracewheel.engines.ragged_session import RaggedSession

    session = RaggedSession(0, 0, np.random.default_rng(11), 1.0)
    assert [session.next_uniform() for _ in range(600)] == Draws(seed=11).uniforms(600)


@pytest.mark.parametrize("draws", [Draws(), Draws(2**59 + 1, 40, 1.2, 0.9, True), Draws(forced=(3, 1, 2))])
def test_draws_survive_the_round_trip_to_vllm(draws):
    assert Draws.of({**draws.extra_args(), "something": "else"}) == draws


def test_a_request_without_draws_has_none_and_invalid_ones_are_refused():
    assert Draws.of(None) is None
    assert Draws.of({"something": "else"}) is None
    for wrong in ({"draw_seed": "1"}, {**Draws().extra_args(), "draw_luck": 1}, {**Draws().extra_args(), "draw_skip": "many"}):
        with pytest.raises(ValueError):
            Draws.of(wrong)
