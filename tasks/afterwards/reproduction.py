"""A finished run that is to be made again: a work folder with nothing in it but what the run began with.

The folder gets the run's record as it was before its first stage (profile, snapshot of the logs, starting facts), and its
parents by their digests: the champion's weights, the curation and the record of splits that it resumed, the ingest that it
continued, the gates before its own. `tracewheel retrain` then takes it for a run that was stopped at once, and makes all of it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from glob import has_magic
from pathlib import Path
from typing import Any

import yaml

from tasks.engine.reading import CHAIN_FILE as INGEST_CHAIN
from tasks.engine.reading import FOLDER as INGESTED
from tasks.records.gate_ledger import CANDIDATE, LEDGER_FILE, entries_of, is_waiting, read_ledger
from tasks.tracking.champion import CHAMPION_FOLDER, DIGITS, weights_of
from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.run_record import CONFIG_FILE, LINEAGE_FILE, SNAPSHOT_FILE, START_FILE
from tracewheel.core.store import FACTS, Store, write_whole
from tracewheel.curation.curated_folder import SPLITS_FILE
from tracewheel.evaluation.candidate import ENDED
from tracewheel.policy.adapters import ADAPTER
from tracewheel.report.finished_run import FinishedRun
from tracewheel.traces.forgotten import FORGOTTEN_FILE, read_forgotten
from tracewheel.traces.snapshot import LogSlices, Snapshot, placed

PROFILE, WORK = "profile.yaml", "work"


def begin_again(run: FinishedRun, out: Path, folder: Path, further: Sequence[str] = ()) -> list[str]:
    """Write `profile.yaml` and the folder `work` in `out`; returns sentences about what differs from the run's beginning.

    Args:
        run: The finished run.
        out: An empty folder.
        folder: From which the profile's paths will be read.
        further: Files and folders in which the logs may lie, besides those that the profile names.

    Raises:
        DataError: a log or a parent of the run is lost or is not what it was.
    """
    logs, says = bring_logs(run, folder, further)
    return [*says, *prepare(run, out, logs)]


def bring_logs(run: FinishedRun, folder: Path, further: Sequence[str]) -> tuple[list[str], list[str]]:
    """Find the exact bytes of the logs that a run has read.

    Args:
        folder: The working folder in the clone.
        further: Files and folders to look in besides those that the profile names.

    Returns:
        Paths for `ingest.paths`, from the clone's folder; and sentences.

    Raises:
        DataError: a log was changed or is gone, or somebody was forgotten since.
    """
    record = run.record.snapshot
    if record is None:
        raise DataError(f"{run.record.path}: an earlier version made the run, and did not record what it read of the logs")
    snapshot = Snapshot.from_record(record)
    if not read_forgotten(run.work_dir).hashes <= snapshot.forgotten.hashes:
        raise DataError(
            f"run {run.run_id} is not made again: somebody was forgotten since, whose records it read (forgotten.json of "
            f"{run.work_dir}); a run on the logs as they are now leaves them out"
        )
    paths = list(run.settings["ingest"]["paths"])
    own = [path if Path(path).is_absolute() else str(folder / path) for path in paths]
    here = [str(Path(path).absolute()) for path in paths]
    tried = [(paths, own, "")]
    if here != own:
        tried.append((here, here, "the logs of the clone are not those of the run; the ones that lie here hold its bytes"))
    if further:
        away = [str(Path(path).absolute()) for path in further]
        tried.append((away, away, f"logs: found in {', '.join(further)}"))
    config = run.config.ingest
    for recorded, places, says in tried:
        if placed(snapshot, config.model_copy(update={"paths": tuple(places)})):
            return recorded, [says] if says else []
    everywhere = [path for _, places, _ in tried for path in places if Path(path).exists() or has_magic(path)]
    found = config.model_copy(update={"paths": tuple(dict.fromkeys(everywhere))})
    if everywhere and placed(snapshot, found):
        return list(found.paths), ["logs: together from the clone, this folder and --logs"]
    raise DataError(_lost(snapshot, found, run))


def _lost(snapshot: Snapshot, config: IngestConfig, run: FinishedRun) -> str:
    """Which log is not what it was."""
    lost: list[LogSlices] = [log for log in snapshot.files if not config.paths or placed(Snapshot((log,)), config) is None]
    log = lost[0] if lost else snapshot.files[0]
    part = log.all[0]
    more = f", and {len(lost) - 1} more logs" if len(lost) > 1 else ""
    return (
        f"{log.name}: no log holds the bytes {part.begin} to {log.all[-1].end} that run {run.run_id} has read "
        f"(SHA-256 {part.sha256[:16]}…){more}: it was changed, rotated or deleted. Bring back a copy (--logs DIR)"
    )


def prepare(run: FinishedRun, out: Path, logs: Sequence[str]) -> list[str]:
    """Write the profile, which reads these logs, and the work folder; returns sentences, as `begin_again`.

    Raises:
        DataError: a parent of the run is lost or is not what it was.
    """
    work = out / WORK
    record = work / run.run_id
    record.mkdir(parents=True)
    settings = dict(run.settings)
    settings["work_dir"] = str(work)
    settings["tracking"] = {**settings["tracking"], "uri": f"sqlite:///{work}/mlflow.db"}
    settings["ingest"] = {**settings["ingest"], "paths": list(logs)}
    if "screening" in settings:  # what the run read was let in; this time it is only looked at
        settings["screening"] = {**settings["screening"], "hold": False}
    (out / PROFILE).write_text(yaml.safe_dump(settings, sort_keys=False))
    for name in (CONFIG_FILE, SNAPSHOT_FILE, START_FILE):
        if (run.record.path / name).is_file():
            shutil.copyfile(run.record.path / name, record / name)
    began = {"started": datetime.now(UTC).isoformat(timespec="seconds"), "made_again": run.lineage["started"]}
    kept = {name: run.lineage[name] for name in ("git", "inputs", "packages")}
    write_whole(record / LINEAGE_FILE, json.dumps({**kept, **began}, indent=2) + "\n")
    return [*_bring_parents(run, work), *_bring_ingest(run, work)]


def _bring_parents(run: FinishedRun, work: Path) -> list[str]:
    """Champion, pass rates, splits, gates and who was forgotten, as the run began with them."""
    begun = run.record.path / START_FILE
    start, says = read_json(begun) if begun.is_file() else {}, []
    if champion := start.get("champion"):
        weights = weights_of(run.work_dir, champion["digest"])
        if weights is None:
            raise DataError(
                f"{run.work_dir}: no weights with digest {champion['digest'][:16]}, the champion (version "
                f"{champion['version']}) that the run began with; fetch that version from the registry into its champion/"
            )
        shutil.copytree(weights, work / CHAMPION_FOLDER / champion["digest"][:DIGITS] / (weights.name or ADAPTER))
    if evidence := start.get("evidence"):
        _copy_entry(run, work, evidence, "the curation whose pass rates the run resumed")
    if splits := start.get("splits"):
        copy = run.work_dir / splits["run"] / SPLITS_FILE
        if _stored(run, splits["curated"]) or not splits["run"] or not copy.is_file():
            _copy_entry(run, work, splits["curated"], "the record of splits that the run began with")
        else:
            (work / splits["run"]).mkdir(exist_ok=True)
            shutil.copyfile(copy, work / splits["run"] / SPLITS_FILE)
    gates = gates_before(run, datetime.now(UTC))
    if line := candidate_before(run, start.get("candidate")):
        for name in entries_of(line) if is_waiting(line) else ():
            _copy_entry(run, work, name, "of the candidate that the run began with")
        gates = [*(gate for gate in gates if gate["evidence"] != line["evidence"]), line]
    if gates:
        write_whole(work / LEDGER_FILE, json.dumps(gates, indent=2) + "\n")
    if forgotten := Snapshot.from_record(run.record.snapshot or {}).forgotten:
        forgotten.write(work)
        says.append(f"{FORGOTTEN_FILE}: as the run had it, {len(forgotten.hashes)} entries")
    return says


def gates_before(run: FinishedRun, now: datetime) -> list[dict[str, Any]]:
    """The gates before the run's own, moved in time as the run is: so its gate has, now, the place and the level it had."""
    gates = read_ledger(str(run.work_dir))
    looks = [place for place, gate in enumerate(gates) if CANDIDATE not in gate]
    ours = [place for place in looks if gates[place]["run"] == run.run_id] or looks[
        (run.gate.get("look") or len(gates) + 1) - 1 :
    ]
    if not ours:
        return []
    own = ours[0]
    later = now - datetime.fromisoformat(gates[own]["began"])
    moved = [datetime.fromisoformat(gate["began"]) + later for gate in gates[:own]]
    kept = [{**gate, "began": began.isoformat(timespec="seconds")} for gate, began in zip(gates, moved, strict=False)]
    return [gate | {"verdict": ENDED} if is_waiting(gate) else gate for gate in kept]


