"""A set of 128-bit hashes, 16 bytes each in memory and on disk: it finds duplicates among millions of traces."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy

SIZE = 16
RECENT = 1 << 17


def hash_of(*parts: bytes) -> bytes:
    """The hash of some bytes; the boundaries between parts count."""
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()[:SIZE]


class HashIndex:
    """A set of hashes. Recent additions are in a Python set, the others in sorted arrays, largest first."""

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._arrays: list[numpy.ndarray] = []

    def __len__(self) -> int:
        return len(self._recent) + sum(len(array) for array in self._arrays)

    def add(self, hashes: list[bytes]) -> list[bool]:
        """Add hashes; return for each whether it was new. Of equal ones only the first is."""
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

    def contains(self, value: bytes) -> bool:
        """Whether a hash was added."""
        return value in self._recent or self._stored([value])[0]

    def _stored(self, hashes: list[bytes]) -> list[bool]:
        """Whether the arrays hold each hash."""
        if not self._arrays or not hashes:
            return [False] * len(hashes)
        import numpy

        wanted = _pairs(b"".join(hashes))
        found = numpy.zeros(len(wanted), dtype=bool)
        for array in self._arrays:
            places = numpy.searchsorted(array[:, 0], wanted[:, 0])
            for row in numpy.nonzero(array[numpy.minimum(places, len(array) - 1), 0] == wanted[:, 0])[0]:
                place = places[row]
                # Hashes with the same first half are nearly always the same hash.
                while place < len(array) and array[place, 0] == wanted[row, 0]:
                    found[row] |= array[place, 1] == wanted[row, 1]
                    place += 1
        return [bool(flag) for flag in found]

    def _settle(self) -> None:
        """Merge the recent additions and the smaller arrays into one array."""
        import numpy

        merged = _pairs(b"".join(self._recent))
        while self._arrays and len(self._arrays[-1]) <= 2 * len(merged):
            merged = numpy.concatenate([merged, self._arrays.pop()])
        self._arrays.append(merged[numpy.lexsort((merged[:, 1], merged[:, 0]))])
        self._recent = set()

    def save(self, path: Path) -> None:
        """Write all hashes, sorted: equal sets give equal bytes."""
        import numpy

        parts = [*self._arrays, _pairs(b"".join(self._recent))]
        merged = numpy.concatenate(parts)
        merged = merged[numpy.lexsort((merged[:, 1], merged[:, 0]))]
        path.write_bytes(merged.astype(">u8").tobytes())

    @classmethod
    def load(cls, path: Path) -> HashIndex:
        """The set that `save` wrote.

        Raises:
            ValueError: the file is not a list of hashes.
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
