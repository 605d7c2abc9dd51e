"""The results of earlier curations in a folder: of each trace its replay, of each task its probe.

A result is reused if everything it was made from is equal: the trace as stored, the settings that are read, the code of
Tracewheel, of the environment and of the verifier, and packages. Environments and verifiers must therefore give equal results
for equal calls. A share of the results is made anew each time and compared, and where one differs, nothing is reused.

The folder holds what the last curation used, and no more: the results of deleted traces go with the next one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tracewheel.config import CurateSections
from tracewheel.core.fingerprint import (
    CURATION_PACKAGES,
    NUMERIC_PACKAGES,
    UNKNOWN,
    code_version,
    digest_file,
    own_code,
    package_versions,
)
from tracewheel.core.locks import hold
from tracewheel.core.processes import OrderedMap, Ready
from tracewheel.core.store import PARTIAL, remove, write_whole
from tracewheel.core.types import content_hash
from tracewheel.curation.probes import FLAKY, NO_OP, Probe, Probed, in_parts, probe_part
from tracewheel.curation.reuse.result_table import Keys, Places, ResultTable
from tracewheel.curation.task_records import Solutions, TaskRecords
from tracewheel.curation.trace_results import schema
from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.scoring.world_code import world_code

if TYPE_CHECKING:
    import pyarrow


INDEX_FILE, INDEX_VERSION = "index.json", 1
TABLES = ("traces", "probes")
MOST_SETTINGS = 3  # folders that stay; the one that was used longest ago goes first
# One result in so many is made anew, another share each time; of episodes with other replies than the log's one in five.
CHECKED, CHECKED_DRIFT = 50, 5
NOT_STORED = ("source_file", "source_line")  # columns of a trace on which no result depends
MAY_PASS = "the verifier cannot judge"  # such a result may be another one next time

CODE = "tracewheel.curation.replayed_traces"


def silent(text: str) -> None:
    """Says nothing."""


class NotRepeatable(Exception):
    """A trace or a task that was replayed again gave another result. The message says which and what."""


class EarlierResults:
    """The results in a folder, while it is open.

    Attributes:
        traces: By hash of the trace.
        probes: By hash of the task and its known solution.
        curations: How many curations have added to the folder.
        without: Results that are not stored, as (column, value).
    """

    def __init__(self, folder: Path, index: dict[str, Any], say: Callable[[str], None]) -> None:
        files = index["files"]
        self.traces = ResultTable(folder, TABLES[0], _trace_schema(), files[TABLES[0]], say)
        self.probes = ResultTable(folder, TABLES[1], _probe_schema(), files[TABLES[1]], say)
        self.curations: int = index["curations"]
        self.without: set[tuple[str, str]] = set()
        self.say = say
        self._folder = folder
        self._code_of: dict[str, str] = {}

    @classmethod
    @contextlib.contextmanager
    def opened(cls, folder: Path | None, config: CurateSections, say: Callable[[str], None]) -> Iterator[EarlierResults | None]:
        """The results that fit these settings; None where they must not be used, which is said."""
        # In a recorded environment each trace is compared with all others.
        if folder is None or config.environment.kind.startswith(RECORDED):
            yield None
            return
        if own_code(config.environment.spec) == UNKNOWN:
            say(f"the source of {config.environment.kind} is not found: nothing is reused, as a change of it would not be seen")
            yield None
            return
        place = folder / depends_on(config)
        place.mkdir(parents=True, exist_ok=True)
        with hold(place) as held:
            if not held:
                say(f"{place} is in use by another curation: nothing is reused from it")
                yield None
                return
            index = _read_index(place, say)
            if reason := index["not_repeatable"]:
                say(f"replays are not reused: {reason}")
                yield None
                return
            opened = cls(place, index, say)
            try:
                yield opened
            finally:
                opened.traces.close()
                opened.probes.close()
        _drop_old(folder, place)

    def keep(self, *, whole: bool) -> None:
        """Store what was added; after a whole curation also drop what it did not use."""
        if whole and self.traces.used.any():
            says = [f"{int(table.used.sum()):,} {what}" for table, what in ((self.traces, "replays"), (self.probes, "probes"))]
            self.say(f"reused of earlier curations: {' and '.join(says)}; new: {self.traces.added:,} and {self.probes.added:,}")
        files = {
            TABLES[0]: self.traces.finish(drop_unused=whole, without=self.without),
            TABLES[1]: self.probes.finish(drop_unused=whole),
        }
        _write_index(self._folder, {"files": files, "curations": self.curations + whole, "not_repeatable": ""})

    def distrust(self, reason: str) -> None:
        """Delete all results, and reuse none with these settings and this code from now on."""
        self.say(f"the environment is not deterministic, so all traces are replayed: {reason}")
        _write_index(self._folder, {"files": {}, "curations": self.curations, "not_repeatable": reason})

    def checked(self, keys: Keys, share: int) -> npt.NDArray[np.bool_]:
        """Which results of some keys are made anew this time: one in `share`, and at least one."""
        chosen = np.asarray(keys[:, 1] % np.uint64(share) == np.uint64(self.curations % share))
        if len(keys):
            chosen[(keys[:, 1] * np.uint64(2 * self.curations + 1)).argmin()] = True
        return chosen

    def with_code(self, rows: pyarrow.Table) -> pyarrow.Table:
        """Results (with `verifier`) and the hash of their verifier's own code."""
        import pyarrow

        return rows.append_column("code", pyarrow.array(self._codes(rows), type=pyarrow.string()))

    def has_code(self, rows: pyarrow.Table) -> npt.NDArray[np.bool_]:
        """Which results were made with the present code of their verifiers."""
        stored = rows.column("code").to_pylist()
        return np.array([one == other != UNKNOWN for one, other in zip(stored, self._codes(rows), strict=True)], dtype=bool)

    def _codes(self, rows: pyarrow.Table) -> list[str]:
        names = rows.column("verifier").to_pylist()
        for name in set(names) - self._code_of.keys():
            self._code_of[name] = own_code(name)
        return [self._code_of[name] for name in names]


