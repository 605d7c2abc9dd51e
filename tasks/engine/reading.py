"""What a run reads: the snapshot of an incomplete run that can be resumed, or one of the logs as they are now.

A new snapshot continues the newest ingest whose slices are all still in the logs. `work_dir/ingested.json` lists the last
ingests that were accepted, the newest last: the name and digest of the store's entry, and the folder in `ingested/` with what
it left for its successor.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from tasks.engine.drivers import DirectDriver
from tasks.engine.inputs import identify, identify_settings, input_digests, other_inputs
from tasks.engine.run import Reporter, Run
from tasks.stages.ingest import ingest_traces
from tracewheel.config import RetrainConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.run_record import RunRecord, find_runs
from tracewheel.core.run_state import SKIPPED
from tracewheel.core.store import Entry, Store, remove, write_whole
from tracewheel.operations.batches import FOLDER as BATCHES
from tracewheel.operations.batches import SNAPSHOT_FILE, held_slices
from tracewheel.traces.discovery import are_empty, find_logs
from tracewheel.traces.forgotten import read_forgotten
from tracewheel.traces.link_state import read_state
from tracewheel.traces.snapshot import Earlier, Links, Snapshot, content_of, placed, take_snapshot

CHAIN_FILE, FOLDER, LAST_FILE = "ingested.json", "ingested", "logs.json"
LINKS_KEPT = 3
LINK_FIELDS = ("entry", "digest", "state")


def begin_run(
    config: RetrainConfig, reporter: Reporter | None = None, driver: DirectDriver | None = None, *, fresh: bool = False
) -> Run:
    """The run of a profile: the last one, if it is not complete and can be resumed, or one on the logs as they are now.

    Args:
        config: The profile.
        reporter: Shows its progress.
        driver: Obtains the results of stages.
        fresh: Whether to begin a run on the logs as they are now in any case.

    Raises:
        ConfigError: the profile names no logs, no environment or no base model.
        DataError: a trace file, the base model, the recording or a benchmark is missing.
    """
    config.require_run()
    settings, held = identify_settings(config, other_inputs(config)), held_slices(config.work_dir)
    says: list[str] = []
    record = None if fresh else find_run(config, settings)
    snapshot = _resumed(config, record, held, says) if record is not None and _is_unfinished(record) else None
    resumed = record.run_id if record is not None and snapshot is not None else ""
    if snapshot is None:
        taken = replace(take_snapshot(config.ingest, _last(config), held), forgotten=read_forgotten(config.work_dir))
        snapshot = _linked(config, taken, says)
        for name, size in snapshot.unfinished.items():
            says.append(f"{name} ends within a line: its last {size} bytes wait for a later run")
    inputs = input_digests(config, snapshot)
    run = Run.on(config, resumed or identify(config, inputs), reporter, driver)
    for sentence in says:
        run.reporter.say(sentence)
    return replace(run, snapshot=snapshot, inputs=inputs, settings=settings)


def waits_for_logs(config: RetrainConfig) -> bool:
    """Whether no run has begun and the log folders are empty: a deployment may be there before the first log."""
    return are_empty(config.ingest.paths) and not find_runs(Path(config.work_dir))


def last_run(config: RetrainConfig) -> Run:
    """The last run of a profile that has begun, complete or not, whatever the logs are now; else `begin_run`.

    Raises:
        ConfigError: the profile names no logs, no environment or no base model.
        DataError: the base model, the recording or a benchmark is missing.
    """
    config.require_run()
    settings = identify_settings(config, other_inputs(config))
    record = find_run(config, settings)
    if record is None or record.snapshot is None:
        return begin_run(config)
    snapshot = Snapshot.from_record(record.snapshot)
    run = Run.on(config, record.run_id)
    return replace(run, snapshot=snapshot, inputs=input_digests(config, snapshot), settings=settings)


def find_run(config: RetrainConfig, settings: str) -> RunRecord | None:
    """The latest run in the work folder with these settings, whatever it has read."""
    runs = find_runs(Path(config.work_dir))
    return next((record for record in runs if (record.snapshot or {}).get("settings") == settings), None)


def _is_unfinished(record: RunRecord) -> bool:
    """Whether a run is worth resuming: it ended before its verdict, and does not fail at one place again and again."""
    return record.summary is None and record.state.read().get("state") != SKIPPED and record.state.gives_up() is None


def _resumed(config: RetrainConfig, record: RunRecord, held: Collection[str], says: list[str]) -> Snapshot | None:
    """The snapshot of a run, None with a sentence where it cannot be read any more."""
    stored = Snapshot.from_record(record.snapshot or {})
    started = record.lineage["started"]
    if any(part.sha256 in held for log in stored.files for part in log.slices):
        says.append(f"run {record.run_id}, begun {started}, is not resumed: a batch that it reads is held now")
        return None
    if stored.forgotten != read_forgotten(config.work_dir):
        says.append(f"run {record.run_id}, begun {started}, is not resumed: somebody was forgotten since")
        return None
    found = placed(stored, config.ingest)
    if found is None:
        says.append(
            f"run {record.run_id}, begun {started}, is not complete and cannot be resumed: the logs no longer hold what it"
            " reads; another run begins"
        )
        return None
    if _has_grown(config, found):
        says.append(
            f"resumes run {record.run_id} on the logs as of {started}; what is newer is for the next one"
            " (--fresh begins it now)"
        )
    return _relinked(config, found, says)


def _has_grown(config: RetrainConfig, snapshot: Snapshot) -> bool:
    ends = {path: log.all[-1].end for log, (_, path) in zip(snapshot.files, snapshot.places, strict=True)}
    return any(path.stat().st_size > ends.get(path, 0) for path in find_logs(config.ingest).values())


def _linked(config: RetrainConfig, snapshot: Snapshot, says: list[str]) -> Snapshot:
    """A new snapshot, as continued from the newest ingest that fits."""
    made_by, why = _made_by(config), ""
    for link in reversed(_chain(config)):
        folder = _folder(config) / link["state"]
        state = read_state(folder)
        if state is None or not link["state"].endswith(made_by):
            why = why or ("what it left is lost" if state is None else "it was made with other settings or code of ingest")
            continue
        covered = Snapshot.from_record(state["snapshot"])
        if covered.forgotten != snapshot.forgotten:
            why = why or "somebody was forgotten since"
            continue
        if not covered.contents <= snapshot.contents:
            why = why or "the logs no longer hold all that it read, or some of it is held"
            continue
        if _stored(config, link) is None:
            why = why or f"{link['entry']} is lost or damaged"
            continue
        if covered.contents == snapshot.contents and covered.outcomes == snapshot.outcomes:
            places, outcomes = _places(covered, snapshot), snapshot.outcome_places
            same = replace(covered, unfinished=snapshot.unfinished, places=places, outcome_places=outcomes)
            return _relinked(config, same, says)
        return _with_links(config, snapshot.after(Earlier(link["entry"], link["digest"]), covered.contents), link)
    if why:
        says.append(f"everything is ingested anew: no earlier ingest can be continued ({why})")
    return _with_links(config, snapshot, None)


def _places(covered: Snapshot, snapshot: Snapshot) -> tuple[tuple[str, Path], ...]:
    """Where a snapshot lies that has the same contents as another."""
    lies = {content_of(part): place for log, place in zip(snapshot.files, snapshot.places, strict=True) for part in log.slices}
    return tuple((log.name, lies[content_of(log.slices[0])][1]) if log.slices else ("", Path()) for log in covered.files)


def _relinked(config: RetrainConfig, snapshot: Snapshot, says: list[str]) -> Snapshot:
    """A snapshot of earlier with the ingest that it continues; without, where that is gone and is needed."""
    if snapshot.earlier is None:
        return _with_links(config, snapshot, None)
    links = {link["entry"]: link for link in _chain(config)}
    link = links.get(snapshot.earlier.entry)
    if link and read_state(_folder(config) / link["state"]) and _stored(config, link):
        return _with_links(config, snapshot, link)
    run = Run.on(config, "")
    if run.store.find("ingest", ingest_traces.key(run, {"snapshot": snapshot})):
        return snapshot
    says.append(f"everything is ingested anew: {snapshot.earlier.entry}, which the run began with, is lost or damaged")
    return _with_links(config, snapshot.after(None), None)


def _with_links(config: RetrainConfig, snapshot: Snapshot, link: dict[str, str] | None) -> Snapshot:
    folder = _folder(config)
    earlier = (Path(config.work_dir) / "store" / link["entry"], folder / link["state"]) if link else (None, None)
    return replace(snapshot, links=Links(folder / f"{snapshot.digest}-{_made_by(config)}", folder / LAST_FILE, *earlier))


def accept(run: Run, traces: Entry) -> None:
    """Note an ingest, for the next one to continue it; not one whose state is lost, as in a store that was copied alone."""
    if run.snapshot.links is None or not run.snapshot.links.state.is_dir():
        return
    link = {"entry": traces.path.name, "digest": traces.digest, "state": run.snapshot.links.state.name}
    if link in (known := _chain(run.config)):
        return
    links = [*known, link][-LINKS_KEPT:]
    write_whole(Path(run.config.work_dir) / CHAIN_FILE, json.dumps(links, indent=2) + "\n")
    kept = {each["state"] for each in links}
    for folder in _folder(run.config).iterdir():
        if folder.is_dir() and folder.name not in kept:
            remove(folder)


def _made_by(config: RetrainConfig) -> str:
    """Settings, code and packages of ingest, as a hash."""
    return ingest_traces.key(Run.on(config, ""), {})


def _stored(config: RetrainConfig, link: dict[str, str]) -> Entry | None:
    entry = Store(Path(config.work_dir) / "store").find_named(link["entry"])
    return entry if entry and entry.digest == link["digest"] else None


def _chain(config: RetrainConfig) -> list[dict[str, str]]:
    path = Path(config.work_dir) / CHAIN_FILE
    links = read_json(path) if path.is_file() else []
    if not isinstance(links, list) or not all(isinstance(link, dict) and set(link) == set(LINK_FIELDS) for link in links):
        raise DataError(f"{path}: not a list of {', '.join(LINK_FIELDS)}; delete it, and everything is ingested anew")
    return links


def _last(config: RetrainConfig) -> Snapshot | None:
    """What the last start in this folder found in the logs: the screening notes it, and the ingest."""
    files = [_folder(config) / LAST_FILE, Path(config.work_dir) / BATCHES / SNAPSHOT_FILE]
    path = max((file for file in files if file.is_file()), key=lambda file: file.stat().st_mtime_ns, default=None)
    if path is None:
        return None
    try:
        return Snapshot.from_record(read_json(path))
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: not a snapshot of logs ({error!r}); delete it, and everything is ingested anew") from error


def _folder(config: RetrainConfig) -> Path:
    return Path(config.work_dir) / FOLDER
