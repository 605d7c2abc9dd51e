"""Finds traces of the same task: exact copies, equal goals, copies with other numbers, near duplicates.

| kind | what is equal |
|---|---|
| `exact` | every message, except for the ids of calls |
| `semantic` | the environment and its goal state (the task's fingerprint, or the logged environment) |
| `renumbered` | the same, with numbers masked |
| `near` | most words with numbers masked, or most of the content (names, numbers, arguments), by MinHash |

Memory holds only hashes and signatures: some hundred megabytes for a million traces.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tracewheel.core.types import canonical_json
from tracewheel.curation.minhash import Partition, Signatures, signatures, similar_parts
from tracewheel.curation.task_text import TaskText

if TYPE_CHECKING:
    import pandas

EXACT, SEMANTIC, RENUMBERED, NEAR = "exact", "semantic", "renumbered", "near"
SIMILAR = 0.8  # the least similarity of the words of two tasks and their calls, numbers masked
SAME_CONTENT = 0.6  # the least similarity of the content of two tasks, estimated by hash functions on the first characters
PERMUTATIONS, LONGEST = 128, 8_000  # hash functions; characters of a trace
KINDS = (EXACT, SEMANTIC, RENUMBERED, NEAR)
COLUMNS = ("trace_id", "cluster", "kind")
SKETCH_COLUMNS = (EXACT, SEMANTIC, RENUMBERED, "words", "content")
FEWEST_MEMBERS = 4  # a smaller set does not identify a task: "Hi" is no copy of "Hi"
ROWS_AT_ONCE = 2000
_NUMBER = re.compile(r"\d+")


class DuplicateFinder:
    """Takes traces in batches and returns the clusters of duplicates."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._keys: dict[str, list[npt.NDArray[np.uint64]]] = {kind: [] for kind in (EXACT, SEMANTIC, RENUMBERED)}
        self._compared: dict[str, list[npt.NDArray[np.int64]]] = {"words": [], "content": []}
        self._signatures: dict[str, list[Signatures]] = {"words": [], "content": []}

    def add(self, traces: pandas.DataFrame) -> None:
        """Add a batch of Trace records.

        Args:
            traces: Has `id` (or `trace_id`) and `messages`, optionally `environment` and `fingerprint` (of the task).
        """
        for start in range(0, len(traces), ROWS_AT_ONCE):
            self._add(traces.iloc[start : start + ROWS_AT_ONCE])

    def _add(self, traces: pandas.DataFrame) -> None:
        names = traces["trace_id" if "trace_id" in traces else "id"].astype(str).tolist()
        self.add_sketches(names, sketches(traces))

    def add_sketches(self, ids: Sequence[str], found: Mapping[str, Sequence[Any]]) -> None:
        """Add a batch of traces by the results of `sketches`."""
        first = len(self._ids)
        self._ids += ids
        for kind in self._keys:
            self._keys[kind].append(np.asarray(found[kind], dtype=np.uint64))
        for name in self._signatures:
            telling = [place for place, signature in enumerate(found[name]) if isinstance(signature, bytes)]
            rows = np.frombuffer(b"".join(found[name][place] for place in telling), dtype=np.uint16)
            self._compared[name].append(np.array(telling, dtype=np.int64) + first)
            self._signatures[name].append(rows.reshape(len(telling), PERMUTATIONS))

    def clusters(self) -> pandas.DataFrame:
        """The clusters of two traces or more: `trace_id`, `cluster` (the id of its first trace) and `kind`.

        A trace is in at most one cluster of each kind.
        """
        import pandas

        ids = np.array(self._ids, dtype=object)
        frames = []
        for kind in KINDS:
            labels = self._labels(kind)
            sizes = np.bincount(labels, minlength=len(ids)) if len(ids) else np.zeros(0, dtype=np.int64)
            inside = np.flatnonzero(sizes[labels] > 1)
            frames.append(
                pandas.DataFrame({"trace_id": ids[inside], "cluster": ids[labels[inside]], "kind": kind}, dtype="str")
            )
        return pandas.concat(frames, ignore_index=True)[list(COLUMNS)]

    def copy_keys(self) -> pandas.Series:
        """A key of each trace by its id, equal for renumbered copies in any set of logs; "" without a logged goal."""
        import pandas

        keys = np.concatenate(self._keys[RENUMBERED]) if self._keys[RENUMBERED] else np.zeros(0, dtype=np.uint64)
        return pandas.Series([f"{key:016x}" if key else "" for key in keys.tolist()], index=self._ids, dtype="str")

    def _labels(self, kind: str) -> npt.NDArray[np.int64]:
        parts = Partition(len(self._ids))
        if kind != NEAR:
            if self._keys[kind]:
                parts.join_equal(np.concatenate(self._keys[kind]))
            return parts.labels
        for name, threshold in (("words", SIMILAR), ("content", SAME_CONTENT)):
            if not self._signatures[name]:
                continue
            places, rows = np.concatenate(self._compared[name]), np.concatenate(self._signatures[name])
            self._signatures[name] = [rows]
            self._compared[name] = [places]
            own = Partition(len(rows))
            similar_parts(rows, threshold, own)
            parts.join(places, places[own.labels])
        return parts.labels


