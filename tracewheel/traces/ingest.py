"""The stage that reads logs: files in, distinct traces without secrets out, and nothing lost on the way.

`ingest` makes a folder of all logs, the same bytes for the same logs. `ingest_new` adds to a folder what has come since,
and remembers in it how far it has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError, SecretError
from tracewheel.core.store import remove
from tracewheel.core.types import Trace, content_hash
from tracewheel.traces.archive import Archive, State, part_name, write_report
from tracewheel.traces.compression import is_compressed
from tracewheel.traces.files import find_files, skipped_files
from tracewheel.traces.ingested_folder import QUARANTINE_FILE, REPORT_FILE, TRACES_FOLDER
from tracewheel.traces.intake import Intake, Known
from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.ledger import Reading
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.detect import Detector
from tracewheel.traces.readers.tracewheel import parquet_pieces
from tracewheel.traces.redaction.redactor import Redactor, key_digest
from tracewheel.traces.redaction.survivors import check_stored
from tracewheel.traces.source import Source
from tracewheel.traces.spool import Spool

TRACES_FILE = TRACES_FOLDER
RECORDS_PER_COMMIT = 200_000
Watch = Callable[[int], None]

__all__ = ["QUARANTINE_FILE", "REPORT_FILE", "TRACES_FILE", "find_files", "ingest", "ingest_new"]


def ingest(config: IngestConfig, out: Path) -> dict[str, Any]:
    """Read all logs; write traces.parquet (a folder with one part), quarantine.jsonl and report.json into `out`.

    Every record that was read is kept, a duplicate, or in quarantine. A duplicate has the messages,
    starting point, session and user of an earlier trace, whatever its id and time. Secrets and personal data are taken
    out first, also of what goes to quarantine.

    Returns:
        The report: `read`, `kept`, `duplicates`, `quarantined`, `by_reason`, `by_format`, `redacted` (places by kind),
        and of what was kept `messages`, `tool_calls`, `tool_results`; `skipped` are files in folders that are no logs.

    Raises:
        DataError: a path names no readable file.
        SecretError: a secret that was found is still in what was to be stored.
    """
    redactor = Redactor(config.redaction)
    return _until_clean(redactor, lambda: _ingest_all(config, out, redactor))


def _ingest_all(config: IngestConfig, out: Path, redactor: Redactor) -> dict[str, Any]:
    files = find_files(config.paths)
    for leftover in (TRACES_FOLDER, QUARANTINE_FILE):
        remove(out / leftover)
    parts = out / TRACES_FOLDER
    parts.mkdir(parents=True, exist_ok=True)
    intake = Intake(parts / part_name(0), out / QUARANTINE_FILE, Known(), redactor)
    with Spool() as spool:
        reader = _Files(config, spool, intake)
        for name, path in files.items():
            reader.read(redactor.name(name), path)
        reader.finish()
    intake.close(part_needed=True)
    check_stored(redactor.learned, [intake.part], intake.quarantine)
    report = {
        **intake.counts.report(),
        "skipped": [redactor.name(name) for name in skipped_files(config.paths, files.values())],
    }
    write_report(out, report)
    return report


def ingest_new(
    config: IngestConfig,
    out: Path,
    *,
    full: bool = False,
    passing: dict[str, Path] | None = None,
    watch: Watch | None = None,
    records_per_commit: int = RECORDS_PER_COMMIT,
) -> dict[str, Any]:
    """Add to `out` what the logs hold beyond what earlier calls read: new files, and the new ends of files of lines.

    What has been read is committed now and then, so that a call that was killed is gone on with by the next. Only files
    of lines are committed within; spans are committed with the last file, as others of their traces may follow.

    Args:
        config: Which logs, and what to take out of them.
        out: The folder; it becomes its next state as a whole or stays as it was.
        full: Read everything again and replace what is in the folder.
        passing: More logs, by the names that records are to call them, which are read whole each time and not remembered.
        watch: Is told how many bytes of the logs have been read.
        records_per_commit: How many records may be lost by a kill.

    Returns:
        The report as `ingest` has it, with what this call did as `added`.

    Raises:
        DataError: a path names no readable file, or what was read before has changed.
        SecretError: a secret that was found is still in what was to be stored.
        InfrastructureError: another process is writing to the folder, or the disk is full.
    """
    archive, redactor = Archive(out), Redactor(config.redaction)
    found = find_files(config.paths, without=out)
    skipped = [redactor.name(name) for name in skipped_files(config.paths, found.values(), without=out)]
    settings = content_hash(config.redaction.model_dump(mode="json") | key_digest(config.redaction))
    began: list[_Commits] = []

    def attempt() -> dict[str, Any]:
        state = State(settings) if full else archive.load(settings)
        state.ledger.named = redactor.name
        plan = [(name, path, begin) for name, path in found.items() if (begin := _begin(state, path)) is not None]
        commits = _Commits(archive, state, redactor, skipped, keep=not full, earlier=began[0] if began else None)
        began.append(commits)
        with Spool() as spool:
            reader = _Files(config, spool, commits.intake, commits, records_per_commit, watch)
            for name, path, begin in plan:
                state.ledger.note(path, reader.read(redactor.name(name), path, begin))
            for name, path in (passing or {}).items():
                reader.read(redactor.name(name), path)
            reader.finish()
            return commits.commit(final=True)

    with archive.exclusive():
        archive.check_is_one()
        return _until_clean(redactor, attempt)


def _until_clean(redactor: Redactor, attempt: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of an attempt, and of another where a record held a secret that only a later one gave away."""
    while True:
        try:
            return attempt()
        except SecretError:
            if not redactor.look_for_learned():
                raise


