"""The ingest stage: reads logs and stores distinct traces without secrets. Every record is accounted for.

`ingest` makes a folder from all logs; equal logs give equal bytes. `ingest_new` adds new records to a folder and stores in
it how far it has read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError
from tracewheel.core.fingerprint import digest_file
from tracewheel.core.processes import usable_cores
from tracewheel.core.store import remove
from tracewheel.core.types import Trace, content_hash
from tracewheel.traces.archive import Archive, ArchiveState, Progress, part_name, write_report
from tracewheel.traces.compression import Slice, check_whole, is_compressed, runs_of
from tracewheel.traces.discovery import find_files, find_logs, find_outcomes, skipped_files
from tracewheel.traces.forgotten import NOBODY, Forgotten
from tracewheel.traces.grown_sessions import GrownSessions, learn_again
from tracewheel.traces.ingested_folder import OUTCOMES_FILE, PLACES_FOLDER, QUARANTINE_FILE, REPORT_FILE, TRACES_FOLDER
from tracewheel.traces.intake import Intake, IntakeFiles
from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.late_outcomes import LateOutcomes
from tracewheel.traces.link_state import LinkState, earlier_places
from tracewheel.traces.log_file import LogFile
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.log_reader import LogReader
from tracewheel.traces.readers.plugins import own_readers, readers_digest
from tracewheel.traces.readers.reading import whole_file_pieces
from tracewheel.traces.redaction.pseudonyms import key_digest
from tracewheel.traces.redaction.redactor import Redactor
from tracewheel.traces.redaction.second_process import SecondProcess
from tracewheel.traces.redaction.survivors import mend_stored
from tracewheel.traces.snapshot import Snapshot, take_snapshot
from tracewheel.traces.spool import Spool
from tracewheel.traces.statements import Statement, read_outcomes
from tracewheel.traces.trial_results import TrialResult, TrialResults, with_result

TRACES_FILE = TRACES_FOLDER
TOO_MANY = "too many unreadable"
RECORDS_PER_COMMIT = 200_000
LARGE = 64 << 20  # bytes of logs from which on a second process, which takes a second to start, redacts
Watch = Callable[[int], None]

__all__ = ["QUARANTINE_FILE", "REPORT_FILE", "TRACES_FILE", "find_files", "ingest", "ingest_new"]


def ingest(config: IngestConfig, out: Path, snapshot: Snapshot | None = None, notes: Path | None = None) -> dict[str, Any]:
    """Read a snapshot of the logs; write traces.parquet (a folder of parts), quarantine.jsonl and report.json into `out`.

    A snapshot that continues an earlier ingest adds a part to its parts, which keep their names; they keep their bytes too,
    unless a session has grown or a new record reveals a secret in them.

    Every record is kept, a duplicate, or in quarantine. A duplicate has the messages, environment, session and user of an
    earlier trace and is no attempt of its own (`intake.py`). Secrets and personal data are redacted first, in quarantine too.

    Args:
        config: Which logs to read and what to redact.
        out: The folder to write to.
        snapshot: What to read, with places; by default the logs as they are now.
        notes: The folder to write the places of the traces to (`places.parquet`); by default they are not written.

    Returns:
        The report: `read`, `kept`, `duplicates`, `quarantined`, `by_reason`, `by_format`, `redacted` (places by kind),
        `messages`, `tool_calls` and `tool_results` of the kept traces, and `skipped` (files in folders that are not logs);
        `outcomes` where some were said later (`LateOutcomes.join`), with `unreadable` rows of their files; where an earlier
        ingest is continued, `added` has the counts of what is new.

    Raises:
        DataError: a path has no readable log file, or a file does not hold what is to be read of it any more.
    """
    redactor, snapshot = Redactor(config.redaction), snapshot or take_snapshot(config)
    for leftover in (TRACES_FOLDER, QUARANTINE_FILE, OUTCOMES_FILE):
        remove(out / leftover)
    state = LinkState.begin(snapshot, out)
    late = LateOutcomes.stored(out, redactor, snapshot.forgotten)
    plan = [(*place, *state.plan(log)) for log, place in zip(snapshot.files, snapshot.places, strict=True)]
    grown = GrownSessions(out / TRACES_FOLDER, {redactor.name(name) for name, _, _, before in plan if before})
    learn_again(config, redactor, snapshot, state.taught)
    part = state.next_part(out)
    places = earlier_places(snapshot, notes) / part.name if notes else None
    files = IntakeFiles(part, out / QUARANTINE_FILE, places)
    with Spool() as spool, SecondProcess(config.redaction) as second:
        is_large = _is_large((path for _, path, slices, _ in plan if slices), [before for *_, before in plan], config)
        intake = Intake(files, state.known, redactor, grown, snapshot.forgotten, second if is_large else None)
        reader = _FileReader(config, spool, intake)
        for name, path, slices, before in plan:
            for adjoining in runs_of(slices):
                stored_name = redactor.name(name)
                if reader.read(stored_name, path, before=before, slices=adjoining).is_session:
                    state.sessions.add(stored_name)
        reader.finish()
        state.parts += intake.close(part_needed=not state.parts)
    mend_stored(redactor, sorted((out / TRACES_FOLDER).iterdir()), intake.quarantine, 0, intake.counts)
    state.totals = state.totals - grown.drop(out / TRACES_FOLDER, intake.part) + intake.counts
    late.add(intake.said)
    outcomes = _join(late, out, config, snapshot.outcome_places, snapshot.outcomes)
    report = {**state.totals.report(), "skipped": list(snapshot.skipped), **outcomes}
    if snapshot.earlier:
        report["added"] = intake.counts.report()
    write_report(out, report)
    state.add_taught(intake.taught)
    state.save(snapshot)
    return report


def ingest_new(
    config: IngestConfig,
    out: Path,
    *,
    full: bool = False,
    watch: Watch | None = None,
    records_per_commit: int = RECORDS_PER_COMMIT,
    forgotten: Forgotten = NOBODY,
) -> dict[str, Any]:
    """Add to `out` what earlier calls have not read: new files, and lines appended to known files.

    Commits are made on the way, so that the next call continues after a kill. Only a file of lines is committed before its
    end; spans are committed after the last file, as other spans of their traces may follow.

    Args:
        config: Which logs to read and what to redact.
        out: The folder; each commit replaces it as a whole.
        full: Read everything again and replace the folder's contents.
        watch: Called with the number of bytes read so far.
        records_per_commit: How many records a kill may lose.
        forgotten: Whose records are left out; a folder that was made with another list is read anew with `full`.

    Returns:
        The report of `ingest`, with the counts of this call under `added`.

    Raises:
        DataError: a path has no readable log file, the part of a file that was read before has changed, or `out` holds what
            no ingest has written.
        InfrastructureError: another process is writing to the folder, or the disk is full.
    """
    archive, redactor = Archive(out), Redactor(config.redaction)
    found, outcome_files = find_logs(config, without=out), find_outcomes(config)
    skipped = skipped_files(config.paths, [*found.values(), *outcome_files.values()], without=out)
    redaction = config.redaction.model_dump(mode="json") | key_digest(config.redaction)
    settings = content_hash(redaction | readers_digest(config) | ({"forgotten": forgotten.digest} if forgotten else {}))
    with archive.exclusive(), Spool() as spool, SecondProcess(config.redaction) as second:
        state = ArchiveState(settings) if full else archive.load(settings)
        state.ledger.named, state.ledger.hidden = redactor.name, redactor.hidden_name
        plan = [(name, path, begin) for name, path in found.items() if (begin := _begin(state, path)) is not None]
        before = {name: state.ledger.read_before(path) for name, path, _ in plan}
        grown = GrownSessions(archive.path / TRACES_FOLDER, {redactor.name(name) for name, size in before.items() if size})
        late = LateOutcomes((), redactor, forgotten) if full else LateOutcomes.stored(archive.path, redactor, forgotten)
        outcomes = functools.partial(
            _join, late, config=config, files={redactor.name(name): path for name, path in outcome_files.items()}
        )
        helper = second if _is_large((path for _, path, _ in plan), before.values(), config) else None
        commits = _Commits(archive, state, redactor, skipped, grown, forgotten, late, outcomes, helper, keep=not full)
        reader = _FileReader(config, spool, commits.intake, commits, records_per_commit, watch)
        for name, path, begin in plan:
            state.ledger.note(path, reader.read(redactor.name(name), path, begin, before[name]))
        reader.finish()
        return commits.commit(final=True)


def _join(
    late: LateOutcomes,
    folder: Path,
    config: IngestConfig,
    files: Mapping[str, Path],
    digests: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Join what was said of the traces in a folder, by the files of outcomes too, and write it down there.

    Returns:
        `outcomes` for the report; nothing where nothing was said.

    Raises:
        DataError: a file cannot be read, or does not have its digest any more.
    """
    unreadable: list[str] = []
    for name, path in files.items():
        read = read_outcomes(path, name, dict(config.outcomes.fields.items()))
        if digests and digest_file(path) != digests[name]:
            raise DataError(f"{path}: has changed while a run reads it; start it again")
        late.add(read.statements)
        unreadable += read.unreadable
    late.save(folder)
    counts = late.join(folder, config.outcomes)
    if unreadable:
        counts["unreadable"] = {"rows": len(unreadable), "first": unreadable[0]}
    return {"outcomes": counts} if counts else {}


