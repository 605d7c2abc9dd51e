"""Adapters as arrays, and sums of their products B A that are never multiplied out.

An adapter is a mapping of PEFT's names to arrays. A layer of it has A [r, in] and B [out, r] and changes the weight by B A,
times a scale that is the same for all. Numbers are float64 here, and float32 where they are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracewheel import DataError

Array = NDArray[Any]
Adapter = Mapping[str, Array]
A, B = ".lora_A.", ".lora_B."
MOST_CONDITION = 100.0  # above it, an A that is wanted spans too little of the product's rows, and B would be huge


class Layer(NamedTuple):
    """The factors of one layer: `a` [r, in] and `b` [out, r]."""

    a: Array
    b: Array


def layers_of(adapter: Adapter) -> dict[str, Layer]:
    """The layers by the name of their A.

    Raises:
        DataError: a tensor is no factor of a LoRA adapter, or has no partner.
    """
    found = {}
    for name in adapter:
        if A not in name and B not in name:
            raise DataError(f"{name}: only the factors lora_A and lora_B can be federated; train without other weights")
        partner = name.replace(A, B) if A in name else name.replace(B, A)
        if partner not in adapter:
            raise DataError(f"{name}: its partner {partner} is missing; the adapter is incomplete")
        if A in name:
            found[name] = Layer(adapter[name].astype(np.float64), adapter[partner].astype(np.float64))
    return found


def adapter_of(layers: Mapping[str, Layer]) -> dict[str, Array]:
    """The adapter with these layers, in float32."""
    factors = [(name, layer.a) for name, layer in layers.items()]
    factors += [(name.replace(A, B), layer.b) for name, layer in layers.items()]
    return {name: np.ascontiguousarray(factor, dtype=np.float32) for name, factor in sorted(factors)}


def summed(terms: Iterable[tuple[float, Layer]]) -> Layer:
    """The weighted sum of products, as one product of the stacked factors (FLoRA, Wang et al. 2024). It is exact."""
    terms = list(terms)
    return Layer(np.vstack([layer.a for _, layer in terms]), np.hstack([weight * layer.b for weight, layer in terms]))


def inner(one: Layer, other: Layer) -> float:
    """The inner product of two products B A, as vectors of all entries."""
    return float(np.sum((one.b.T @ other.b) * (one.a @ other.a.T)))


def nearest(layer: Layer, rank: int) -> Layer:
    """The product of this rank that is nearest to a layer's, by singular values, with equal norms in both factors."""
    left, upper = np.linalg.qr(layer.b)
    right, lower = np.linalg.qr(layer.a.T)
    outer, values, inward = np.linalg.svd(upper @ lower.T)
    kept = min(rank, len(values))
    roots = np.sqrt(values[:kept])
    b, a = left @ outer[:, :kept] * roots, (roots[:, None] * inward[:kept]) @ right.T
    return _padded(Layer(a, b), rank)


def factored(product: Array, rank: int) -> Layer:
    """The nearest product of this rank to a matrix [out, in]."""
    outer, values, inward = np.linalg.svd(product, full_matrices=False)
    kept = min(rank, len(values))
    roots = np.sqrt(values[:kept])
    return _padded(Layer(roots[:, None] * inward[:kept], outer[:, :kept] * roots), rank)


def like(layer: Layer, a: Array) -> Layer:
    """The same product, in the factors whose A is nearest to `a` [r, in]; as it is, if they cannot write it well.

    What an optimiser's step does depends on the factors. Equal norms in both would shrink the A of a young adapter to a fifth,
    and with it the steps of B.
    """
    rows, upper = np.linalg.qr(layer.a.T)
    turned = a @ rows
    if not np.linalg.cond(turned) < MOST_CONDITION:
        return layer
    return Layer(turned @ rows.T, layer.b @ upper.T @ np.linalg.pinv(turned))


def differences(adapter: Adapter, start: Adapter) -> list[Layer]:
    """What each layer's product changed since the start, exactly, in factors of twice the rank."""
    before = layers_of(start)
    return [summed([(1.0, layer), (-1.0, before[name])]) for name, layer in layers_of(adapter).items()]


def gram(updates: Sequence[Sequence[Layer]]) -> Array:
    """The inner products [n, n] of n updates over all their layers: norms, cosines and distances follow from it."""
    found = np.zeros((len(updates), len(updates)))
    for i, one in enumerate(updates):
        for j, other in enumerate(updates[: i + 1]):
            found[i, j] = found[j, i] = sum(inner(*pair) for pair in zip(one, other, strict=True))
    return found


def relative_error(adapter: Adapter, truth: Mapping[str, Layer]) -> float:
    """How far an adapter's products are from the true ones: the norm of the difference over that of the truth."""
    wrong = sum(
        inner(gap, gap) for name, layer in layers_of(adapter).items() for gap in [summed([(1, layer), (-1, truth[name])])]
    )
    return float(np.sqrt(max(wrong, 0.0) / sum(inner(layer, layer) for layer in truth.values())))


def _padded(layer: Layer, rank: int) -> Layer:
    """With zeros where the matrix has a lower rank than the adapter."""
    missing = rank - layer.a.shape[0]
    return Layer(np.pad(layer.a, ((0, missing), (0, 0))), np.pad(layer.b, ((0, 0), (0, missing))))