def sketches(traces: pandas.DataFrame) -> dict[str, list[Any]]:
    """What is compared of each trace, by `SKETCH_COLUMNS`.

    Args:
        traces: As for `DuplicateFinder.add`.

    Returns:
        Keys of equality for the first three kinds, 0 where there is none, and the signatures of words and of content as
        bytes of uint16, None where they are not compared.
    """
    import orjson

    messages = [orjson.loads(text) for text in traces["messages"]]
    semantic, renumbered = _semantic_keys(traces)
    found: dict[str, list[Any]] = {EXACT: [_exact_key(one) for one in messages], SEMANTIC: semantic, RENUMBERED: renumbered}
    texts = {place: TaskText.of(messages[place], LONGEST) for place, key in enumerate(semantic) if not key}
    for name, members in (("words", TaskText.shingles), ("content", TaskText.content)):
        sets = [(place, members(text)) for place, text in texts.items()]
        telling = [(place, members) for place, members in sets if len(members) >= FEWEST_MEMBERS]
        found[name] = [None] * len(messages)
        rows = signatures([members for _, members in telling], PERMUTATIONS)
        for (place, _), row in zip(telling, rows, strict=True):
            found[name][place] = row.tobytes()
    return found


def describe_duplicates(clusters: pandas.DataFrame) -> dict[str, dict[str, int]]:
    """Counts for the report, by kind: `clusters`, `traces` in them, and traces beyond the first of each (`more_than_one`)."""
    report = {}
    for kind in KINDS:
        own = clusters[clusters["kind"] == kind]
        count = int(own["cluster"].nunique())
        report[kind] = {"clusters": count, "traces": len(own), "more_than_one": len(own) - count}
    return report


def _exact_key(messages: list[dict[str, Any]]) -> int:
    """Hash of the messages without the ids that tie replies to calls."""
    said = []
    for message in messages:
        called = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()]
        said.append([message["role"], message.get("content"), message.get("name"), called])
    return _hash(json.dumps(said, ensure_ascii=False, sort_keys=True))


def _semantic_keys(traces: pandas.DataFrame) -> tuple[list[int], list[int]]:
    """The keys of the goal states, as they are and with numbers masked; 0 for a trace without a goal state."""
    import orjson

    logged = traces["environment"].tolist() if "environment" in traces else [None] * len(traces)
    environments = [orjson.loads(text) if isinstance(text, str) else None for text in logged]
    goals = [_goal(environment) for environment in environments]
    given = traces["fingerprint"].tolist() if "fingerprint" in traces else [None] * len(traces)
    semantic = [
        _hash(name)
        if isinstance(name, str) and name and goal is not None
        else _hash(canonical_json(goal))
        if goal is not None
        else 0
        for name, goal in zip(given, goals, strict=True)
    ]
    return semantic, [_hash(json.dumps(_masked(goal), ensure_ascii=False)) if goal is not None else 0 for goal in goals]


def _goal(environment: Any) -> dict[str, Any] | None:
    """The logged environment without the prompt; None where only its name is left."""
    if not isinstance(environment, dict):
        return None
    goal = {name: value for name, value in environment.items() if name != "prompt"}
    return goal if len(goal) > 1 else None


def _masked(value: Any) -> Any:
    """A value with numbers masked, and objects sorted by what is left."""
    if isinstance(value, dict):
        return sorted(([_masked(key), _masked(part)] for key, part in value.items()), key=repr)
    if isinstance(value, list):
        return [_masked(part) for part in value]
    if isinstance(value, str):
        return _NUMBER.sub("#", value)
    return "#" if isinstance(value, int | float) and not isinstance(value, bool) else value


def _hash(text: str) -> int:
    """64 bits, never 0."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") or 1