@dataclass(frozen=True)
class KnownResults:
    """The results of a batch of N traces that are kept from earlier curations.

    Attributes:
        reuse: Where they are kept.
        keys: [N] the traces' keys.
        rows: The kept results.
        row_of: [N] position in `rows`, -1 where a trace has no result.
        new: [N] which results are made now; those that are kept too are compared.
    """

    reuse: EarlierResults
    keys: Keys
    rows: pyarrow.Table
    row_of: Places
    new: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, batch: pyarrow.Table, reuse: EarlierResults) -> KnownResults:
        """Look up the traces of a batch."""
        keys = trace_keys(batch)
        places = reuse.traces.find(keys)
        known = np.flatnonzero(places >= 0)
        rows = reuse.traces.rows(places[known])
        row_of = np.full(len(batch), -1, dtype=np.int64)
        row_of[known] = np.where(reuse.has_code(rows), np.arange(len(known)), -1)
        drift = np.asarray(rows.column("observation_drift").to_numpy(), dtype=bool)
        new = row_of < 0
        new[known] |= reuse.checked(keys[known], CHECKED) | (drift & reuse.checked(keys[known], CHECKED_DRIFT))
        return cls(reuse, keys, rows, row_of, new)

    def completed(self, made: pyarrow.Table) -> pyarrow.Table:
        """All results of the batch, given those that are made now. Results that were not kept are added to the kept ones.

        Raises:
            NotRepeatable: one that is kept differs from the one that is made now.
        """
        import pyarrow

        row_of = self.row_of[self.new]
        again = np.flatnonzero(row_of >= 0)
        compare(self.rows.take(row_of[again]), made.take(again), "task_id")
        lasts = np.array([not text.startswith(MAY_PASS) for text in made.column("unscored").to_pylist()], dtype=bool)
        stays = (row_of < 0) & lasts
        self.reuse.traces.put(self.keys[self.new][stays], self.reuse.with_code(made.filter(pyarrow.array(stays))))
        old = np.flatnonzero(~self.new)
        kept = self.rows.take(self.row_of[old]).select(made.column_names)
        order = np.argsort(np.concatenate([np.flatnonzero(self.new), old]))
        return pyarrow.concat_tables([made, kept]).take(order)


