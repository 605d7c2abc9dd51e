"""The ingest stage: reads logs and stores distinct traces without secrets. Every record is accounted for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError
from tracewheel.core.fingerprint import digest_file
from tracewheel.core.processes import usable_cores
from tracewheel.core.store import remove
from tracewheel.traces.compression import Slice, check_whole, is_compressed, runs_of
from tracewheel.traces.discovery import find_files
from tracewheel.traces.grown_sessions import GrownSessions, learn_again
from tracewheel.traces.ingested_folder import OUTCOMES_FILE, QUARANTINE_FILE, REPORT_FILE, TRACES_FOLDER
from tracewheel.traces.intake import Intake, IntakeFiles
from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.late_outcomes import LateOutcomes
from tracewheel.traces.link_state import LinkState, earlier_places
from tracewheel.traces.log_file import LogFile
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.log_reader import LogReader
from tracewheel.traces.readers.plugins import own_readers
from tracewheel.traces.readers.reading import whole_file_pieces
from tracewheel.traces.redaction.redactor import Redactor
from tracewheel.traces.redaction.second_process import SecondProcess
from tracewheel.traces.redaction.survivors import mend_stored
from tracewheel.traces.snapshot import Snapshot, take_snapshot
from tracewheel.traces.spool import Spool
from tracewheel.traces.statements import read_outcomes
from tracewheel.traces.trial_results import TrialResult, TrialResults, with_result

TRACES_FILE = TRACES_FOLDER
TOO_MANY = "too many unreadable"
LARGE = 64 << 20  # bytes of logs from which on a second process, which takes a second to start, redacts
Watch = Callable[[int], None]

__all__ = ["QUARANTINE_FILE", "REPORT_FILE", "TRACES_FILE", "find_files", "ingest"]


def ingest(
    config: IngestConfig,
    out: Path,
    snapshot: Snapshot | None = None,
    notes: Path | None = None,
    *,
    redactor: Redactor | None = None,
    watch: Watch | None = None,
) -> dict[str, Any]:
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
        redactor: What redacts; afterwards it knows the secrets that the logs revealed.
        watch: Called with the number of bytes read so far.

    Returns:
        The report: `read`, `kept`, `duplicates`, `quarantined`, `by_reason`, `by_format`, `redacted` (places by kind),
        `messages`, `tool_calls` and `tool_results` of the kept traces, and `skipped` (files in folders that are not logs);
        `outcomes` where some were said later (`LateOutcomes.join`), with `unreadable` rows of their files; where an earlier
        ingest is continued, `added` has the counts of what is new.

    Raises:
        DataError: a path has no readable log file, or a file does not hold what is to be read of it any more.
    """
    redactor, snapshot = redactor or Redactor(config.redaction), snapshot or take_snapshot(config)
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
        reader = _FileReader(config, spool, intake, watch)
        for name, path, slices, before in plan:
            for adjoining in runs_of(slices):
                stored_name = redactor.name(name)
                if reader.read(stored_name, path, adjoining, before):
                    state.sessions.add(stored_name)
        reader.finish()
        state.parts += intake.close(part_needed=not state.parts)
    mend_stored(redactor, sorted((out / TRACES_FOLDER).iterdir()), intake.quarantine, 0, intake.counts)
    state.totals = state.totals - grown.drop(out / TRACES_FOLDER, intake.part) + intake.counts
    late.add(intake.said)
    outcomes = _join(late, out, config, snapshot.outcome_places, snapshot.outcomes)
    report = {**state.totals.report(), "skipped": [redactor.name(name) for name in snapshot.skipped], **outcomes}
    if snapshot.earlier:
        report["added"] = intake.counts.report()
    (out / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    state.add_taught(intake.taught)
    state.save(snapshot, redactor.name)
    return report


def _join(
    late: LateOutcomes,
    folder: Path,
    config: IngestConfig,
    files: Mapping[str, Path],
    digests: Mapping[str, str],
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
        if digest_file(path) != digests[name]:
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


class _FileReader:
    """Reads files into an intake."""

    def __init__(self, config: IngestConfig, spool: Spool, intake: Intake, watch: Watch | None) -> None:
        self._reader = LogReader(config.format, spool, own_readers(config.readers), config.fields, intake.said.append)
        self._intake, self._watch, self._bytes = intake, watch or (lambda done: None), 0
        self._largest, self._expansion = config.largest_record_mib << 20, config.largest_expansion
        self._most_unreadable = config.most_unreadable
        self._trials = TrialResults()

    def read(self, name: str, path: Path, slices: Sequence[Slice], before: int) -> bool:
        """Read adjoining slices of a file; returns whether they are one session.

        Args:
            name: Its stored name.
            path: The file.
            slices: What to read.
            before: Of a session that is read again, the bytes whose damaged lines are in quarantine already.

        Raises:
            DataError: it cannot be read, or does not hold its slices.
        """
        trial, is_session = self._trials.of(path), False
        try:
            if (pieces := whole_file_pieces(path, self._largest, self._expansion)) is not None:
                self._take(pieces, name, trial)
                check_whole(path, slices)
            else:
                log = LogFile(path, (slices[0].begin, slices[0].line), self._largest, slices, self._expansion)
                self._take(self._watched(log), name, trial, before)
                is_session = self._reader.sessions.in_file
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
        self._bytes += slices[-1].end
        self._watch(self._bytes)
        return is_session

    def _take(self, pieces: Iterator[Piece], name: str, trial: TrialResult | None, before: int = 0) -> None:
        unreadable = 0
        for number, item in enumerate(self._reader.read(pieces, name), 1):
            unreadable += isinstance(item, Quarantined)
            # A few bytes may stand for a hundred million records.
            if isinstance(item, Quarantined) and self._most_unreadable < unreadable > number // 2:
                detail = f"{unreadable} of the first {number} records; the rest of the file is not read"
                self._intake.put(Quarantined(name, item.line, TOO_MANY, detail, b"", item.offset))
                return
            if not (isinstance(item, Quarantined) and item.offset < before):
                self._intake.put(with_result(item, trial), self._reader.origin(name))

    def _watched(self, log: LogFile) -> Iterator[Piece]:
        """The pieces of a file; says how far it has read."""
        grows = log.layout == "lines" and not is_compressed(log.path)
        for number, piece in enumerate(log.pieces()):
            if number % 256 == 0:
                self._watch(self._bytes + (piece.offset if grows else 0))
            yield piece

    def finish(self) -> None:
        """Take the traces made of spans."""
        for group, item in self._reader.spooled():
            self._intake.put_spans(item, group, self._reader.origin(""))
