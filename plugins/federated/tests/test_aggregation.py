"""Aggregation of LoRA: numbers worked out by hand, and how far each way is from the mean of the products."""

import numpy as np
import pytest

from tracewheel import DataError
from tracewheel_federated.aggregation import Part, aggregate, check_alike, combine_by_entry, true_mean, weights_of
from tracewheel_federated.low_rank import (
    Layer,
    adapter_of,
    differences,
    factored,
    gram,
    layers_of,
    like,
    nearest,
    relative_error,
)

NAME = "layer.lora_A.weight"


def adapter(a, b):
    return adapter_of({NAME: Layer(np.array(a, dtype=float), np.array(b, dtype=float))})


def product(found):
    layer = layers_of(found)[NAME]
    return layer.b @ layer.a


ZERO = adapter([[0, 0]], [[0], [0]])
ONE = adapter([[1, 0]], [[2], [0]])  # B A = [[2, 0], [0, 0]]
OTHER = adapter([[0, 1]], [[4], [0]])  # B A = [[0, 4], [0, 0]]


def test_the_mean_of_factors_is_not_the_mean_of_products():
    halves = [Part(ONE, 0.5), Part(OTHER, 0.5)]
    # Plain: A = [.5, .5], B = [3, 0], B A = [1.5, 1.5]; the truth is [1, 2], which has rank 1, so stacking finds it.
    assert product(aggregate(ZERO, halves, "plain")) == pytest.approx(np.array([[1.5, 1.5], [0, 0]]))
    assert product(aggregate(ZERO, halves, "stacked")) == pytest.approx(np.array([[1.0, 2.0], [0, 0]]), abs=1e-6)
    truth = true_mean(ZERO, halves)
    assert relative_error(aggregate(ZERO, halves, "plain"), truth) == pytest.approx(np.sqrt(0.5 / 5.0), abs=1e-6)
    assert relative_error(aggregate(ZERO, halves, "stacked"), truth) == pytest.approx(0.0, abs=1e-6)


def test_a_rank_that_is_too_low_keeps_the_largest_singular_values():
    apart = [Part(ONE, 0.5), Part(adapter([[0, 1]], [[0], [4]]), 0.5)]  # the mean is diag(1, 2), of rank 2
    assert product(aggregate(ZERO, apart, "stacked")) == pytest.approx(np.diag([0.0, 2.0]), abs=1e-6)
    assert relative_error(aggregate(ZERO, apart, "stacked"), true_mean(ZERO, apart)) == pytest.approx(1 / np.sqrt(5), abs=1e-6)


def test_a_shared_a_makes_the_mean_of_b_exact():
    start = adapter([[1, 1]], [[0], [0]])
    parts = [Part(adapter([[1, 1]], [[2], [0]]), 0.25), Part(adapter([[1, 1]], [[0], [4]]), 0.75)]
    assert product(aggregate(start, parts, "frozen_a")) == pytest.approx(np.array([[0.5, 0.5], [3, 3]]))
    assert relative_error(aggregate(start, parts, "frozen_a"), true_mean(start, parts)) == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(DataError, match=r"client 1: layer.lora_A.weight was changed"):
        aggregate(start, [Part(ONE, 1.0)], "frozen_a")


@pytest.mark.parametrize("method", ["stacked", "plain"])
def test_changes_are_added_to_the_start_and_scaled(method):
    start = adapter([[1, 0]], [[1], [0]])  # [1, 0]
    grown = adapter([[1, 0]], [[3], [0]])  # a change of [2, 0]; half of it, from the only client
    assert product(aggregate(start, [Part(grown, 1.0, 0.5)], method)) == pytest.approx(np.array([[2.0, 0], [0, 0]]), abs=1e-6)


def test_random_adapters_of_full_rank_are_met_up_to_the_rank():
    chance = np.random.default_rng(0)
    draw = lambda: adapter_of({NAME: Layer(chance.normal(size=(4, 12)), chance.normal(size=(10, 4)))})  # noqa: E731
    start, clients = draw(), [draw() for _ in range(3)]
    parts = [Part(one, 1 / 3) for one in clients]
    truth = true_mean(start, parts)
    dense = truth[NAME].b @ truth[NAME].a
    values = np.linalg.svd(dense, compute_uv=False)
    least = np.sqrt(np.sum(values[4:] ** 2) / np.sum(values**2))  # Eckart and Young: no adapter of rank 4 is nearer
    found = relative_error(aggregate(start, parts, "stacked"), truth)
    assert found == pytest.approx(least, abs=1e-5)
    assert found < relative_error(aggregate(start, parts, "plain"), truth)


