"""A trajectory as a tree of tokens, stored flat: each token once.

`forks` lists [start, after]: the tokens from flat index `start` on, up to the next fork, follow the token at flat index
`after` (-1: none) instead of `start - 1`. A row is a path from the first token to a leaf: what the policy read when it
sampled the row's last turn. Rows share a prefix, whose tokens exist once and count once.

Without forks the tree is one row, the flat order itself.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError

if TYPE_CHECKING:
    import pandas

    from tracewheel.core.types import Trajectory

Forks = Sequence[Sequence[int]]


@dataclass
class TokenTree:
    """A tree that grows at the end of one row: `row` holds the flat indices of that row, and another may take its place."""

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    forks: list[list[int]] = field(default_factory=list)
    row: list[int] = field(default_factory=list)

    def add(self, ids: Iterable[int], sampled: bool) -> None:
        """Append tokens to the row; `sampled` is their mask."""
        start, last = len(self.ids), self.row[-1] if self.row else -1
        self.ids += ids
        if len(self.ids) > start and last != start - 1:
            self.forks.append([start, last])
        self.mask += [int(sampled)] * (len(self.ids) - start)
        self.row += range(start, len(self.ids))

    def cut(self, count: int) -> None:
        """Continue after the row's first `count` tokens."""
        del self.row[count:]

    def follow(self, ids: Sequence[int]) -> int:
        """Continue the row with tokens that the tree holds already, as many of `ids` as there are; ties go to the latest.

        Returns:
            How many of `ids` the row has been continued with.
        """
        followers: dict[int, list[int]] = {}
        for start, after in self.forks:
            followers.setdefault(after, []).append(start)
        forked = {start for start, _ in self.forks}
        found = self._longest(ids, self.row[-1] if self.row else -1, followers, forked)
        self.row += found
        return len(found)

    def _longest(self, ids: Sequence[int], last: int, followers: dict[int, list[int]], forked: set[int]) -> list[int]:
        path: list[int] = []
        for at, wanted in enumerate(ids):
            after = [last + 1] if last + 1 < len(self.ids) and last + 1 not in forked else []
            fitting = [index for index in (*after, *followers.get(last, ())) if self.ids[index] == wanted]
            if len(fitting) > 1:
                tails = [[index, *self._longest(ids[at + 1 :], index, followers, forked)] for index in reversed(fitting)]
                return path + max(tails, key=len)
            if not fitting:
                return path
            last = fitting[0]
            path.append(last)
        return path

    def row_ids(self, start: int = 0) -> list[int]:
        """The ids of the row's tokens from the position `start` on."""
        return [self.ids[index] for index in self.row[start:]]


def read_forks(stored: Any) -> list[list[int]]:
    """The forks of a stored row: JSON text, a list, or a missing value, which is no fork.

    Raises:
        DataError: it is none of these.
    """
    if stored is None or (isinstance(stored, float) and stored != stored):
        return []
    try:
        pairs = json.loads(stored) if isinstance(stored, str) else stored
        return [[int(start), int(after)] for start, after in pairs]
    except (TypeError, ValueError) as error:
        raise DataError(f"forks: {stored!r} is no list of [start, after]; roll out again") from error


def forks_of(trajectories: pandas.DataFrame) -> list[list[list[int]]]:
    """The forks of each row of a table, in which the column may be missing."""
    return [read_forks(stored) for stored in trajectories["forks"]] if "forks" in trajectories else [[]] * len(trajectories)


def check_forks(forks: Forks, length: int) -> None:
    """Check the forks of T = `length` tokens.

    Raises:
        DataError: a fork starts outside the tokens or not after the fork before it, or follows a token that is not before
            its start (such a tree would have a cycle).
    """
    last = -1
    for number, (start, after) in enumerate(forks):
        where = f"forks[{number}] = [{start}, {after}]"
        if not 0 <= start < length:
            raise DataError(f"{where}: starts outside the trajectory's {length} tokens")
        if start <= last:
            raise DataError(f"{where}: does not start after the fork before it, which starts at {last}")
        if not -1 <= after < start:
            raise DataError(f"{where}: follows a token that is not before its start")
        last = start


def preceding(forks: Forks, length: int) -> list[int]:
    """The flat index of the token before each of T = `length` tokens; -1 where there is none."""
    before = list(range(-1, length - 1))
    for start, after in forks:
        before[start] = after
    return before


def positions(forks: Forks, length: int) -> list[int]:
    """The position of each of T = `length` tokens in its row, from 0."""
    found: list[int] = []
    for start, stop, after in segments(forks, length):
        first = 0 if after < 0 else found[after] + 1
        found += range(first, first + stop - start)
    return found


def segments(forks: Forks, length: int) -> list[tuple[int, int, int]]:
    """The unforked stretches in flat order, as (start, stop, flat index of the token before the first)."""
    if not length:
        return []
    pairs = [(start, after) for start, after in forks]
    if not pairs or pairs[0][0] != 0:
        pairs.insert(0, (0, -1))
    ends = itertools.chain((start for start, _ in pairs[1:]), (length,))
    return [(start, stop, after) for (start, after), stop in zip(pairs, ends, strict=True)]


def ancestry(forks: Forks, length: int, last: int) -> list[tuple[int, int]]:
    """The flat ranges (start, stop) of the row that ends with the token `last`, from the root."""
    pieces = segments(forks, length)
    starts = [start for start, _, _ in pieces]
    ranges = []
    while last >= 0:
        start, _, after = pieces[bisect_right(starts, last) - 1]
        ranges.append((start, last + 1))
        last = after
    return ranges[::-1]


def read_before(trajectory: Trajectory, place: int) -> list[int]:
    """The ids that the policy had read before the token at a flat index of a trajectory, along its own history.

    Raises:
        DataError: the forks are no tree of the trajectory's tokens.
    """
    ids, forks = trajectory.token_ids, trajectory.forks
    check_forks(forks, len(ids))
    read = ancestry(forks, len(ids), preceding(forks, len(ids))[place])
    return [token for piece in read for token in ids[slice(*piece)]]


def rows(forks: Forks, length: int) -> list[list[int]]:
    """The rows as flat indices, in the order of their last tokens. Together they hold every token."""
    return list(_rows(forks, length))


def longest_row(forks: Forks, length: int) -> int:
    """The tokens of the longest row: what the context window must hold."""
    return max(positions(forks, length), default=-1) + 1


def _rows(forks: Forks, length: int) -> Iterator[list[int]]:
    followed = {after for _, _, after in segments(forks, length)}
    for _, stop, _ in segments(forks, length):
        if stop - 1 not in followed:
            yield [index for piece in ancestry(forks, length, stop - 1) for index in range(*piece)]
