"""Finds similar sets without comparing all pairs: MinHash signatures, bands, connected components.

A signature holds the smallest hash of a set's members for each of P hash functions; the share of places in which two
signatures agree estimates the Jaccard similarity of the sets (Broder 1997). Only sets that agree in a whole band of places are
compared (locality-sensitive hashing, Indyk and Motwani 1998). Each place keeps 16 bits (b-bit minwise hashing, Li and Koenig
2010): one place in 65536 agrees by chance. A million sets of 128 places take 256 MB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

Signatures = npt.NDArray[np.uint16]  # [N, P]
Indices = npt.NDArray[np.int64]

SEED = 20260  # of the hash functions: equal sets have equal signatures in every run
RECALL = 0.97  # share of the pairs at the threshold that agree in some band
COMPARED_AT_ONCE = 200_000
SALT = np.random.default_rng(SEED).integers(1, 2**63, size=512, dtype=np.uint64) | np.uint64(1)


def signatures(sets: Sequence[Sequence[str]], permutations: int) -> Signatures:
    """Signatures [N, P] of N sets. Leave out empty sets: their signatures look like any other."""
    from rensa import RMinHash

    if not sets:
        return np.empty((0, permutations), dtype=np.uint16)
    rows = RMinHash.digest_matrix_from_token_sets(list(map(list, sets)), permutations, SEED).to_rows()
    return np.asarray(rows, dtype=np.uint32).astype(np.uint16)


def similarity(signatures: Signatures, left: Indices, right: Indices) -> npt.NDArray[np.float64]:
    """The estimated Jaccard similarity of each pair of rows; its standard error is at most 0.5 / sqrt(P)."""
    estimates = np.empty(len(left))
    for start in range(0, len(left), COMPARED_AT_ONCE):
        part = slice(start, start + COMPARED_AT_ONCE)
        estimates[part] = (signatures[left[part]] == signatures[right[part]]).mean(axis=1)
    return estimates


def band_rows(permutations: int, threshold: float) -> int:
    """Number of places in a band: the largest with which `RECALL` of the pairs at the threshold agree in some band.

    A pair of similarity s agrees in one of b bands of r places with probability 1 - (1 - s^r)^b.
    """
    fits = [r for r in range(1, permutations + 1) if 1 - (1 - threshold**r) ** (permutations // r) >= RECALL]
    return max(fits, default=1)


def band_keys(signatures: Signatures, threshold: float) -> npt.NDArray[np.uint64]:
    """The hash of each row in each band [N, bands]; rows with an equal one are worth comparing."""
    return np.stack(list(_bands(signatures, threshold)), axis=1)


def _bands(signatures: Signatures, threshold: float) -> Iterator[npt.NDArray[np.uint64]]:
    rows = band_rows(signatures.shape[1], threshold)
    for band in range(signatures.shape[1] // rows):
        places = signatures[:, band * rows : (band + 1) * rows].astype(np.uint64)
        keys = ((places + np.uint64(1)) * SALT[:rows]).sum(axis=1, dtype=np.uint64)
        yield keys ^ (keys >> np.uint64(29))


def candidate_pairs(signatures: Signatures, threshold: float) -> Iterator[tuple[Indices, Indices]]:
    """The pairs to compare for each band: each row that agrees in it, with the first such row and with the one before."""
    for keys in _bands(signatures, threshold):
        order = np.argsort(keys, kind="stable")
        same = keys[order][1:] == keys[order][:-1]
        if not same.any():
            continue
        first = np.maximum.accumulate(np.where(np.concatenate([[True], ~same]), np.arange(len(order)), 0))
        later = np.flatnonzero(same) + 1
        yield (
            np.concatenate([order[first[later]], order[later - 1]]),
            np.concatenate([order[later], order[later]]),
        )


def similar_parts(signatures: Signatures, threshold: float, parts: Partition) -> None:
    """Join similar rows, also those that are similar only through others."""
    for left, right in candidate_pairs(signatures, threshold):
        apart = parts.labels[left] != parts.labels[right]
        left, right = left[apart], right[apart]
        alike = similarity(signatures, left, right) >= threshold
        parts.join(left[alike], right[alike])


class Partition:
    """A partition of 0 … n-1 whose parts are joined. `labels[i]` is the smallest member of the part of i."""

    def __init__(self, size: int) -> None:
        self.labels: Indices = np.arange(size, dtype=np.int64)

    def join(self, left: Indices, right: Indices) -> None:
        """Join the parts of `left[k]` and `right[k]`, for each k."""
        while True:
            a, b = self.labels[left], self.labels[right]
            apart = a != b
            if not apart.any():
                return
            left, right = left[apart], right[apart]
            low, high = np.minimum(a[apart], b[apart]), np.maximum(a[apart], b[apart])
            np.minimum.at(self.labels, high, low)
            while True:  # follow each label to the label of that member, until all are smallest members
                further = self.labels[self.labels]
                if np.array_equal(further, self.labels):
                    break
                self.labels = further

    def join_equal(self, keys: npt.NDArray[np.uint64]) -> None:
        """Join members with equal keys; 0 means no key."""
        held = np.flatnonzero(keys)
        order = held[np.argsort(keys[held], kind="stable")]
        same = keys[order][1:] == keys[order][:-1]
        self.join(order[1:][same], order[:-1][same])
