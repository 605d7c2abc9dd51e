"""What MLflow holds of somebody who is to be forgotten: traces, artifacts of runs, model versions."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracewheel import RetrainConfig, digests_of
from tracewheel_forgetting.file_search import Searcher

PAGE = 200
WEIGHTS = ("adapter_model.safetensors", "model.json")  # of an adapter; of a whole model
CHAMPION, FORGOTTEN, RUN = "champion", "forgotten", "tracewheel.run_id"  # an alias, and tags (docs/tracking.md)


@dataclass
class InMlflow:
    """What MLflow holds of theirs.

    Attributes:
        traces: Ids of MLflow traces with a text of theirs.
        artifacts: Run to the artifacts with a text of theirs.
        adapters: Run to the artifact folders with an adapter, or a whole model, that learnt from them.
        versions: Model versions whose adapter learnt from them, or from an adapter that did.
        champion: The one of these that has the alias, or None.
    """

    traces: list[str] = field(default_factory=list)
    artifacts: dict[str, list[str]] = field(default_factory=dict)
    adapters: dict[str, list[str]] = field(default_factory=dict)
    versions: list[str] = field(default_factory=list)
    champion: str | None = None

    def to_record(self) -> dict[str, Any]:
        """Counts and names."""
        found = [f"{run}/{path}" for run, paths in self.artifacts.items() for path in paths]
        adapters = [f"{run}/{path}" for run, paths in self.adapters.items() for path in paths]
        named = {"artifacts": found, "adapters": adapters, "versions": self.versions, "champion": self.champion}
        return {"traces": self.traces, **named}


def look_in_mlflow(
    client: Any,
    config: RetrainConfig,
    runs: Collection[str],
    tainted: Mapping[str, Collection[str]],
    needles: list[str],
) -> InMlflow:
    """Look through the traces and artifacts of the experiment and the versions of the model.

    Args:
        client: MLflow's, of the profile.
        config: The profile.
        runs: Ids of the pipeline's runs that have read something of theirs.
        tainted: Of these, the runs whose adapters learnt from it, with the digests of these adapters.
        needles: What to search for.
    """
    found, searcher = InMlflow(), Searcher(needles)
    experiment = client.get_experiment_by_name(config.tracking.experiment)
    if experiment is not None:
        for trace in _pages(client.search_traces, locations=[experiment.experiment_id]):
            if searcher.texts_in_bytes(trace.to_json().encode("utf-8", "surrogatepass")):
                found.traces.append(trace.info.trace_id)
        for run in _pages(client.search_runs, experiment_ids=[experiment.experiment_id]):
            if (of_run := run.data.tags.get(RUN)) in runs:
                _look_in_artifacts(client, run.info.run_id, searcher, tainted.get(of_run, ()), found)
    for version in client.search_model_versions(f"name = '{config.tracking.model_name}'"):
        if version.tags.get("run_id") in tainted:
            found.versions.append(str(version.version))
            if CHAMPION in client.get_model_version(config.tracking.model_name, version.version).aliases:
                found.champion = str(version.version)
    return found


def _pages(search: Any, **arguments: Any) -> Iterator[Any]:
    token = None
    while True:
        page = search(**arguments, max_results=PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _look_in_artifacts(client: Any, run_id: str, searcher: Searcher, adapters: Collection[str], found: InMlflow) -> None:
    """Add the artifacts of a run that hold a text of theirs, and the folders of these adapters."""
    with tempfile.TemporaryDirectory(prefix="tracewheel-forget-") as place:
        root = Path(client.download_artifacts(run_id, "", place)).resolve()
        texts = [str(held.path.relative_to(root)) for held in searcher.search([root]).found]
        folders = sorted({file.parent for name in WEIGHTS for file in root.rglob(name)} if adapters else ())
        learnt = [
            str(folder.relative_to(root)) for folder in folders if set(digests_of(folder).values()).intersection(adapters)
        ]
    found.artifacts |= {run_id: texts} if texts else {}
    found.adapters |= {run_id: learnt} if learnt else {}


def forget_in_mlflow(client: Any, config: RetrainConfig, found: InMlflow, at: str, *, delete_adapters: bool) -> None:
    """Delete traces and artifacts; mark model versions, so that no run starts from them, or delete them.

    Args:
        client: MLflow's, of the profile.
        config: The profile.
        found: What to delete.
        at: The time, for the mark.
        delete_adapters: Whether adapters are deleted, not only marked.
    """
    name = config.tracking.model_name
    experiment = client.get_experiment_by_name(config.tracking.experiment)
    for begin in range(0, len(found.traces), 100):
        client.delete_traces(experiment.experiment_id, trace_ids=found.traces[begin : begin + 100])
    for run_id, paths in [*found.artifacts.items(), *(found.adapters.items() if delete_adapters else ())]:
        for path in paths:
            _at(client, client.get_run(run_id).info.artifact_uri).delete_artifacts(path)
    for version in found.versions:
        if delete_adapters:
            registered = client.get_model_version(name, version)
            artifacts = client.get_run(registered.run_id).info.artifact_uri
            root, gone_already = f"{artifacts}/", found.adapters.get(registered.run_id, ())
            if registered.source.startswith(root) and (path := registered.source.removeprefix(root)) not in gone_already:
                _at(client, artifacts).delete_artifacts(path)
            client.delete_model_version(name, version)
        else:
            client.set_model_version_tag(name, version, FORGOTTEN, at)


def fetch_weights(client: Any, config: RetrainConfig, version: str, out: Path) -> Path:
    """Download a version's weights to a folder in `out`, also of one that is marked."""
    registered = client.get_model_version(config.tracking.model_name, version)
    weights = out / registered.tags.get("weights", "adapter")
    weights.mkdir()
    _at(client, client.get_model_version_download_uri(registered.name, version)).download_artifacts("", str(weights))
    return weights


def _at(client: Any, address: str) -> Any:
    """The artifacts at an address."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    return get_artifact_repository(address, tracking_uri=client.tracking_uri)
