"""`tracewheel export-openlineage`: a finished run as events of OpenLineage.

See https://openlineage.io/spec/2-0-2/OpenLineage.json. A run is a job `<profile>` of the namespace; each stage that it asked
for is a run of the job `<profile>.<stage>` with the run as its parent. Logs and entries of the store are data sets; the
version of one is its digest.
"""

from __future__ import annotations

import json
import uuid
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, DataError, FileOut, InfrastructureError

if TYPE_CHECKING:
    from tracewheel import FinishedRun

PRODUCER = "https://pypi.org/project/tracewheel/"
SPEC = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACETS = "https://openlineage.io/spec/facets"
NAMES = uuid.UUID("6f2f3b0e-8c1d-5c53-9d5e-6a3a0b1f7c11")  # of run ids, which must be UUIDs
JOB_TYPE = {"processingType": "BATCH", "integration": "TRACEWHEEL"}
TIMEOUT_SECONDS = 5.0


def options(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder, a work folder (its latest complete run), or a run's id")
    parser.add_argument(
        "--run-dir", default="runs", metavar="DIR", help="work folder in which ids are looked up (default: runs)"
    )
    parser.add_argument("--namespace", default="tracewheel", help="of the jobs and data sets (default: tracewheel)")
    parser.add_argument("--url", help="where events are posted, as http://host:5000/api/v1/lineage")
    parser.add_argument("--out", metavar="FILE", help="where events are written, one a line")


def run(options: Namespace) -> dict[str, Any]:
    """Write or post the events of a run, or both.

    Raises:
        DataError: the run is not complete, or neither `--url` nor `--out` is given.
        InfrastructureError: the receiver does not take an event.
    """
    from tracewheel import FinishedRun, run_named

    if not options.url and not options.out:
        raise DataError("give --out FILE, --url URL, or both")
    found = FinishedRun(run_named(options.run, options.run_dir))
    if not found.summary:
        raise DataError(f"run {found.run_id} is not complete")
    events = list(events_of(found, options.namespace))
    if options.out:
        Path(options.out).write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    if options.url:
        _post(options.url, events)
    return {"run_id": found.run_id, "events": len(events)} | {name: getattr(options, name) for name in ("url", "out")}


def events_of(run: FinishedRun, namespace: str) -> Iterator[dict[str, Any]]:
    """START of the run, START and COMPLETE of each stage in the order of their ends, and COMPLETE of the run."""
    profile, lineage = str(run.settings["name"]), run.lineage
    entries = sorted((entry for entry in run.entries if entry.is_stored), key=lambda one: (one.metadata["finished"], one.name))
    digests = {entry.name: entry.digest for entry in entries}
    began = datetime.fromisoformat(lineage["started"]).timestamp()
    whole = str(uuid.uuid5(NAMES, f"{namespace}/{run.run_id}/{lineage['started']}"))
    job = {"jobType": _job_type("RUN")}
    git = lineage.get("git") or {}
    if git.get("remote") and "://" in git["remote"]:
        place = {"type": "git", "url": git["remote"], "version": git["commit"]}
        job["sourceCodeLocation"] = _facet("1-1-0/SourceCodeLocationJobFacet.json#/$defs/SourceCodeLocationJobFacet", **place)
    read = [_dataset(namespace, name, digest) for name, digest in sorted(lineage["inputs"].items())]
    chosen = (lineage.get("policies") or {}).get("rl")
    made = [_dataset(namespace, chosen["entry"], chosen["digest"])] if chosen else []
    ended = max((entry.metadata["finished"] for entry in entries), default=began)

    yield _event("START", began, {"runId": whole, "facets": {}}, (namespace, profile, job), read, [])
    parent = _facet(
        "1-2-0/ParentRunFacet.json#/$defs/ParentRunFacet",
        run={"runId": whole},
        job={"namespace": namespace, "name": profile},
    )
    for entry in entries:
        name = str(uuid.uuid5(NAMES, f"{namespace}/{run.run_id}/{entry.name}/{lineage['started']}"))
        stage = (namespace, f"{profile}.{entry.stage}", {"jobType": _job_type("TASK")})
        inputs = [_dataset(namespace, one, digests.get(one)) for one in dict.fromkeys(_named(entry.made.get("arguments")))]
        outputs, finished = [_dataset(namespace, entry.name, entry.digest)], entry.metadata["finished"]
        process = {"runId": name, "facets": {"parent": parent}}
        yield _event("START", finished - entry.metadata.get("seconds", 0.0), process, stage, inputs, [])
        yield _event("COMPLETE", finished, process, stage, inputs, outputs)
    yield _event("COMPLETE", ended, {"runId": whole, "facets": {}}, (namespace, profile, job), read, made)


def _named(arguments: Any) -> Iterator[str]:
    """The entries that a stage's arguments name."""
    if isinstance(arguments, Mapping) and isinstance(arguments.get("entry"), str):
        yield arguments["entry"]
    elif isinstance(arguments, Mapping) and isinstance(arguments.get("earlier"), str) and "snapshot" in arguments:
        yield arguments["earlier"]
    elif isinstance(arguments, Mapping | list):
        for value in arguments.values() if isinstance(arguments, Mapping) else arguments:
            yield from _named(value)


def _dataset(namespace: str, name: str, digest: str | None) -> dict[str, Any]:
    """A data set with its digest as version."""
    version = {
        "version": _facet("1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet", datasetVersion=digest)
    }
    return {"namespace": namespace, "name": name, "facets": version if digest else {}}


def _event(
    state: str,
    at: float,
    run: dict[str, Any],
    job: tuple[str, str, dict[str, Any]],
    inputs: Iterable[dict[str, Any]],
    outputs: Iterable[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "eventType": state,
        "eventTime": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "run": run,
        "job": {"namespace": job[0], "name": job[1], "facets": job[2]},
        "inputs": list(inputs),
        "outputs": list(outputs),
        "producer": PRODUCER,
        "schemaURL": SPEC,
    }


def _job_type(kind: str) -> dict[str, Any]:
    return _facet("2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet", **JOB_TYPE, jobType=kind)


def _facet(place: str, **values: Any) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": f"{FACETS}/{place}", **values}


def _post(url: str, events: Iterable[dict[str, Any]]) -> None:
    """Post events in their order.

    Raises:
        InfrastructureError: one does not arrive; the message says no password that the address holds.
    """
    import httpx

    try:
        with httpx.Client(timeout=TIMEOUT_SECONDS) as client:
            for event in events:
                client.post(url, json=event).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise InfrastructureError(f"OpenLineage: {url.rpartition('@')[2]} takes no events ({type(error).__name__})") from None


COMMAND = Command(
    "export-openlineage",
    "write a finished run as events of OpenLineage, or post them",
    options,
    run,
    writes=FileOut("events", (".jsonl",)),
)