def compare(kept: pyarrow.Table, made: pyarrow.Table, name_of: str) -> None:
    """Compare results that are kept with the same made anew.

    Args:
        kept: The kept ones.
        made: The others, in the same order.
        name_of: The column that names a result.

    Raises:
        NotRepeatable: two differ.
    """
    for was, now in zip(kept.to_pylist(), made.to_pylist(), strict=True):
        for column, value in now.items():
            if was[column] != value and not (was[column] != was[column] and value != value):
                raise NotRepeatable(f"{now[name_of]} has another {column} than in an earlier curation")


def trace_keys(batch: pyarrow.Table) -> Keys:
    """A key of each trace: the hash of its stored columns, without the place in the log."""
    import orjson

    names = [name for name in batch.column_names if name not in NOT_STORED]
    head = hashlib.blake2b(orjson.dumps(names), digest_size=16)
    digests = []
    for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
        digest = head.copy()
        digest.update(orjson.dumps(row))
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(-1, 2)


def _trace_schema() -> pyarrow.Schema:
    import pyarrow

    return schema().append(pyarrow.field("code", pyarrow.string()))


def _probe_schema() -> pyarrow.Schema:
    import pyarrow

    text = pyarrow.string()
    names = ("task_id", "verdict", "reason", "verifier")
    return pyarrow.schema([*((name, text) for name in names), ("solution_tried", pyarrow.bool_()), ("code", text)])


