"""Places components on sides, trace by trace in the order of time, so that the same logs always give the same sides.

A trace whose task, copies, user and session are all unknown begins a component, and a hash of its task's fingerprint
decides the side. A trace with a known identity belongs to that component. A trace that links several makes them one
(`split_record.joined`). Nothing else changes a side: not the size of the logs, not how many curations read them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tracewheel.config.curation import SharesConfig
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import TRAIN, VALIDATION
from tracewheel.curation.split_record import EPISODE_IDENTITIES, TASK, TEST, UNDECIDED, SplitRecord, State, identity_key, joined

if TYPE_CHECKING:
    import pandas

# Columns of a trace to the kind of identity they hold.
IDENTITIES = {"task_id": TASK, "fingerprint": "fingerprint", "copy": "copy", **EPISODE_IDENTITIES}


@dataclass(frozen=True)
class TraceLinks:
    """What identifies the component of each trace, in the order of time.

    Attributes:
        rows: The traces, sorted.
        codes: [N, K] the code of each identity, -1 where there is none. The task comes first.
        keys: Code to the key in the record; None for clusters of near copies, which only these traces have.
        kinds: Code to its kind.
        tasks: Code of a task to its id.
    """

    rows: pandas.DataFrame
    codes: npt.NDArray[np.int64]
    keys: list[str | None]
    kinds: list[str]
    tasks: dict[int, str]

    @classmethod
    def of(cls, rows: pandas.DataFrame, clusters: pandas.DataFrame | None, link: Collection[str]) -> TraceLinks:
        """The links of usable traces.

        Args:
            rows: Has `id`, `task_id`, `fingerprint` and `created`; optional are `user`, `session`, `task` and `copy`, the key
                of renumbered copies. Missing values link nothing.
            clusters: Clusters of duplicates (`trace_id`, `cluster`, `kind`).
            link: The kinds of clusters that link.
        """
        rows = in_order_of_time(rows)
        columns: list[npt.NDArray[np.int64]] = []
        keys: list[str | None] = []
        kinds: list[str] = []
        tasks: dict[int, str] = {}
        for column, kind in IDENTITIES.items():
            if column not in rows:
                continue
            values = rows[column].where(rows[column].map(lambda value: isinstance(value, str) and value != ""))
            found, names = values.factorize()
            columns.append(np.where(found >= 0, found + len(keys), -1))
            if kind == TASK:
                tasks = dict(enumerate(map(str, names)))
            keys += [identity_key(kind, name) for name in names]
            kinds += [kind] * len(names)
        for kind in link:
            if clusters is None:
                break
            own = clusters[clusters["kind"] == kind].set_index("trace_id")["cluster"]
            found, names = rows["id"].map(own[~own.index.duplicated()]).factorize()
            columns.append(np.where(found >= 0, found + len(keys), -1))
            keys += [None] * len(names)
            kinds += [kind] * len(names)
        return cls(rows, np.stack(columns, axis=1), keys, kinds, tasks)


def in_order_of_time(rows: pandas.DataFrame) -> pandas.DataFrame:
    """The traces by `created`; one without a time follows the trace before it in the file, and ties keep their order."""
    import pandas

    if "created" not in rows:
        return rows.reset_index(drop=True)
    times = pandas.to_datetime(rows["created"], utc=True, errors="coerce", format="ISO8601").ffill().bfill()
    return rows.iloc[np.argsort(times.dt.tz_localize(None).to_numpy(), kind="stable")].reset_index(drop=True)


def side_of(fingerprint: str, shares: SharesConfig) -> str:
    """The side of a component that begins with this task: its hash, as a number from 0 to 1, against the shares."""
    place = int(content_hash(["side", fingerprint]), 16) / 16**16
    return TEST if place < shares.test else VALIDATION if place < shares.test + shares.validation else TRAIN


class Components:
    """Components of identities, which grow trace by trace.

    Args:
        links: The traces.
        record: What earlier curations know of these identities.
        number: The number of this curation.
    """

    def __init__(self, links: TraceLinks, record: SplitRecord, number: int) -> None:
        self._links, self._record, self._number = links, record, number
        self._parents = list(range(len(links.keys)))
        self._states = [record.states.get(key) if key else None for key in links.keys]
        self._seen = [False] * len(links.keys)
        self._adds = np.zeros(len(links.codes), dtype=bool)  # later traces with the same identities add nothing
        self._adds[np.unique(links.codes, axis=0, return_index=True)[1]] = True

    def add(self, place: int, side: str | None = UNDECIDED) -> None:
        """Add the trace at a place; `side` is that of a new component, None where it comes later."""
        if not self._adds[place]:
            return
        codes = [code for code in self._links.codes[place].tolist() if code >= 0]
        roots = {self.root(code) for code in codes if self._seen[code] or self._states[code] is not None}
        root = min(roots, default=codes[0])
        known = [state for other in roots if (state := self._states[other]) is not None]
        if known:
            self._states[root] = known[0] if len(known) == 1 else joined(known)
        elif side is not None:
            self._states[root] = self._begun(side)
        for code in (*codes, *roots):
            self._parents[self.root(code)] = root
            self._seen[code] = True

    def _begun(self, side: str) -> State:
        """The state of a new component. With a lost record it may have been used already."""
        lost = self._number if self._record.lost else 0
        return State(side, self._number, lost * (side == TRAIN), lost * (side == VALIDATION), lost * (side == TEST))

    def root(self, code: int) -> int:
        """The component of an identity, by one of its codes."""
        parents = self._parents
        while parents[code] != code:
            parents[code] = parents[parents[code]]
            code = parents[code]
        return code

    def begin(self, code: int, side: str) -> None:
        """Decide the side of a component that has none."""
        self._states[self.root(code)] = self._begun(side)

    def state(self, code: int) -> State:
        """The state of an identity's component."""
        state = self._states[self.root(code)]
        assert state is not None, "every trace has been added"
        return state

    def change(self, code: int, **values: str | int) -> None:
        """Change the state of an identity's component."""
        self._states[self.root(code)] = self.state(code)._replace(**values)  # type: ignore[arg-type]

    def states(self) -> Iterator[tuple[str, str, State]]:
        """Key, kind and state of each identity of the traces."""
        for code, key in enumerate(self._links.keys):
            if key is not None:
                yield key, self._links.kinds[code], self.state(code)