def _begin(state: State, path: Path) -> tuple[int, int] | None:
    try:
        return state.ledger.where_to_begin(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


class _Commits:
    """The intake of an incremental ingest, and its commits: each adds a part, if traces came.

    Args:
        archive: The folder.
        state: What it holds.
        redactor: Takes out secrets, and has learned those that are looked for before a commit.
        skipped: Files that are no logs, for the report.
        keep: Whether what is in the folder stays.
        earlier: An earlier attempt of the same call, whose commits are this call's too.
    """

    def __init__(
        self,
        archive: Archive,
        state: State,
        redactor: Redactor,
        skipped: list[str],
        *,
        keep: bool,
        earlier: _Commits | None = None,
    ) -> None:
        self._archive, self.state, self._redactor, self._skipped = archive, state, redactor, skipped
        self._keep, self._base, self._first_part = keep, state.totals, state.parts
        self.intake = self._begin()
        self._first_byte = self.intake.quarantine_start
        if earlier:
            self._base, self._first_part, self._first_byte = earlier._base, earlier._first_part, earlier._first_byte

    def _begin(self) -> Intake:
        part, quarantine = self._archive.begin(self.state, keep=self._keep)
        return Intake(part, quarantine, self.state.known, self._redactor)

    def commit(self, *, final: bool = False) -> dict[str, Any]:
        """Make what was read part of the folder, and begin anew unless this is the end.

        Raises:
            SecretError: a secret that a trace gave away is in it without a sign; in the end, in any part of this call's.
        """
        wrote = self.intake.close(part_needed=final and not self.state.parts)
        parts = [self.intake.part]
        if final:
            parts += [self.intake.part.with_name(part_name(number)) for number in range(self._first_part, self.state.parts)]
        check_stored(self._redactor.learned, parts, self.intake.quarantine, self._first_byte)
        self.state.parts += wrote
        self.state.totals = self.state.totals + self.intake.counts
        added = self.state.totals - self._base
        report = {**self.state.totals.report(), "skipped": self._skipped, "added": added.report()}
        self._archive.commit(self.state, report)
        self._keep = True
        if not final:
            self.intake = self._begin()
        return report


class _Files:
    """Reads files into an intake, and commits between their lines."""

    def __init__(
        self,
        config: IngestConfig,
        spool: Spool,
        intake: Intake,
        commits: _Commits | None = None,
        records_per_commit: int = RECORDS_PER_COMMIT,
        watch: Watch | None = None,
    ) -> None:
        self._detector, self._spool, self._intake = Detector(config.format, spool), spool, intake
        self._commits, self._records_per_commit = commits, records_per_commit
        self._watch, self._bytes = watch or (lambda done: None), 0
        self._largest = config.largest_record_mib << 20

    def read(self, name: str, path: Path, begin: tuple[int, int] = (0, 1)) -> Reading:
        """Read a file from a byte and line on; says how far that went.

        Raises:
            DataError: it cannot be read.
        """
        try:
            if path.suffix.lower() == ".parquet":
                self._take(parquet_pieces(path), name)
                reading = Reading.of(path)
            else:
                reading = self._read_text(name, path, begin)
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
        self._bytes += reading.size
        self._watch(self._bytes)
        return reading

    def _read_text(self, name: str, path: Path, begin: tuple[int, int]) -> Reading:
        source = Source(path, begin, self._largest)
        grows = source.layout == "lines" and not is_compressed(path)
        last = self._take(self._with_commits(source, grows), name)
        if not (isinstance(last, Quarantined) and last.reason == "truncated"):
            source.take_last_line()
        return Reading.of(path, source.offset, source.line) if grows else Reading.of(path)

    def _take(self, pieces: Iterator[Piece], name: str) -> Trace | Quarantined | None:
        item = None
        for item in self._detector.read(pieces, name):
            self._intake.put(item)
        return item

    def _with_commits(self, source: Source, grows: bool) -> Iterator[Piece]:
        """The pieces of a file; when one is asked for, all that the earlier ones come to has been taken."""
        for number, piece in enumerate(source.pieces()):
            if number % 256 == 0:
                self._watch(self._bytes + (piece.offset if grows else 0))
                if grows and self._commits and self._spool.is_empty and piece.document == 0:
                    self._commit_before(source.path, piece)
            yield piece

    def _commit_before(self, path: Path, piece: Piece) -> None:
        assert self._commits
        if self._intake.counts.numbers["read"] >= self._records_per_commit:
            self._commits.state.ledger.note(path, Reading.of(path, piece.offset, piece.line, unfinished=True))
            self._commits.commit()
            self._intake = self._commits.intake

    def finish(self) -> None:
        """Take the traces that are made of spans."""
        for group, item in self._detector.spooled():
            self._intake.put_spans(item, group)
