"""A recording: the calls and replies of all traces of one tool set, and the lookup of a reply.

A recording is a folder. `calls.parquet` has a row for each logged call, `recording.json` the tools and the properties of
the whole. Both are plain data: nothing in them is executed.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json, read_table
from tracewheel.environments.recorded.calls import exact_key, normalised_key, parameters_of

CALLS_FILE, ABOUT_FILE = "calls.parquet", "recording.json"
CALL_COLUMNS = ("task", "trace_id", "position", "tool", "exact_key", "normalised_key", "reply")
RECORDING_VERSION = 1
# The maximum number of traces with a call that are compared with an episode; the first by id.
MOST_COMPARED = 200
EVERY_TASK = ""


@dataclass(frozen=True)
class Found:
    """The recorded reply to a call.

    Attributes:
        reply: The tool's reply; None where the log, and so the episode, ends with the call.
        match: Whether the logged arguments are equal exactly or after normalisation.
        same_state: Whether a trace made the call after exactly the same calls.
        certain: False where equally close traces got different replies.
    """

    reply: str | None
    match: Literal["exact", "normalised"]
    same_state: bool
    certain: bool


@dataclass(frozen=True, slots=True)
class _Occurrence:
    """A logged call: its task, its reply, and its position in the keys of its trace."""

    task: str
    exact: str
    reply: str | None
    keys: Sequence[str]
    position: int

    @property
    def earlier(self) -> Sequence[str]:
        return self.keys[: self.position]


@dataclass(frozen=True)
class Recording:
    """The calls of one tool set, indexed for lookup. Immutable, so that episodes share it.

    Attributes:
        identity: Hash of its contents.
        tools: Schemas in OpenAI format.
        shared_world: Whether traces of different tasks saw the same world, so that one may answer for another.
        free_tools: Tools whose calls have no effect and no informative reply, whatever their arguments.
    """

    identity: str
    tools: list[dict[str, Any]]
    shared_world: bool
    free_tools: frozenset[str]
    _by_key: Mapping[tuple[str, str], Sequence[_Occurrence]] = field(repr=False)
    _by_state: Mapping[tuple[str, str], Sequence[_Occurrence]] = field(repr=False)
    parameters: dict[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", parameters_of(self.tools))

    def key(self, name: str, arguments: Any) -> str:
        """The key of a call; equal calls have equal keys in this recording."""
        return normalised_key(name, arguments, self.parameters)

    def find(self, task: str, earlier: Sequence[str], name: str, arguments: Any) -> Found | None:
        """Find the reply to a call after the `earlier` calls of an episode; None where no log has one.

        Traces of the same task come first, among them those with exactly the same earlier calls in the same order. Otherwise
        the trace whose earlier calls differ least is taken, regardless of their order and ignoring calls that were seen to
        make no difference to this call. Traces of another task are used only in a shared world.

        Args:
            task: The log's name of the episode's task.
            earlier: Keys of the calls so far, without those of free tools.
            name: The tool.
            arguments: Its arguments, an object.
        """
        if name in self.free_tools:
            return Found("", "exact", True, True)
        key, exact = self.key(name, arguments), exact_key(name, arguments)
        candidates = self._of(self._by_key, task, key)
        if not candidates:
            return None
        at_state = self._of(self._by_state, task, _state_after([*earlier, key]))
        nearest = at_state or _nearest(candidates, earlier)
        worded = [item for item in nearest if item.exact == exact]
        replies = Counter(item.reply for item in worded or nearest)
        match: Literal["exact", "normalised"] = "exact" if worded else "normalised"
        return Found(replies.most_common(1)[0][0], match, bool(at_state), len(replies) == 1)

    def _of(self, index: Mapping[tuple[str, str], Sequence[_Occurrence]], task: str, key: str) -> Sequence[_Occurrence]:
        """Occurrences in traces of the task, else in any trace if the world is shared."""
        return index.get((task, key)) or (index.get((EVERY_TASK, key), ()) if self.shared_world else ())


def _nearest(candidates: Sequence[_Occurrence], earlier: Sequence[str]) -> list[_Occurrence]:
    """Occurrences whose earlier calls differ least from an episode's; any one where all replies are equal."""
    if len({item.reply for item in candidates}) == 1:
        return list(candidates[:1])
    harmless = _harmless(candidates)
    done = Counter(earlier)
    distances = []
    for item in candidates:
        unlike = _difference(done, Counter(item.earlier))
        distances.append((sum(count for key, count in unlike.items() if key not in harmless), unlike.total()))
    least = min(distances)
    return [item for item, distance in zip(candidates, distances, strict=True) if distance == least]


