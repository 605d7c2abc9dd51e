"""Which record of splits a run begins with.

`work_dir/splits.json` has `latest`, the record of the last complete run, and `began`: what each run began with, by its traces
and settings of curation. Runs on the same traces and settings begin with the same record, and any other begins with the
latest: so the records form one line, and none of the runs holds out what another one has trained on. A record is
splits.parquet of a curation in the store; the run's folder keeps a copy, for when the store has lost it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tasks.engine.run import Run, settings_for
from tracewheel.config import CurateSections
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json, read_table
from tracewheel.core.store import Entry, place_copy, write_whole
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import HELD_OUT, SPLITS_FILE, TASKS_FILE

CHAIN_FILE = "splits.json"
WAY_ON = (
    "put back a copy of it; without one, delete it together with the work folder's runs, because what they trained on would "
    "no longer be known"
)


def splits_begin_with(run: Run, traces: Entry, evidence: str | None) -> dict[str, Any] | None:
    """The record that a run on these traces begins with; None for the first.

    Args:
        run: The run.
        traces: What it ingested.
        evidence: The curation whose pass rates are resumed from; of work folders without a chain also the record.

    Raises:
        DataError: the file is not what a run wrote.
    """
    chain = _chain(run.config.work_dir)
    known = _name(run, traces)
    if known in chain["began"]:
        return chain["began"][known]
    latest: dict[str, Any] | None = chain["latest"] or ({"curated": evidence, "run": ""} if evidence else None)
    return latest


def earlier_splits(run: Run, start: dict[str, Any]) -> tuple[Entry | None, bool]:
    """The curation (or the copy of its record) that the run begins with, and whether there was one that is lost."""
    link = start.get("splits")  # runs of earlier versions have none
    if not link:
        return None, False
    entry = run.store.find_named(link["curated"])
    copy = Path(run.config.work_dir) / link["run"]
    if entry is None and link["run"] and (copy / SPLITS_FILE).is_file():
        entry = Entry("curate", "", copy, link["digest"], 0.0, None)
    if entry is None:
        run.reporter.say(
            f"the record of splits of {link['curated']} is lost: it is rebuilt from the logs, and all of its training side"
            " counts as trained on"
        )
    return entry, entry is None


def latest_curation(run: Run) -> tuple[str | None, Entry | None]:
    """The last complete run and its curation; None for the run when there was none, for the curation when it is lost."""
    link = _chain(run.config.work_dir)["latest"]
    if not link:
        return None, None
    return link["run"], run.store.find_named(link["curated"])


def shared_held_out(run: Run, curated: Entry) -> dict[str, Any] | None:
    """How many held-out tasks the last complete run had too, with a sentence: rates on other tasks are no pairs.

    None where there is no earlier run, or where its curation is no longer in the store.
    """
    if run.record.summary:  # the report of a complete run is written again
        found: dict[str, Any] | None = run.record.summary.get("held_out_shared")
        return found
    last, earlier = latest_curation(run)
    if earlier is None:
        return None
    ours, theirs = (
        set(table.loc[table["split"] == HELD_OUT, "id"])
        for table in (read_table(entry.path / TASKS_FILE, ["id", "split"]) for entry in (curated, earlier))
    )
    counts = {"run": last, "tasks": len(ours), "shared": len(ours & theirs)}
    if ours == theirs:
        return {**counts, "says": f"The held-out tasks are those of run {last}."}
    says = f"{len(ours & theirs)} of the {len(ours)} held-out tasks were also held out in run {last}"
    return {**counts, "says": f"{says}: held-out rates of the two runs are of different tasks."}


def remember_splits(run: Run, traces: Entry, curated: Entry, began: dict[str, Any] | None) -> None:
    """Note the record of a complete run, for the next one, and keep a copy in the run's folder."""
    chain, name = _chain(run.config.work_dir), _name(run, traces)
    place_copy(curated.path / SPLITS_FILE, run.record.path / SPLITS_FILE)
    if name in chain["began"]:
        return
    chain["began"][name] = began
    chain["latest"] = {"curated": curated.path.name, "digest": curated.digest, "run": run.record.run_id}
    write_whole(Path(run.config.work_dir) / CHAIN_FILE, json.dumps(chain, indent=2) + "\n")


def _name(run: Run, traces: Entry) -> str:
    """The traces and the settings of their curation, as a hash."""
    return content_hash([traces.digest, settings_for(run.config, CurateSections.keyed())])


def latest_record(work_dir: Path) -> str | None:
    """Name of the entry with the record of splits that the next run begins with.

    Raises:
        DataError: the file is not what a run wrote.
    """
    latest = _chain(work_dir)["latest"]
    return latest["curated"] if latest else None


def _chain(work_dir: str | Path) -> dict[str, Any]:
    path = Path(work_dir) / CHAIN_FILE
    chain = read_json(path, WAY_ON) if path.is_file() else {"latest": None, "began": {}}
    links = (
        [chain.get("latest"), *chain["began"].values()]
        if isinstance(chain, dict) and isinstance(chain.get("began"), dict)
        else [{}]
    )
    if not all(link is None or _is_link(link) for link in links):
        raise DataError(f"{path}: not a record of where splits began; {WAY_ON}")
    return chain


def _is_link(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in ("curated", "run"))
