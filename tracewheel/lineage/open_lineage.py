"""Runs as events of OpenLineage (https://openlineage.io/spec/2-0-2/OpenLineage.json).

A run is a job `<profile>` of the namespace; each stage that it asked for is a run of the job `<profile>.<stage>` with the run
as its parent. Logs, entries of the store and files are data sets; the version of one is its digest.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from tracewheel.core import clock
from tracewheel.lineage.work_folder import WorkFolder, stage_of

PRODUCER = "https://pypi.org/project/tracewheel/"
SPEC = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACETS = "https://openlineage.io/spec/facets"
NAMES = uuid.UUID("6f2f3b0e-8c1d-5c53-9d5e-6a3a0b1f7c11")  # of run ids, which must be UUIDs
JOB_TYPE = {"processingType": "BATCH", "integration": "TRACEWHEEL"}


def run_event(
    state: str, namespace: str, profile: str, run_id: str, lineage: Mapping[str, Any], outputs: Iterable[dict[str, Any]] = ()
) -> dict[str, Any]:
    """An event of a whole run.

    Args:
        state: START, COMPLETE, FAIL or ABORT.
        namespace: Of jobs and data sets.
        profile: The name of the run's profile.
        run_id: The run.
        lineage: Its `lineage.json`.
        outputs: What it made, as data sets.
    """
    git = lineage.get("git") or {}
    job = {"jobType": _facet("2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet", **JOB_TYPE, jobType="RUN")}
    if git.get("remote") and "://" in git["remote"]:
        place = {"type": "git", "url": git["remote"], "version": git["commit"]}
        job["sourceCodeLocation"] = _facet("1-1-0/SourceCodeLocationJobFacet.json#/$defs/SourceCodeLocationJobFacet", **place)
    inputs = [dataset(namespace, name, digest) for name, digest in sorted(lineage["inputs"].items())]
    return _event(state, _run(namespace, run_id, lineage["started"]), (namespace, profile, job), inputs, outputs)


def stage_events(folder: WorkFolder, namespace: str, profile: str, run_id: str, started: str) -> Iterable[dict[str, Any]]:
    """A START and a COMPLETE event of each stage that a run asked for and the store holds."""
    parent = _facet(
        "1-2-0/ParentRunFacet.json#/$defs/ParentRunFacet",
        run={"runId": run_uuid(namespace, run_id, started)},
        job={"namespace": namespace, "name": profile},
    )
    wanted = (folder.runs[run_id].needs() or set()) & set(folder.entries)
    for entry in sorted(wanted, key=lambda name: (folder.finished(name), name)):
        inputs = [dataset(namespace, one.entry, folder.facts(one.entry).get("digest")) for one in folder.inputs(entry)]
        made = [dataset(namespace, entry, folder.facts(entry).get("digest"))]
        run = _run(namespace, f"{run_id}/{entry}", started, {"parent": parent})
        job = {"jobType": _facet("2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet", **JOB_TYPE, jobType="TASK")}
        ended = folder.finished(entry)
        for state, at in (("START", ended - folder.facts(entry).get("seconds", 0.0)), ("COMPLETE", ended)):
            named = (namespace, f"{profile}.{stage_of(entry)}", job)
            yield _event(state, run, named, inputs, made if state == "COMPLETE" else [], at)


def dataset(namespace: str, name: str, digest: str | None) -> dict[str, Any]:
    """A data set with its digest as version."""
    if not digest:
        return {"namespace": namespace, "name": name, "facets": {}}
    version = _facet("1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet", datasetVersion=digest)
    return {"namespace": namespace, "name": name, "facets": {"version": version}}


def run_uuid(namespace: str, run_id: str, started: str) -> str:
    """The id of a run for OpenLineage: the same for each event of it."""
    return str(uuid.uuid5(NAMES, f"{namespace}/{run_id}/{started}"))


def _run(namespace: str, run_id: str, started: str, facets: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"runId": run_uuid(namespace, run_id, started), "facets": dict(facets or {})}


def _event(
    state: str,
    run: dict[str, Any],
    job: tuple[str, str, dict[str, Any]],
    inputs: Iterable[dict[str, Any]],
    outputs: Iterable[dict[str, Any]],
    at: float | None = None,
) -> dict[str, Any]:
    moment = clock.now() if at is None else datetime.fromtimestamp(at, UTC)
    return {
        "eventType": state,
        "eventTime": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "run": run,
        "job": {"namespace": job[0], "name": job[1], "facets": job[2]},
        "inputs": list(inputs),
        "outputs": list(outputs),
        "producer": PRODUCER,
        "schemaURL": SPEC,
    }


def _facet(place: str, **values: Any) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": f"{FACETS}/{place}", **values}