def _is_large(paths: Iterable[Path], before: Iterable[int], config: IngestConfig) -> bool:
    """Whether to redact in a second process: much is to be read, and no session is read again."""
    worth = config.redaction.enabled and usable_cores() > 1 and not any(before)
    return worth and sum(path.stat().st_size for path in paths) >= LARGE


def _begin(state: ArchiveState, path: Path) -> tuple[int, int] | None:
    try:
        return state.ledger.where_to_begin(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


class _Commits:
    """The intake of an incremental ingest, and its commits. Each commit with new traces adds a part.

    Args:
        archive: The folder.
        state: The folder's state.
        redactor: Redacts records; a commit redacts the secrets it has learned in what was stored before.
        skipped: Files that are not logs, for the report.
        grown: The stored traces of sessions that are read again.
        forgotten: Whose records are left out.
        late: What was said of traces.
        join: Joins that with the traces in a folder.
        second: Redacts beside this process, if given.
        keep: Whether to keep the folder's contents.
    """

    def __init__(
        self,
        archive: Archive,
        state: ArchiveState,
        redactor: Redactor,
        skipped: list[str],
        grown: GrownSessions,
        forgotten: Forgotten,
        late: LateOutcomes,
        join: Callable[[Path], dict[str, Any]],
        second: SecondProcess | None,
        *,
        keep: bool,
    ) -> None:
        self._archive, self.state, self._redactor, self._skipped = archive, state, redactor, skipped
        self._grown, self._forgotten, self._late, self._join, self._second = grown, forgotten, late, join, second
        self._keep, self._base, self._first_part = keep, state.totals, state.parts
        self.intake = self._begin()
        self._first_byte = self.intake.quarantine_start

    def _begin(self) -> Intake:
        part, quarantine = self._archive.begin(self.state, keep=self._keep)
        places = part.parents[1] / PLACES_FOLDER / part.name
        files = IntakeFiles(part, quarantine, places)
        return Intake(files, self.state.known, self._redactor, self._grown, self._forgotten, self._second)

    def commit(self, *, final: bool = False) -> dict[str, Any]:
        """Add the records read so far to the folder; unless `final`, begin the next part.

        Learned secrets are redacted in the new part; at the end, in all parts of this call.
        """
        wrote = self.intake.close(part_needed=final and not self.state.parts)
        parts = [self.intake.part]
        if final:
            parts += [self.intake.part.with_name(part_name(number)) for number in range(self._first_part, self.state.parts)]
        mend_stored(self._redactor, parts, self.intake.quarantine, self._first_byte, self.intake.counts)
        self.state.ledger.rename()
        self.state.parts += wrote
        replaced = self._grown.drop(self.intake.part.parent, self.intake.part)
        self._base = self._base - replaced
        self.state.totals = self.state.totals - replaced + self.intake.counts
        added = self.state.totals - self._base
        self._late.add(self.intake.said)
        folder = self.intake.part.parents[1]
        if not final:
            self._late.save(folder)
        report = {
            **self.state.totals.report(),
            "skipped": [self._redactor.name(name) for name in self._skipped],
            "added": added.report(),
            **(self._join(folder) if final else {}),
        }
        self._archive.commit(self.state, report)
        self._keep = True
        if not final:
            self.intake = self._begin()
        return report


class _FileReader:
    """Reads files into an intake, and commits between lines."""

    def __init__(
        self,
        config: IngestConfig,
        spool: Spool,
        intake: Intake,
        commits: _Commits | None = None,
        records_per_commit: int = RECORDS_PER_COMMIT,
        watch: Watch | None = None,
    ) -> None:
        self._reader, self._spool, self._intake = (
            LogReader(config.format, spool, own_readers(config.readers), config.fields, self._say),
            spool,
            intake,
        )
        self._commits, self._records_per_commit = commits, records_per_commit
        self._watch, self._bytes = watch or (lambda done: None), 0
        self._largest, self._expansion = config.largest_record_mib << 20, config.largest_expansion
        self._most_unreadable = config.most_unreadable
        self._trials = TrialResults()
        self._trial: TrialResult | None = None

    def read(
        self, name: str, path: Path, begin: tuple[int, int] = (0, 1), before: int = 0, slices: Sequence[Slice] = ()
    ) -> Progress:
        """Read a file from a byte and line on; returns the progress in it.

        Args:
            name: Its stored name.
            path: The file.
            begin: The byte and line.
            before: Of a session that is read again, the bytes whose damaged lines are in quarantine already.
            slices: Read these, which adjoin, instead of everything from `begin` on.

        Raises:
            DataError: it cannot be read, or does not hold its slices.
        """
        self._trial = self._trials.of(path)
        begin = (slices[0].begin, slices[0].line) if slices else begin
        try:
            if (pieces := whole_file_pieces(path, self._largest, self._expansion)) is not None:
                self._take(pieces, name)
                check_whole(path, slices)
                progress = Progress.of(path)
            else:
                progress = self._read_text(LogFile(path, begin, self._largest, slices, self._expansion), name, before)
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
        self._bytes += progress.size
        self._watch(self._bytes)
        return progress

    def _say(self, statement: Statement) -> None:
        self._intake.said.append(statement)

    def _read_text(self, log: LogFile, name: str, before: int) -> Progress:
        path, grows = log.path, log.layout == "lines" and not is_compressed(log.path)
        last = self._take(self._with_commits(log, grows), name, before)
        if isinstance(last, Quarantined) and last.reason == TOO_MANY:
            log.offset, log.line = path.stat().st_size, last.line
        elif not (isinstance(last, Quarantined) and last.reason == "truncated"):
            log.take_last_line()
        progress = Progress.of(path, log.offset, log.line) if grows else Progress.of(path)
        return replace(progress, is_session=self._reader.sessions.in_file)

    def _take(self, pieces: Iterator[Piece], name: str, before: int = 0) -> Trace | Quarantined | None:
        item, unreadable = None, 0
        for number, item in enumerate(self._reader.read(pieces, name), 1):
            unreadable += isinstance(item, Quarantined)
            # A few bytes may stand for a hundred million records.
            if isinstance(item, Quarantined) and self._most_unreadable < unreadable > number // 2:
                detail = f"{unreadable} of the first {number} records; the rest of the file is not read"
                item = Quarantined(name, item.line, TOO_MANY, detail, b"", item.offset)
                self._intake.put(item)
                return item
            if not (isinstance(item, Quarantined) and item.offset < before):
                self._intake.put(with_result(item, self._trial), self._reader.origin(name))
        return item

    def _with_commits(self, log: LogFile, grows: bool) -> Iterator[Piece]:
        """The pieces of a file. When the caller asks for the next piece, it has taken every record of the earlier ones."""
        for number, piece in enumerate(log.pieces()):
            if number % 256 == 0:
                self._watch(self._bytes + (piece.offset if grows else 0))
                if (
                    grows
                    and self._commits
                    and self._spool.is_empty
                    and piece.document == 0
                    and not self._reader.sessions.in_file
                ):
                    self._commit_before(log.path, piece)
            yield piece

    def _commit_before(self, path: Path, piece: Piece) -> None:
        assert self._commits
        if self._intake.counts.numbers["read"] >= self._records_per_commit:
            self._commits.state.ledger.note(path, Progress.of(path, piece.offset, piece.line, unfinished=True))
            self._commits.commit()
            self._intake = self._commits.intake

    def finish(self) -> None:
        """Take the traces made of spans."""
        for group, item in self._reader.spooled():
            self._intake.put_spans(item, group, self._reader.origin(""))