def _read_index(folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The folder's index; an empty one where there is none or where it cannot be read, which is said."""
    path = folder / INDEX_FILE
    index: dict[str, Any] = {"files": {}, "curations": 0, "not_repeatable": ""}
    if path.exists():
        try:
            stored = json.loads(path.read_text())
            files = {name: [str(file) for file in stored["files"].get(name, ())] for name in TABLES}
            if stored["version"] != INDEX_VERSION:
                raise ValueError("another version")
            index = {"files": files, "curations": int(stored["curations"]), "not_repeatable": str(stored["not_repeatable"])}
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            say(f"{path} cannot be read ({error}): all traces are replayed")
    elif any(folder.glob("*.parquet")):
        say(f"{path} is missing: all traces are replayed")
    index["files"] = {name: index["files"].get(name, []) for name in TABLES}
    return index


def _write_index(folder: Path, index: dict[str, Any]) -> None:
    """Write the index, and delete the files that are not in it."""
    write_whole(folder / INDEX_FILE, json.dumps({"version": INDEX_VERSION, **index}, indent=1) + "\n")
    listed = {file for files in index["files"].values() for file in files}
    for path in [*folder.glob("*.parquet"), *folder.glob(f"{PARTIAL}*")]:
        if path.name not in listed:
            remove(path)


def _drop_old(folder: Path, current: Path) -> None:
    """Delete the results for settings and code that were used longest ago."""
    others = [path for path in folder.iterdir() if path.is_dir() and path != current]
    for path in sorted(others, key=lambda path: (path / INDEX_FILE).stat().st_mtime if (path / INDEX_FILE).exists() else 0.0)[
        : max(0, len(others) + 1 - MOST_SETTINGS)
    ]:
        remove(path)


def depends_on(config: CurateSections) -> str:
    """Hash of the settings that replays, probes, sketches and overlaps read, their code, and the packages it uses.

    Of the user's own environment it covers the module and what that imports, except installed packages. It does not cover
    files that an environment reads.
    """
    world = world_code(config.environment.spec, config.environment.verifiers)
    duplicates, benchmarks = config.curation.duplicates, config.curation.decontamination
    return content_hash(
        {
            "environment": config.environment.spec,
            "sketches": duplicates.near,
            "benchmarks": [
                benchmarks.model_dump(mode="json", exclude={"benchmarks"}),
                *([Path(path).name, digest_file(Path(path))] for path in benchmarks.benchmarks if Path(path).is_file()),
            ],
            "code": code_version(CODE, *world.modules, plugins=world.plugins),
            "packages": package_versions(NUMERIC_PACKAGES + CURATION_PACKAGES),
        }
    )


# Verdicts that are kept. Any other may be another one next time: the task is probed again in each curation.
KEPT = ("", NO_OP)
NEW_TASKS = 100  # in a part, for which other processes pay


def probes_of(tasks: TaskRecords, solutions: Solutions, mapped: OrderedMap, reuse: EarlierResults | None) -> dict[str, Probe]:
    """The probes of tasks by id, in the order of the ids.

    Args:
        tasks: The tasks.
        solutions: Known solutions.
        mapped: Probes in several processes.
        reuse: Where probes are kept. Results of flaky tasks are not.

    Raises:
        NotRepeatable: a task that is probed again has another probe than before.
    """
    parts = in_parts((task, solutions.get(task.id)) for task in tasks)
    if reuse is None:
        return dict(found for part in mapped(probe_part, parts) for found in part)
    waiting: deque[_Part] = deque()

    def work() -> Iterator[list[Probed] | Ready[list[tuple[str, Probe]]]]:
        for items in parts:
            part = _Part(items, reuse)
            waiting.append(part)
            few = len(part.new) < min(NEW_TASKS, len(items))
            yield Ready(probe_part(part.new)) if few else part.new

    probes = dict(found for made in mapped(probe_part, work()) for found in waiting.popleft().completed(made))
    reuse.without |= {("task_id", task_id) for task_id, probe in probes.items() if probe.verdict == FLAKY}
    return probes


class _Part:
    """Some tasks, and their probes that are kept.

    Args:
        items: Tasks with their known solutions.
        reuse: Where probes are kept.
    """

    def __init__(self, items: list[Probed], reuse: EarlierResults) -> None:
        self._items, self._reuse = items, reuse
        self._keys = _keys(items)
        places = reuse.probes.find(self._keys)
        known = np.flatnonzero(places >= 0)
        self._rows = reuse.probes.rows(places[known])
        self._row_of = np.full(len(items), -1, dtype=np.int64)
        self._row_of[known] = np.where(reuse.has_code(self._rows), np.arange(len(known)), -1)
        self._is_new: npt.NDArray[np.bool_] = self._row_of < 0
        self._is_new[known] |= reuse.checked(self._keys[known], CHECKED)
        self.new = [items[place] for place in np.flatnonzero(self._is_new).tolist()]

    def completed(self, made: list[tuple[str, Probe]]) -> list[tuple[str, Probe]]:
        """The probes of all tasks, given those of the new ones."""
        import pyarrow

        row_of = self._row_of[self._is_new]
        again = np.flatnonzero(row_of >= 0)
        rows = self._reuse.with_code(self._table(made))
        compare(self._rows.take(row_of[again]), rows.take(again), "task_id")
        stays = (row_of < 0) & np.array([probe.verdict in KEPT for _, probe in made], dtype=bool)
        self._reuse.probes.put(self._keys[self._is_new][stays], rows.filter(pyarrow.array(stays)))
        new, kept = iter(made), self._rows.to_pylist()
        return [
            next(new) if is_new else (task.id, _probe(kept[row]))
            for (task, _), is_new, row in zip(self._items, self._is_new.tolist(), self._row_of.tolist(), strict=True)
        ]

    def _table(self, made: list[tuple[str, Probe]]) -> pyarrow.Table:
        import pyarrow

        records = [
            {"task_id": task_id, "verifier": task.verifier, **{name: getattr(probe, name) for name in Probe.__slots__}}
            for (task_id, probe), (task, _) in zip(made, self.new, strict=True)
        ]
        schema = self._reuse.probes.schema
        return pyarrow.Table.from_pylist(records, schema=schema.remove(schema.get_field_index("code")))


def _probe(row: dict[str, str | bool]) -> Probe:
    return Probe(str(row["verdict"]), str(row["reason"]), bool(row["solution_tried"]))


def _keys(items: list[Probed]) -> Keys:
    """A key of each task and its known solution."""
    digests = [
        hashlib.blake2b(json.dumps([task.to_record(), solution]).encode(), digest_size=16).digest() for task, solution in items
    ]
    return np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(-1, 2)
