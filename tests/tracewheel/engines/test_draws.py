"""Drawing tokens from a session's own random numbers."""

from collections import Counter

import pytest
import torch

from tracewheel.engines.draws import Draws, draw

ROWS = 4000


def drawn(probabilities, top_p=1.0, greedy=False):
    """How often each token comes, over rows of one distribution."""
    uniforms = torch.tensor([Draws(seed=n).uniforms(1) for n in range(ROWS)], dtype=torch.float64)
    logprobs = torch.tensor(probabilities).log().expand(ROWS, -1)
    rows = draw(logprobs, uniforms, torch.full((ROWS, 1), top_p, dtype=torch.float64), torch.full((ROWS, 1), greedy))
    return Counter(rows[:, 0].tolist())


def test_tokens_come_as_often_as_their_probability_says():
    probabilities = [0.5, 0.3, 0.15, 0.05]
    counts = drawn(probabilities)
    for token, probability in enumerate(probabilities):
        assert counts[token] / ROWS == pytest.approx(probability, abs=4 * (probability * (1 - probability) / ROWS) ** 0.5)


def test_top_p_keeps_the_fewest_tokens_that_reach_it():
    assert set(drawn([0.5, 0.3, 0.15, 0.05], top_p=0.7)) == {0, 1}
    assert set(drawn([0.5, 0.3, 0.15, 0.05], top_p=0.45)) == {0}


def test_each_row_has_its_own_settings():
    logprobs = torch.tensor([[0.6, 0.4]]).log().expand(3, -1)
    uniforms = torch.full((3, 1), 0.99, dtype=torch.float64)
    top_p = torch.tensor([[1.0], [0.5], [1.0]], dtype=torch.float64)
    assert draw(logprobs, uniforms, top_p, torch.tensor([[False], [False], [True]]))[:, 0].tolist() == [1, 0, 0]


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
