"""Drawing tokens from logits, against a plain sort and sum in float64."""

from collections import Counter

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tracewheel.engines.draws import Draws
from tracewheel.engines.token_distribution import TokenDistribution

ROWS = 4000
ONES = torch.ones(1, 1)


def drawn(probabilities, top_p=1.0, greedy=False):
    """How often each token comes, over rows of one distribution."""
    uniforms = torch.tensor([Draws(seed=n).uniforms(1) for n in range(ROWS)], dtype=torch.float64)
    distribution = TokenDistribution(torch.tensor(probabilities).log().expand(ROWS, -1), ONES.expand(ROWS, 1))
    rows = distribution.draw(uniforms, torch.full((ROWS, 1), top_p, dtype=torch.float64), torch.full((ROWS, 1), greedy))
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
    logits = torch.tensor([[0.6, 0.4]]).log().expand(3, -1)
    uniforms = torch.full((3, 1), 0.99, dtype=torch.float64)
    top_p = torch.tensor([[1.0], [0.5], [1.0]], dtype=torch.float64)
    distribution = TokenDistribution(logits, ONES.expand(3, 1))
    assert distribution.draw(uniforms, top_p, torch.tensor([[False], [False], [True]]))[:, 0].tolist() == [1, 0, 0]


def kept(logits, temperature, top_p):
    """Probabilities [V] in float64, 0 outside the nucleus: the definition, by a sort of the whole vocabulary."""
    probabilities = (logits.double() / temperature).softmax(-1)
    if top_p == 1.0:
        return probabilities
    descending, order = probabilities.sort(descending=True, stable=True)
    before = descending.cumsum(-1) - descending
    return torch.zeros_like(probabilities).scatter(0, order, descending * (before < top_p))


# Below, at and above a block of 256, two blocks, and real vocabularies with a last block that is whole or not.
SIZES = [1, 2, 255, 256, 257, 512, 513, 1000, 49_152, 50_257]


@example(50_257, 8.0, 1.0, 1.0, 0.0, 0)
@example(50_257, 8.0, 1.0, 1.0, 1.0 - 2**-53, 0)
@example(513, 60.0, 1.0, 0.9, 1.0 - 2**-53, 1)
@example(1000, 0.0, 1.0, 0.5, 0.5, 0)
@given(
    size=st.sampled_from(SIZES),
    spread=st.sampled_from([0.0, 0.01, 1.0, 8.0, 60.0]),
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    top_p=st.sampled_from([1.0, 0.999999, 0.95, 0.5, 1e-9]),
    uniform=st.floats(0.0, 1.0 - 2**-53),
    seed=st.integers(0, 9),
)
def test_a_token_is_where_its_cumulated_probability_says(size, spread, temperature, top_p, uniform, seed):
    """Up to rounding of float32; a token outside the nucleus, or with probability 0, never comes."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(1, size, generator=generator)
    if size > 2:
        logits[0, seed % size] = -torch.inf
    distribution = TokenDistribution(logits, temperature * ONES)
    numbers = [torch.tensor([[value]], dtype=torch.float64) for value in (uniform, top_p)]
    token = int(distribution.draw(*numbers, torch.tensor([[False]])))
    masses = kept(logits[0], temperature, top_p)
    assert logits[0, token] > -torch.inf
    above = torch.where(masses > 0, masses, torch.inf).min()  # at the edge of the nucleus rounding decides
    assert masses[token] > 0 or (logits[0] / temperature).double().softmax(-1)[token] == pytest.approx(above, rel=1e-4)
    below = float(masses[:token].sum() / masses.sum())
    assert below - 1e-5 <= uniform <= below + float(masses[token] / masses.sum()) + 1e-5
    wanted = (logits[0].double() / temperature).log_softmax(-1)[token]
    assert distribution.logprobs(torch.tensor([[token]])).item() == pytest.approx(wanted.item(), abs=2e-5)


def test_a_token_is_found_to_the_precision_of_float32():
    """None of 2,000 draws differs from those in float64 by more than rounding at the edge of a token."""
    generator = torch.Generator().manual_seed(0)
    rows = 2000
    logits = 4 * torch.randn(1, 5003, generator=generator)
    uniforms = torch.rand(rows, 1, generator=generator, dtype=torch.float64)
    distribution = TokenDistribution(logits.expand(rows, -1), ONES.expand(rows, 1))
    tokens = distribution.draw(uniforms, torch.ones_like(uniforms), torch.zeros(rows, 1, dtype=torch.bool))
    cumulated = kept(logits[0], 1.0, 1.0).cumsum(0)
    wanted = torch.searchsorted(cumulated, uniforms, right=True)
    different = (tokens != wanted)[:, 0]
    edges = cumulated[torch.minimum(tokens, wanted)[different, 0]]
    assert int(different.sum()) <= 2
    assert bool(((edges - uniforms[different, 0]).abs() < 1e-6).all())


def test_logprobs_of_improbable_tokens_are_exact():
    """Those of forced tokens, whose probability may be 0 in float32."""
    logits = torch.tensor([[0.0, 3.0, -200.0, 40.0]])
    distribution = TokenDistribution(logits, torch.tensor([[0.5]]))
    for token, wanted in enumerate((2 * logits[0].double()).log_softmax(-1).tolist()):
        assert distribution.logprobs(torch.tensor([[token]])).item() == pytest.approx(wanted, abs=1e-4)
