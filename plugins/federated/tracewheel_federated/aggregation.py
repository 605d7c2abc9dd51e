"""One adapter from those of several clients.

The mean of the clients' products B A is not the product of their mean factors. Three ways are offered:

- `stacked` sums the products exactly and brings them to the adapter's rank by singular values (FLoRA, Wang et al. 2024).
  Of the factors with this product it takes those whose A is nearest to the clients' mean A: one client gets back what it sent.
- `frozen_a` trains B alone, on an A that all share, so that the mean of B is exact (FFA-LoRA, Sun et al. 2024).
- `plain` averages A and B apart, as FedAvg does with any weights (McMahan et al. 2017). It is wrong by the clients' spread.

Each adds to the global adapter the weighted mean of what the clients changed; `scales` shrink a client's change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from tracewheel import DataError
from tracewheel_federated.low_rank import A, Adapter, Array, Layer, adapter_of, factored, layers_of, like, nearest, summed

Method = Literal["stacked", "frozen_a", "plain"]
Combine = Literal["mean", "median", "trimmed_mean", "krum"]
MOST_CLAIMED = 3.0  # times the median: what a client says of its examples is not checked


class Part(NamedTuple):
    """A client's adapter, its weight in the mean (all weights add up to 1), and the scale of its change."""

    adapter: Adapter
    weight: float
    scale: float = 1.0


def weights_of(examples: Sequence[int], *, equal: bool) -> list[float]:
    """The clients' weights: equal, or by their examples. A claim counts up to three times the median claim."""
    counted = (
        [1.0] * len(examples) if equal else [max(1.0, min(n, MOST_CLAIMED * float(np.median(examples)))) for n in examples]
    )
    return [count / sum(counted) for count in counted]


def aggregate(start: Adapter, parts: Sequence[Part], method: Method) -> dict[str, Array]:
    """The global adapter after a round, by the mean.

    Raises:
        DataError: with `frozen_a`, a client changed A.
    """
    if method == "frozen_a":
        check_frozen(start, [part.adapter for part in parts])
    moves = {name: sum(part.weight * part.scale * _change(part, start, name) for part in parts) for name in start}
    means = {name: start[name] + moves[name] for name in start}
    if method == "stacked":
        mean = true_mean(start, parts)
        return adapter_of({name: like(nearest(layer, len(means[name])), means[name]) for name, layer in mean.items()})
    return {name: values.astype(np.float32) for name, values in means.items()}


def combine_by_entry(
    start: Adapter, adapters: Sequence[Adapter], method: Method, reduce: Callable[[Array], Array]
) -> dict[str, Array]:
    """As `aggregate`, with a robust statistic in place of the mean, entry by entry, and without weights.

    With `stacked` the entries are those of the products, which are multiplied out a layer at a time.

    Args:
        start: The global adapter of the round.
        adapters: The clients'.
        method: What the entries are those of.
        reduce: From changes [n, ...] to one [...].
    """
    if method != "stacked":
        if method == "frozen_a":
            check_frozen(start, adapters)
        return {
            name: (start[name] + reduce(np.stack([one[name] - start[name] for one in adapters]))).astype(np.float32)
            for name in start
        }
    before, after = layers_of(start), [layers_of(one) for one in adapters]
    found = {}
    for name, layer in before.items():
        product = layer.b @ layer.a
        moved = reduce(np.stack([one[name].b @ one[name].a - product for one in after]))
        found[name] = like(factored(product + moved, len(layer.a)), layer.a)
    return adapter_of(found)


def true_mean(start: Adapter, parts: Sequence[Part]) -> dict[str, Layer]:
    """The exact result, in factors of a higher rank: the start's products and the weighted mean of their changes."""
    before, after = layers_of(start), [layers_of(part.adapter) for part in parts]
    kept = 1.0 - sum(part.weight * part.scale for part in parts)
    return {
        name: summed([(kept, layer), *((part.weight * part.scale, one[name]) for part, one in zip(parts, after, strict=True))])
        for name, layer in before.items()
    }


def check_frozen(start: Adapter, adapters: Sequence[Adapter]) -> None:
    """Refuse adapters whose A is not the one that all share."""
    for number, one in enumerate(adapters):
        for name in start:
            if A in name and not np.array_equal(one[name], start[name]):
                raise DataError(f"client {number + 1}: {name} was changed, and with frozen_a only lora_B is trained")


def check_alike(adapter: Adapter, start: Mapping[str, Array]) -> str | None:
    """Why an adapter cannot take part in a round, or None."""
    if adapter.keys() != start.keys():
        return "its tensors have other names than the global adapter's"
    for name, values in adapter.items():
        if values.shape != start[name].shape:
            return f"{name} has the shape {list(values.shape)}, and the global adapter {list(start[name].shape)}"
        if not np.isfinite(values).all():
            return f"{name} holds numbers that are not finite"
    return None


def _change(part: Part, start: Adapter, name: str) -> Array:
    return part.adapter[name].astype(np.float64) - start[name]