def candidate_before(run: FinishedRun, evidence: str | None) -> dict[str, Any] | None:
    """The ledger's line of the candidate that a run began with, as it was then; ended, where the run went on without it."""
    line = next((gate for gate in read_ledger(str(run.work_dir)) if evidence and gate["evidence"] == evidence), None)
    if line is None:
        return None
    nights = line[CANDIDATE]["nights"]
    if run.run_id not in [night["run"] for night in nights]:
        return line | {"verdict": ENDED}
    ours = next(place for place, night in enumerate(nights) if night["run"] == run.run_id)
    kept = {name: value for name, value in line.items() if name not in ("verdict", "why")}
    return {**kept, CANDIDATE: {**line[CANDIDATE], "nights": nights[:ours]}}


def _bring_ingest(run: FinishedRun, work: Path) -> list[str]:
    """The ingest that the run continued, with what it left for its successor; a sentence where these are lost."""
    snapshot = Snapshot.from_record(run.record.snapshot or {})
    if snapshot.earlier is None:
        return []
    chain = run.work_dir / INGEST_CHAIN
    links = read_json(chain) if chain.is_file() else []
    link = next((link for link in links if link["entry"] == snapshot.earlier.entry), None)
    state = run.work_dir / INGESTED / link["state"] if link else None
    if link is None or state is None or not state.is_dir() or not _stored(run, snapshot.earlier.entry):
        return [
            f"{snapshot.earlier.entry}, which the run's ingest continued, is no longer there: everything is ingested anew, "
            "in one part"
        ]
    _copy_entry(run, work, snapshot.earlier.entry, "the ingest that the run continued")
    shutil.copytree(state, work / INGESTED / link["state"])
    write_whole(work / INGEST_CHAIN, json.dumps([link], indent=2) + "\n")
    return []


def _copy_entry(run: FinishedRun, work: Path, name: str, what: str) -> None:
    """Copy an entry of the store with its facts.

    Raises:
        DataError: it is lost or damaged.
    """
    store = Store(run.store)
    if store.find_named(name) is None:
        flaw = store.flaws.get(name, "it is no longer in the store (`tracewheel runs gc`, or a folder that was copied in part)")
        raise DataError(f"{name}, {what}: {flaw}; the run cannot begin as it did")
    target = work / "store"
    shutil.copytree(run.store / name, target / name, dirs_exist_ok=True)
    (target / FACTS).mkdir(exist_ok=True)
    shutil.copyfile(run.store / FACTS / f"{name}.json", target / FACTS / f"{name}.json")


def _stored(run: FinishedRun, name: str) -> bool:
    return Store(run.store).find_named(name) is not None
