"""Anomaly scores, clipping, robust means, quarantine and privacy, on updates small enough to work out by hand."""

import math

import numpy as np
import pytest

from tracewheel import DataError
from tracewheel_federated.privacy import epsilon, noised
from tracewheel_federated.robust import anomalies, clip_scales, krum, quarantined_by, trimmed_mean
from tracewheel_federated.settings import DefenceConfig

LIMITS = {"largest": 3.0, "smallest": 0.1, "cosine": 0.6}


def gram_of(*vectors):
    rows = np.array(vectors, dtype=float)
    return rows @ rows.T


ALIKE = [[1, 0.1], [1, -0.1], [1, 0.0], [0.9, 0.1]]


def test_updates_that_are_alike_are_left_in():
    assert all(not each.reasons for each in anomalies(gram_of(*ALIKE), **LIMITS))


@pytest.mark.parametrize(
    ("odd", "reason"),
    [([10, 0], "norm is 10"), ([0.01, 0], "norm is 0.010 of"), ([-1, 0], "cosine with the others is -1.00"), ([0, 0], "0.000")],
)
def test_the_odd_one_is_named_with_its_evidence(odd, reason):
    found = anomalies(gram_of(*ALIKE, odd), **LIMITS)
    assert any(reason in each for each in found[-1].reasons)
    assert all(not each.reasons for each in found[:-1])


def test_honest_updates_that_have_nothing_in_common_are_left_in():
    """As in the last of ten rounds, where one had -0.26 beside a median of 0.16; an attacker had -0.44 beside 0.5."""
    defences, draw = DefenceConfig(), np.random.default_rng(0)
    limits = {"largest": defences.largest, "smallest": defences.smallest, "cosine": defences.cosine}
    for _ in range(50):
        updates = draw.normal(size=(5, 400))
        assert all(not each.reasons for each in anomalies(gram_of(*updates), **limits))
        against = updates[4] - updates[:4].sum(axis=0)
        assert "its cosine with the others" in anomalies(gram_of(*updates[:4], against), **limits)[4].reasons[0]


def test_a_cosine_is_judged_beside_those_of_the_others():
    apart, agreed = [[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[1, 0, 0]] * 3
    assert "is -1.00, theirs among themselves 0.00" in anomalies(gram_of(*apart, [-1, -1, -1]), **LIMITS)[3].reasons[0]
    assert "is -0.20, theirs among themselves 1.00" in anomalies(gram_of(*agreed, [-0.2, 0.98, 0]), **LIMITS)[3].reasons[0]
    assert not anomalies(gram_of(*agreed, [0, 1, 0]), **LIMITS)[3].reasons  # another kind of logs is not against the others


def test_of_two_nobody_is_odd():
    assert [each.reasons for each in anomalies(gram_of([1, 0], [-100, 0]), **LIMITS)] == [(), ()]


def test_long_updates_are_shrunk_to_the_limit():
    assert clip_scales(gram_of([1, 0], [0, 1], [10, 0]), 2.0) == pytest.approx([1.0, 1.0, 0.2])
    assert clip_scales(gram_of([0, 0], [0, 0]), 2.0) == [1.0, 1.0]


def test_krum_keeps_those_near_to_each_other():
    # Of five with one attacker each is judged by its two nearest; the far one is left out.
    assert krum(gram_of(*ALIKE, [-5, 5]), 1) == [0, 1, 2, 3]
    with pytest.raises(DataError, match="at least 4 clients"):
        krum(gram_of(*ALIKE[:3]), 1)


def test_a_trimmed_mean_leaves_out_both_ends():
    assert trimmed_mean(np.array([[1.0], [2.0], [3.0], [100.0], [-100.0]]), 1) == pytest.approx([2.0])
    with pytest.raises(DataError, match="more than 2 clients"):
        trimmed_mean(np.zeros((2, 1)), 1)


def test_who_is_left_out_again_and_again_is_quarantined():
    assert quarantined_by([["a"], ["a", "b"]], 2) == {"a"}
    assert quarantined_by([["a"], []], 2) == set()
    assert quarantined_by([["a"]], 2) == set()


def test_epsilon_is_that_of_the_gaussian_mechanism():
    # Noise of 2 on a reach of 2 is a noise multiplier of 1: epsilon 4.377 at delta 1e-5 (Balle and Wang's formula).
    found = epsilon(2.0, 1, 1e-5)
    cut = lambda x: 0.5 * math.erfc(-x / math.sqrt(2))  # noqa: E731
    assert cut(0.5 - found) - math.exp(found) * cut(-0.5 - found) == pytest.approx(1e-5, rel=1e-4)
    assert found == pytest.approx(4.377, abs=2e-3)
    assert epsilon(4.0, 4, 1e-5) == pytest.approx(found)  # four rounds are one with half the noise
    assert epsilon(0.0, 1, 1e-5) == math.inf
    assert epsilon(0.05, 10, 1e-5) > 1000  # far out nothing overflows


def test_what_is_sent_is_clipped_and_noised_but_a_frozen_a_is_not():
    start = {"x.lora_A.w": np.zeros((1, 2)), "x.lora_B.w": np.zeros((2, 1))}
    trained = {"x.lora_A.w": np.zeros((1, 2)), "x.lora_B.w": np.array([[3.0], [4.0]])}
    exact = noised(trained, start, clip=1.0, noise=0.0, seed=0, frozen_a=True)
    assert exact["x.lora_B.w"] == pytest.approx(np.array([[0.6], [0.8]]))
    wide = {"x.lora_A.w": np.zeros((50, 200)), "x.lora_B.w": np.zeros((200, 50))}
    sent = noised(wide, wide, clip=2.0, noise=0.5, seed=0, frozen_a=True)
    assert not sent["x.lora_A.w"].any()
    assert sent["x.lora_B.w"].std() == pytest.approx(1.0, rel=0.05)
