"""The statements of an ingested folder, and what they make of its traces.

A trace with a statement has the outcome that counts now as if it had been logged, and in `info.late_outcomes` what was logged,
the latest value of each kind, and whose statement counts. All of it is worked out anew from what is stored at the end of each
ingest, so a kill, or a file that is read again, changes nothing.

A session may have several conversations: what is said of it is for the latest that had begun by then, and for no agent's that
another one called.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from tracewheel.config.ingest import OUTCOME_KINDS, OutcomesConfig
from tracewheel.core.log_formats import REQUESTS
from tracewheel.core.store import PARTIAL
from tracewheel.traces.forgotten import Forgotten
from tracewheel.traces.ingested_folder import LATE, OUTCOMES_FILE, TRACES_FOLDER
from tracewheel.traces.parquet import json_of
from tracewheel.traces.readers.tracewheel import FORMAT as SERVED
from tracewheel.traces.redaction.redactor import Redactor
from tracewheel.traces.statements import BY_ID, BY_SESSION, VERIFIED, Statement, stored_statements, write_statements

if TYPE_CHECKING:
    import pyarrow

COLUMNS = ["id", "session", "created", "outcome", "format", "info"]
NAMED = {BY_ID: "trace", BY_SESSION: "session"}  # what `Forgotten` calls them
NO_OUTCOME = "without an outcome"
SUCCESS = 0.5  # where two kinds are compared
DAY = 86_400.0


@dataclass
class _Candidate:
    """A stored trace of which something may have been said."""

    id: str
    part: Path
    session: str | None
    created: float | None
    outcome: float | None
    earlier: dict[str, Any] | None
    is_part: bool
    responses: list[str]
    client: str | None
    said: list[Statement]

    @classmethod
    def of(cls, row: Mapping[str, Any], part: Path) -> _Candidate:
        info: dict[str, Any] = orjson.loads(row["info"])
        called = bool(info.get("side_chain") or info.get("parent"))
        responses = info.get("responses") if row["format"] == REQUESTS else None
        listed = responses if isinstance(responses, list) else []
        created, earlier = _moment(row["created"]), info.get(LATE)
        ours = isinstance(earlier, dict) and isinstance(earlier.get("logged", ""), float | None)
        client = info.get("client") if row["format"] == SERVED else None
        logged = earlier if ours else None
        return cls(row["id"], part, row["session"], created, row["outcome"], logged, called, listed, client, [])

    @property
    def logged(self) -> float | None:
        """The outcome that the log has with the conversation."""
        return self.earlier["logged"] if self.earlier else self.outcome


@dataclass(frozen=True)
class _Joined:
    """What the statements make of a trace."""

    outcome: float | None
    info: dict[str, Any] | None
    corrected: bool = False
    too_late: int = 0


class LateOutcomes:
    """The statements of an ingested folder, in the order in which they came.

    Args:
        statements: Those that are stored.
        redactor: Hides what is in keys as in the names of traces.
        forgotten: Of whom nothing is kept.
    """

    def __init__(self, statements: Iterable[Statement], redactor: Redactor, forgotten: Forgotten) -> None:
        self._of: dict[tuple[str, str], list[Statement]] = {}
        self._redactor, self._forgotten = redactor, forgotten
        self._timed: set[tuple[Any, ...]] = set()
        self._last: dict[tuple[Any, ...], float] = {}
        self.new = 0
        for one in statements:
            self._take(one)

    @classmethod
    def stored(cls, folder: Path, redactor: Redactor, forgotten: Forgotten) -> LateOutcomes:
        """Those of an ingested folder.

        Raises:
            DataError: the folder's file is damaged.
        """
        return cls(stored_statements(folder / OUTCOMES_FILE), redactor, forgotten)

    def add(self, statements: Iterable[Statement]) -> None:
        """Take statements; one that is only repeated is not new.

        One with a time repeats an equal one. One without repeats what its file has said last of the same conversation.
        """
        for one in map(self._hidden, statements):
            if self._forgotten.covers_named(**{NAMED[one.by]: one.key}):
                continue
            self.new += self._take(one)

    def _take(self, one: Statement) -> bool:
        """Take a statement; returns whether it is no repetition."""
        about = (one.by, one.key, one.kind, one.client)
        if one.said is None:
            if self._last.get((*about, one.file)) == one.value:
                return False
            self._last[*about, one.file] = one.value
        else:
            if (*about, one.said, one.value) in self._timed:
                return False
            self._timed.add((*about, one.said, one.value))
        self._of.setdefault((one.by, one.key), []).append(one)
        return True

    def _hidden(self, one: Statement) -> Statement:
        return one._replace(key=self._redactor.identity(one.by, one.key))

    def save(self, folder: Path) -> None:
        """Write them into a folder; the secrets that later records revealed are hidden in them, too."""
        listed = [one for known in self._of.values() for one in known]
        write_statements(folder / OUTCOMES_FILE, list(map(self._hidden, listed)) if self._redactor.learned else listed)

    def join(self, folder: Path, config: OutcomesConfig) -> dict[str, Any]:
        """Give the traces of a folder the outcomes that count.

        Returns:
            The counts: `said`, of which `new` and `waiting` for their conversation; `traces` that have some; `corrected`, those
            where a later statement of the kind that counts has another value than an earlier; `kinds` of the statements;
            `known`: all traces by what their outcome is now, `logged` with them, of a kind, or none; where there are some,
            `too_late` and the `agreement` of weaker kinds with the outcome.
        """
        if not self._of:
            return {}
        candidates = list(self._candidates(folder))
        waiting = self._share_out(candidates)
        counts: Counter[str] = Counter()
        by: Counter[str] = Counter()
        agreement: dict[str, dict[str, int]] = {}
        changes: dict[Path, dict[str, _Joined]] = {}
        for one in candidates:
            joined = decide(one.logged, one.created, one.said, config)
            counts.update(traces=bool(one.said), corrected=joined.corrected, too_late=joined.too_late)
            if joined.info and joined.outcome is not None:
                _compare(joined.info, joined.outcome, agreement)
                by.update([joined.info["by"]] if "file" in joined.info else [])
            if (joined.outcome, joined.info) != (one.outcome, one.earlier):
                changes.setdefault(one.part, {})[one.id] = joined
        for part, changed in changes.items():
            _rewrite(part, changed)
        kinds = Counter(one.kind for known in self._of.values() for one in known)
        return {
            "said": kinds.total(),
            "new": self.new,
            "waiting": waiting,
            **{name: counts[name] for name in ("traces", "corrected")},
            "kinds": {kind: kinds[kind] for kind in OUTCOME_KINDS if kinds[kind]},
            "known": _known(folder, by),
            **({"too_late": counts["too_late"]} if counts["too_late"] else {}),
            **({"agreement": agreement} if agreement else {}),
        }

    def _candidates(self, folder: Path) -> Iterator[_Candidate]:
        """The traces that a statement may be about, in the order of the parts; no more than a row group is in memory."""
        import pyarrow
        import pyarrow.compute as compute
        import pyarrow.parquet

        keys = pyarrow.array(sorted({key for _, key in self._of}), pyarrow.string())
        has_ids = any(by == BY_ID for by, _ in self._of)
        for part in sorted((folder / TRACES_FOLDER).glob("part-*.parquet")):
            with pyarrow.parquet.ParquetFile(part, pre_buffer=False) as file:
                for group in range(file.num_row_groups):
                    names = file.read_row_group(group, columns=["id", "session", "format"])
                    meant = compute.or_(compute.is_in(names["id"], keys), compute.is_in(names["session"], keys))
                    if has_ids:
                        meant = compute.or_(meant, compute.equal(names["format"], REQUESTS))
                    if compute.any(meant).as_py():
                        rows = file.read_row_group(group, columns=COLUMNS).filter(meant)
                        yield from (_Candidate.of(row, part) for row in rows.to_pylist())

    def _share_out(self, candidates: list[_Candidate]) -> int:
        """Give each candidate the statements about it; returns how many statements are about none."""
        named, answered, sessions = _index(candidates)
        waiting = 0
        for (by, key), known in self._of.items():
            # Of requests that were read piece by piece, the longest conversation with the response is the one that stays.
            exact = answered.get(key) or named.get(key)
            for one in known:
                whose = (
                    each for each in sessions.get(key, ()) if None in (one.client, each.client) or one.client == each.client
                )
                of_session = _latest(whose, _moment(one.said))
                found = exact or of_session if by == BY_ID else of_session or exact
                if found is None:
                    waiting += 1
                else:
                    found.said.append(one)
        return waiting


def _index(
    candidates: list[_Candidate],
) -> tuple[dict[str, _Candidate], dict[str, _Candidate], dict[str, list[_Candidate]]]:
    """The candidates by id, by the ids of their earlier responses, and by session."""
    named: dict[str, _Candidate] = {}
    answered: dict[str, _Candidate] = {}
    sessions: dict[str, list[_Candidate]] = {}
    for one in candidates:
        named[one.id] = one
        for response in one.responses:
            if response not in answered or len(answered[response].responses) < len(one.responses):
                answered[response] = one
        if one.session is not None and not one.is_part:
            sessions.setdefault(one.session, []).append(one)
    return named, answered, sessions


def _latest(candidates: Iterable[_Candidate], said: float | None) -> _Candidate | None:
    """The conversation of a session that had begun last by some time; of those without times, the last that was read."""
    begun = [one for one in candidates if said is None or one.created is None or one.created <= said]
    return max(reversed(begun), key=lambda one: one.created or 0.0, default=None)


def decide(logged: float | None, created: float | None, said: Iterable[Statement], config: OutcomesConfig) -> _Joined:
    """The outcome of a trace.

    Args:
        logged: What the log has with the conversation: a `verified` outcome that was said first.
        created: When it began, in seconds since 1970.
        said: The statements about it, in the order in which they came. One without a time is as late as the one before it.
        config: What counts.
    """
    latest: dict[str, tuple[float, float, Statement | None]] = {} if logged is None else {VERIFIED: (0.0, logged, None)}
    values: dict[str, set[float]] = {} if logged is None else {VERIFIED: {logged}}
    limits: dict[str, float] = dict(config.success_from.items())
    too_late = 0
    for one in said:
        before = latest.get(one.kind)
        moment = _moment(one.said)
        if moment is None:
            moment = before[0] if before else 0.0
        elif created is not None and config.max_age_days is not None and moment - created > config.max_age_days * DAY:
            too_late += 1
            continue
        limit = limits.get(one.kind)
        value = one.value if limit is None else float(one.value >= limit)
        values.setdefault(one.kind, set()).add(value)
        if before is None or moment >= before[0]:
            latest[one.kind] = (moment, value, one)
    kind = next((each for each in config.precedence if each in latest), None)
    if all(one is None for _, _, one in latest.values()):
        return _Joined(logged, None, too_late=too_late)
    info: dict[str, Any] = {"logged": logged, "kinds": {each: latest[each][1] for each in OUTCOME_KINDS if each in latest}}
    if kind is None:
        return _Joined(logged, info, too_late=too_late)
    _, outcome, source = latest[kind]
    info["by"] = kind
    if source is not None:
        info |= {"said": source.said, "file": source.file, "line": source.line}
    return _Joined(outcome, info, len(values[kind]) > 1, too_late)


def _known(folder: Path, by: Counter[str]) -> dict[str, int]:
    """All traces by what their outcome is.

    Args:
        by: Those with an outcome that was said later, by its kind.
    """
    import pyarrow.parquet

    total = without = 0
    for part in (folder / TRACES_FOLDER).glob("part-*.parquet"):
        outcomes = pyarrow.parquet.read_table(part, columns=["outcome"])["outcome"]
        total, without = total + len(outcomes), without + outcomes.null_count
    of_kinds: dict[str, int] = {kind: by[kind] for kind in OUTCOME_KINDS if by[kind]}
    return {"logged": total - without - by.total(), **of_kinds, NO_OUTCOME: without}


def _compare(info: Mapping[str, Any], outcome: float, agreement: dict[str, dict[str, int]]) -> None:
    """Count where a kind that does not count agrees with the outcome."""
    for kind, value in info["kinds"].items():
        if kind != info.get("by"):
            counts = agreement.setdefault(kind, {"both": 0, "agree": 0})
            counts["both"] += 1
            counts["agree"] += (value >= SUCCESS) == (outcome >= SUCCESS)


def _rewrite(part: Path, changed: Mapping[str, _Joined]) -> None:
    """Write a part anew with other outcomes; parts are linked, so their bytes never change in place."""
    import pyarrow.parquet

    written = part.with_name(f"{PARTIAL}{part.name}")
    with (
        pyarrow.parquet.ParquetFile(part, pre_buffer=False) as file,
        pyarrow.parquet.ParquetWriter(written, file.schema_arrow, compression="zstd") as writer,
    ):
        for group in range(file.num_row_groups):
            writer.write_table(_with_outcomes(file.read_row_group(group), changed))
    os.replace(written, part)


def _with_outcomes(table: pyarrow.Table, changed: Mapping[str, _Joined]) -> pyarrow.Table:
    import pyarrow

    ids = table["id"].to_pylist()
    if not any(name in changed for name in ids):
        return table
    columns = {name: table[name].to_pylist() for name in ("outcome", "info")}
    for at, name in enumerate(ids):
        if (joined := changed.get(name)) is not None:
            columns["outcome"][at] = joined.outcome
            info = {key: value for key, value in orjson.loads(columns["info"][at]).items() if key != LATE}
            columns["info"][at] = json_of(info | ({LATE: joined.info} if joined.info else {})).decode()
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        table = table.set_column(place, field, pyarrow.array(values, type=field.type))
    return table


def _moment(text: str | None) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None
