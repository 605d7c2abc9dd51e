"""The record of splits: which side each component is on, for ever, and what it has been used for.

A component (a task with its copies, its users and sessions) is known by its identities. The record holds a row for each
identity, under a hash of its kind and value: no text of a log, also not of what has been deleted since. A curation starts
from the record of the one before it and writes its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_columns, read_table
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import EPISODES_FILE, HARDER, HELD_OUT, SPLITS_FILE, TASKS_FILE, TRAIN, VALIDATION

if TYPE_CHECKING:
    import pandas

TEST, RETIRED, UNDECIDED = "test", "retired", ""
SIDES = (TRAIN, VALIDATION, TEST, RETIRED)
PROTECTION = {UNDECIDED: 0, TRAIN: 1, VALIDATION: 2, TEST: 3, RETIRED: 4}  # when components are one, the highest stays
SIDE_OF_SPLIT = {TRAIN: TRAIN, VALIDATION: VALIDATION, HELD_OUT: TEST, HARDER: TEST}
USE_OF_SPLIT = {TRAIN: "trained", VALIDATION: "selected", HELD_OUT: "tested", HARDER: "tested"}
# Columns of tasks and of episodes to the kind of identity they hold.
TASK = "task"
TASK_IDENTITIES = {"id": TASK, "fingerprint": "fingerprint"}
EPISODE_IDENTITIES = {"user": "user", "session": "session", "task": "log_task"}
COUNTS = ("since", "trained", "selected", "tested")
TASK_COUNTS = ("place", "held")
COLUMNS = ("key", "kind", "side", *COUNTS, *TASK_COUNTS)
META = b"tracewheel.splits"


class State(NamedTuple):
    """What is known of an identity. Numbers are of curations, from 1; 0 is never.

    Attributes:
        side: train, validation, test, retired (neither trained nor evaluated on), or "" (a split by time: not used yet).
        since: The curation that first saw it.
        trained, selected, tested: The first curation in which a task of its component was trained on, was in the validation
            split, or was held out.
    """

    side: str
    since: int
    trained: int = 0
    selected: int = 0
    tested: int = 0


def joined(states: Iterable[State]) -> State:
    """The state of a component that turns out to consist of several.

    The most protected side stays, and the others give way. What a held-out or validation task would have to be kept from
    may have happened already: where a part was trained on (or, for the test side, selected on), the component retires. With
    a retired part it is retired too.
    """
    parts = list(states)
    since = min(part.since for part in parts)
    trained, selected, tested = (_first(getattr(part, name) for part in parts) for name in COUNTS[1:])
    side = max((part.side for part in parts), key=PROTECTION.__getitem__)
    spent = trained if side == VALIDATION else trained or selected if side == TEST else 0
    return State(RETIRED if spent else side, since, trained, selected, tested)


def _first(numbers: Iterable[int]) -> int:
    return min((number for number in numbers if number), default=0)


def identity_key(kind: str, value: str) -> str:
    """The key of an identity in the record."""
    return content_hash([kind, value])


@dataclass(frozen=True)
class SplitRecord:
    """The record of a curation.

    Attributes:
        number: How many curations of new logs the record has passed through; 0 is an empty record.
        logs: Hash of the ids of the traces it was made from. A curation of the same traces adds no number.
        states: Identity key to its state.
        kinds: Identity key to its kind: task, fingerprint, copy, user, session or log_task.
        places: Task key to its place in the order in which tasks fill the sets.
        held: Task key to the curation that first held the task out.
        lost: An earlier record existed and is lost: whatever may have been trained or selected on counts as such.
        fitted: Settings of `curation` that the first curation fitted to its logs (`counts: auto`).
        founding: Of `places`, so many belong to tasks of the traces that the first draw was made from; None while it is all.
    """

    number: int = 0
    logs: str = ""
    states: dict[str, State] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    lost: bool = False
    fitted: dict[str, int] = field(default_factory=dict)
    founding: int | None = None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a record, from its file or from a folder with one.

        Raises:
            DataError: the file is missing or has another form; the message names it.
        """
        import pyarrow.parquet

        path = path / SPLITS_FILE if path.is_dir() else path
        table = read_table(path)
        about = (pyarrow.parquet.read_schema(path).metadata or {}).get(META)
        missing = [name for name in COLUMNS if name not in table]
        if about is None or missing:
            what = f"no column '{missing[0]}'" if missing else "no number of a curation"
            raise DataError(f"{path}: {what}; name the file that `tracewheel curate` wrote")
        meta = json.loads(about)
        if not set(table["side"]) <= {*SIDES, UNDECIDED}:
            raise DataError(f"{path}: a side is none of {', '.join(SIDES)}")
        keys = table["key"].tolist()
        states = map(State._make, table[["side", *COUNTS]].itertuples(index=False, name=None))
        places = {key: place for key, place in zip(keys, table["place"].tolist(), strict=True) if place >= 0}
        held = {key: number for key, number in zip(keys, table["held"].tolist(), strict=True) if number}
        kinds = dict(zip(keys, table["kind"], strict=True))
        known, fitted = dict(zip(keys, states, strict=True)), meta.get("fitted", {})
        return cls(meta["number"], meta["logs"], known, kinds, places, held, fitted=fitted, founding=meta.get("founding"))

    @classmethod
    def of_curated(cls, folder: Path) -> Self:
        """The record of a curation that wrote none: what its splits say.

        Raises:
            DataError: the folder is not an output of curate; the message names the file.
        """
        if (folder / SPLITS_FILE).is_file():
            return cls.read(folder)
        tasks, path = read_table(folder / TASKS_FILE), folder / EPISODES_FILE
        episodes = read_table(path, [name for name in read_columns(path) if name in {"split", *EPISODE_IDENTITIES}])
        states: dict[str, State] = {}
        kinds, held = dict[str, str](), dict[str, int]()
        for frame, columns in ((tasks, TASK_IDENTITIES), (episodes, EPISODE_IDENTITIES)):
            for column, kind in columns.items():
                for value, split in set(zip(frame[column], frame["split"], strict=True)) if column in frame else ():
                    if isinstance(value, str) and value and split in SIDE_OF_SPLIT:
                        key = identity_key(kind, value)
                        use = USE_OF_SPLIT[split]
                        state = State(SIDE_OF_SPLIT[split], 1, *(int(use == name) for name in COUNTS[1:]))
                        states[key] = joined([state, *([states[key]] if key in states else [])])
                        kinds[key] = kind
                        held |= {key: 1} if kind == TASK and USE_OF_SPLIT[split] == "tested" else {}
        places = {key: place for place, key in enumerate(identity_key(TASK, task_id) for task_id in tasks["id"])}
        return cls(1, "", states, kinds, places, held)

    def write(self, path: Path) -> None:
        """Write the record; equal records give equal bytes."""
        import pyarrow
        import pyarrow.parquet

        keys = sorted(self.states)
        columns: dict[str, list[Any]] = {"key": keys, "kind": [self.kinds[key] for key in keys]}
        for name in ("side", *COUNTS):
            columns[name] = [getattr(self.states[key], name) for key in keys]
        columns["place"] = [self.places.get(key, -1) for key in keys]
        columns["held"] = [self.held.get(key, 0) for key in keys]
        kinds = dict.fromkeys(("key", "kind", "side"), pyarrow.string())
        schema = pyarrow.schema([(name, kinds.get(name, pyarrow.int64())) for name in COLUMNS])
        meta: dict[str, Any] = {"number": self.number, "logs": self.logs}
        meta |= {"fitted": self.fitted} if self.fitted else {}
        meta |= {} if self.founding is None else {"founding": self.founding}
        about = json.dumps(meta, sort_keys=True).encode()
        pyarrow.parquet.write_table(pyarrow.table(columns, schema=schema.with_metadata({META: about})), path)

    def spent(self, kind: str, values: pandas.Series, uses: tuple[str, ...]) -> pandas.Series[bool]:
        """Whether each value of this kind was used in one of these ways (`trained`, `selected`) by this curation or earlier."""

        def used(value: object) -> bool:
            state = self.states.get(identity_key(kind, value)) if isinstance(value, str) and value else None
            return state is not None and any(getattr(state, name) for name in uses)

        return values.map({value: used(value) for value in values.dropna().unique()}).eq(True)
