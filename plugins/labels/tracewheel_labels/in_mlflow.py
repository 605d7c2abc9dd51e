"""People's labels of trajectories as assessments of MLflow's traces, from a person (`HUMAN`), beside those of the rubric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tracewheel import DataError, FinishedRun, tracking_client
from tracewheel_labels.labels import Label, labels_of

NAME = "review"
FROM = "tracewheel.label"


def log_labels(run: FinishedRun, say: Callable[[str], None]) -> dict[str, int]:
    """Make the assessments of a run's traces those that its labels say; a second call changes nothing.

    Only trajectories that the run logged as traces have a place for them (`tracking.traces_per_evaluation`); labels on others
    stay in the run's record.

    Args:
        run: It is complete.
        say: Told what was brought to MLflow first.

    Returns:
        Counts: `logged` (new or changed), `unchanged`, `withdrawn`, and `without_trace`.

    Raises:
        DataError: the run has no MLflow run, because it is not complete.
        InfrastructureError: MLflow does not answer.
    """
    from mlflow.tracing.client import TracingClient

    mlflow_run = str(run.summary.get("mlflow_run") or "")
    if not mlflow_run:
        raise DataError(
            f"{run.record.path}: the run is not complete, or its MLflow run is not known; `tracewheel runs sync` delivers it"
        )
    said: dict[tuple[str, str], dict[str, Label]] = {}
    labels = labels_of(run.record.path)
    for label in labels:
        if label.part == "greedy":  # no other episodes are traces
            said.setdefault((label.entry, label.trajectory), {})[label.who] = label
    counts, placed = Counter[str](), set()
    with tracking_client(run.config, "labels", say) as client:
        tracing = TracingClient(run.config.tracking.uri)
        for trace in _traces_of(tracing, client.get_run(mlflow_run).info.experiment_id, mlflow_run):
            place = str(trace.tags.get("entry")), str(trace.tags.get("trajectory"))
            placed |= set(said.get(place, {}).values())
            counts.update(_settle(tracing, trace, said.get(place, {})))
    counts["without_trace"] = len(set(labels) - placed)
    return {name: counts[name] for name in ("logged", "unchanged", "withdrawn", "without_trace")}


def _traces_of(client: Any, experiment: str, mlflow_run: str) -> list[Any]:
    """What is known of the traces of an MLflow run."""
    found: list[Any] = []
    token = None
    while True:
        page = client.search_traces(
            locations=[experiment],
            filter_string=f"metadata.`mlflow.sourceRun` = '{mlflow_run}'",
            max_results=500,
            include_spans=False,
            page_token=token,
        )
        found += [trace.info for trace in page]
        token = page.token
        if not token:
            return found


def _settle(client: Any, trace: Any, wanted: dict[str, Label]) -> Counter[str]:
    """Log what people say of one trace, and take back what they no longer say."""
    counts: Counter[str] = Counter()
    known = {one.source.source_id: one for one in trace.assessments if one.name == NAME and _is_ours(one)}
    for who, label in wanted.items():
        old = known.pop(who, None)
        if old is not None and (old.feedback.value, old.rationale or "") == (label.label, label.note):
            counts["unchanged"] += 1
            continue
        if old is not None:
            client.delete_assessment(trace.trace_id, old.assessment_id)
        client.log_assessment(trace.trace_id, _feedback(trace.trace_id, label))
        counts["logged"] += 1
    for gone in known.values():
        client.delete_assessment(trace.trace_id, gone.assessment_id)
        counts["withdrawn"] += 1
    return counts


def _is_ours(assessment: Any) -> bool:
    return assessment.source.source_type == "HUMAN" and (assessment.metadata or {}).get(FROM) == "yes"


def _feedback(trace: str, label: Label) -> Any:
    from mlflow.entities import AssessmentSource, Feedback

    metadata = {FROM: "yes", "at": label.at, "why": label.why}
    source = AssessmentSource("HUMAN", label.who)
    return Feedback(
        name=NAME, value=label.label, rationale=label.note or None, source=source, trace_id=trace, metadata=metadata
    )