def _harmless(occurrences: Sequence[_Occurrence]) -> set[str]:
    """Keys of calls that leave the reply unchanged: two traces, one with and one without the call, got the same reply."""
    first: dict[str | None, _Occurrence] = {}
    unlike = []
    for item in occurrences:
        other = first.setdefault(item.reply, item)
        unlike.append(set(_difference(Counter(item.earlier), Counter(other.earlier))))
    harmless: set[str] = set()
    for keys in sorted(unlike, key=len):
        if len(keys - harmless) == 1:
            harmless |= keys
    return harmless


def _difference(one: Counter[str], other: Counter[str]) -> Counter[str]:
    return (one - other) + (other - one)


def read_recording(folder: str | Path) -> Recording:
    """Read a recording; the episodes of a process share it until its files change.

    Raises:
        DataError: the folder has no recording, or one of another version.
    """
    about = Path(folder) / ABOUT_FILE
    if not about.is_file():
        raise DataError(f"{about}: no such file; a recording is made with `tracewheel data record`")
    return _read(str(folder), about.stat().st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _read(folder: str, changed: int) -> Recording:
    about: dict[str, Any] = read_json(Path(folder) / ABOUT_FILE)
    path = Path(folder) / CALLS_FILE
    if not isinstance(about, dict) or about.get("version") != RECORDING_VERSION:
        raise DataError(f"{Path(folder) / ABOUT_FILE}: not a recording of version {RECORDING_VERSION}; record the traces again")
    calls = read_table(path)
    missing = [name for name in CALL_COLUMNS if name not in calls]
    if missing:
        raise DataError(f"{path}: has no column {missing[0]}; record the traces again")
    calls = calls.sort_values(["trace_id", "position"])
    rows = calls[list(CALL_COLUMNS)].itertuples(index=False, name=None)
    return index_calls(about, rows)


def index_calls(about: Mapping[str, Any], rows: Iterable[tuple[Any, ...]]) -> Recording:
    """Build a recording from the contents of `recording.json` and rows of `CALL_COLUMNS`, sorted by trace and position."""
    free = frozenset(about["free_tools"])
    by_key: dict[tuple[str, str], list[_Occurrence]] = defaultdict(list)
    by_state: dict[tuple[str, str], list[_Occurrence]] = defaultdict(list)
    current, keys, state = None, list[str](), ""
    for task, trace_id, _, tool, exact, key, reply in rows:
        if trace_id != current:
            current, keys, state = trace_id, [], ""
        if tool in free:
            continue
        occurrence = _Occurrence(task, exact, reply if isinstance(reply, str) else None, keys, len(keys))
        keys.append(key)
        state = _next_state(state, key)
        for scope in (task, EVERY_TASK):
            for index, name in ((by_key, key), (by_state, state)):
                if len(index[scope, name]) < MOST_COMPARED:
                    index[scope, name].append(occurrence)
    return Recording(about["id"], about["tools"], about["shared_world"], free, dict(by_key), dict(by_state))


def _state_after(keys: Iterable[str]) -> str:
    return functools.reduce(_next_state, keys, "")


def _next_state(state: str, key: str) -> str:
    """The hash of a sequence of calls: as long as one key, however long the sequence."""
    return hashlib.sha256(f"{state} {key}".encode()).hexdigest()[:24]