def test_one_client_gets_back_the_factors_that_it_sent():
    chance = np.random.default_rng(2)
    draw = lambda: adapter_of({NAME: Layer(chance.normal(size=(4, 12)), 0.01 * chance.normal(size=(10, 4)))})  # noqa: E731
    start, sent = draw(), draw()
    back = aggregate(start, [Part(sent, 1.0)], "stacked")
    assert {name: back[name] for name in back} == {name: pytest.approx(sent[name], abs=1e-6) for name in sent}
    # Of a rank below the adapter's the rows that B does not use yet stay long enough to learn.
    thin = adapter_of({NAME: Layer(layers_of(sent)[NAME].a, np.zeros((10, 4)))})
    assert np.linalg.norm(aggregate(start, [Part(thin, 1.0)], "stacked")[NAME]) > 1.0


def test_an_a_that_cannot_write_the_product_is_not_taken():
    layer = Layer(np.array([[1.0, 0, 0], [0, 1.0, 0]]), np.ones((2, 2)))
    assert like(layer, np.array([[0, 0, 1.0], [0, 1.0, 0]])) is layer
    found = like(layer, np.array([[3.0, 1.0, 5.0], [0, 2.0, 5.0]]))
    assert found.a == pytest.approx(np.array([[3.0, 1.0, 0], [0, 2.0, 0]]))  # what of it lies in the product's rows
    assert found.b @ found.a == pytest.approx(layer.b @ layer.a)


def test_a_wide_rank_is_padded():
    low = Layer(np.ones((3, 2)), np.ones((2, 3)))  # rank 3 of a matrix 2 x 2
    for found in (nearest(low, 3), factored(low.b @ low.a, 3)):
        assert found.a.shape == (3, 2)
        assert found.b @ found.a == pytest.approx(low.b @ low.a)


def test_statistics_by_entry_are_those_of_the_products():
    adapters = [adapter([[1, 0]], [[value], [0]]) for value in (1, 2, 100)]
    median = lambda changes: np.median(changes, axis=0)  # noqa: E731
    assert product(combine_by_entry(ZERO, adapters, "stacked", median)) == pytest.approx(np.array([[2.0, 0], [0, 0]]), abs=1e-6)
    start = adapter([[1, 0]], [[0], [0]])
    assert product(combine_by_entry(start, adapters, "frozen_a", median)) == pytest.approx(np.array([[2.0, 0], [0, 0]]))


def test_weights_are_equal_or_by_examples_and_no_claim_takes_all():
    assert weights_of([10, 30], equal=True) == [0.5, 0.5]
    assert weights_of([10, 30], equal=False) == [0.25, 0.75]
    assert weights_of([10, 10, 10**9], equal=False) == pytest.approx([0.2, 0.2, 0.6])  # three times the median
    assert weights_of([0, 0], equal=False) == [0.5, 0.5]


def test_the_inner_products_of_updates_are_those_of_dense_matrices():
    chance = np.random.default_rng(1)
    draw = lambda: adapter_of({NAME: Layer(chance.normal(size=(2, 5)), chance.normal(size=(4, 2)))})  # noqa: E731
    start, clients = draw(), [draw(), draw()]
    dense = [(product(one) - product(start)).ravel() for one in clients]
    expected = np.array([[one @ other for other in dense] for one in dense])
    assert gram([differences(one, start) for one in clients]) == pytest.approx(expected, rel=1e-5)


def test_what_cannot_take_part_is_named():
    assert check_alike(ONE, ZERO) is None
    assert "other names" in check_alike({}, ZERO)
    assert "shape [1, 3]" in check_alike(adapter([[1, 0, 0]], [[2], [0]]), ZERO)
    assert "not finite" in check_alike(adapter([[np.nan, 0]], [[2], [0]]), ZERO)
    with pytest.raises(DataError, match=r"only the factors"):
        layers_of({"head.weight": np.zeros(2)})
    with pytest.raises(DataError, match=r"partner layer.lora_B.weight is missing"):
        layers_of({NAME: np.zeros((1, 2))})
