"""A set of 128-bit hashes that takes 16 bytes each in memory and on disk, so that millions of traces can be told apart."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy

SIZE = 16
RECENT = 1 << 17


def hash_of(*parts: bytes) -> bytes:
    """The hash of some bytes; where one part ends and the next begins counts."""
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()[:SIZE]


class HashIndex:
    """The set. The latest additions are in a Python set; sorted arrays hold the others, larger ones before smaller ones."""

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._arrays: list[numpy.ndarray] = []

    def __len__(self) -> int:
        return len(self._recent) + sum(len(array) for array in self._arrays)

    def add(self, hashes: list[bytes]) -> list[bool]:
        """Add hashes; says of each whether it was new, of those that are equal the first alone."""
        stored = self._stored(hashes)
        recent = self._recent
        new = []
        for value, is_stored in zip(hashes, stored, strict=True):
            is_new = not is_stored and value not in recent
            if is_new:
                recent.add(value)
            new.append(is_new)
        if len(recent) >= RECENT:
            self._settle()
        return new

    def _stored(self, hashes: list[bytes]) -> list[bool]:
        """Of each hash whether an array has it."""
        if not self._arrays or not hashes:
            return [False] * len(hashes)
        import numpy

        wanted = _pairs(b"".join(hashes))
        found = numpy.zeros(len(wanted), dtype=bool)
        for array in self._arrays:
            places = numpy.searchsorted(array[:, 0], wanted[:, 0])
            for row in numpy.nonzero(array[numpy.minimum(places, len(array) - 1), 0] == wanted[:, 0])[0]:
                place = places[row]
                # Of hashes with the same first half there is one, but for an accident.
                while place < len(array) and array[place, 0] == wanted[row, 0]:
                    found[row] |= array[place, 1] == wanted[row, 1]
                    place += 1
        return [bool(flag) for flag in found]

    def _settle(self) -> None:
        """Make an array of the latest additions, together with the smaller of those there are."""
        import numpy

        merged = _pairs(b"".join(self._recent))
        while self._arrays and len(self._arrays[-1]) <= 2 * len(merged):
            merged = numpy.concatenate([merged, self._arrays.pop()])
        self._arrays.append(merged[numpy.lexsort((merged[:, 1], merged[:, 0]))])
        self._recent = set()

    def save(self, path: Path) -> None:
        """Write all hashes, sorted: equal sets are equal bytes."""
        import numpy

        parts = [*self._arrays, _pairs(b"".join(self._recent))]
        merged = numpy.concatenate(parts)
        merged = merged[numpy.lexsort((merged[:, 1], merged[:, 0]))]
        path.write_bytes(merged.astype(">u8").tobytes())

    @classmethod
    def load(cls, path: Path) -> HashIndex:
        """The set that `save` wrote.

        Raises:
            ValueError: the file is not one.
        """
        data = path.read_bytes()
        if len(data) % SIZE:
            raise ValueError(f"{path}: is not a list of hashes of {SIZE} bytes")
        index = cls()
        if data:
            index._arrays.append(_pairs(data))
        return index


def _pairs(data: bytes) -> numpy.ndarray:
    """Hashes as rows of two numbers."""
    import numpy

    return numpy.frombuffer(data, dtype=">u8").astype(numpy.uint64).reshape(-1, 2)
