"""People's labels of trajectories as assessments of MLflow's traces, from a person (`HUMAN`), beside those of the rubric."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tasks.tracking.client import bounded, make_client
from tasks.tracking.shown import evaluations_of
from tasks.tracking.traces import trace_id_of
from tracewheel.config import load_stored_config
from tracewheel.core.errors import DataError
from tracewheel.core.run_record import RunRecord
from tracewheel.operations.labels import Label, labels_of
from tracewheel.report.finished_run import FinishedRun

NAME = "review"
FROM = "tracewheel.label"


@bounded
def log_labels(record: RunRecord) -> dict[str, int]:
    """Make the assessments of a run's traces those that its labels say; a second call changes nothing.

    Only trajectories that the run logged as traces have a place for them (`tracking.trace_episodes`); labels on others stay in
    the run's record.

    Returns:
        Counts: `logged` (new or changed), `unchanged`, `withdrawn`, and `without_trace`.

    Raises:
        DataError: the run has no MLflow run, because it is not complete.
        MlflowAway: MLflow does not answer.
    """
    from mlflow.tracing.client import TracingClient

    config = load_stored_config(record.path)
    mlflow_run = str((record.summary or {}).get("mlflow_run") or "")
    if not mlflow_run:
        raise DataError(
            f"{record.path}: the run is not complete, or its MLflow run is not known; `tracewheel runs sync` delivers it"
        )
    labels = labels_of(record.path)
    make_client(config.tracking.uri).get_run(mlflow_run)
    client, counts = TracingClient(config.tracking.uri), Counter[str]()
    policies = {entry.name: policy for entry, policy, _ in evaluations_of(FinishedRun(record))}
    present = _traces_of(client, config.tracking, mlflow_run)
    wanted: dict[str, dict[str, Label]] = {}
    for label in labels:
        trace = trace_id_of(mlflow_run, policies.get(label.entry, ""), label.trajectory)
        if trace in present and label.part == "greedy":
            wanted.setdefault(trace, {})[label.who] = label
        else:
            counts["without_trace"] += 1
    for trace, info in present.items():
        counts.update(_settle(client, trace, info, wanted.get(trace, {})))
    return {name: counts[name] for name in ("logged", "unchanged", "withdrawn", "without_trace")}


def _traces_of(client: Any, settings: Any, mlflow_run: str) -> dict[str, Any]:
    """The traces of an MLflow run: id to what is known of each."""
    experiment = make_client(settings.uri).get_run(mlflow_run).info.experiment_id
    found: dict[str, Any] = {}
    token = None
    while True:
        page = client.search_traces(
            locations=[experiment],
            filter_string=f"metadata.`mlflow.sourceRun` = '{mlflow_run}'",
            max_results=500,
            include_spans=False,
            page_token=token,
        )
        found |= {trace.info.trace_id: trace.info for trace in page}
        token = page.token
        if not token:
            return found


def _settle(client: Any, trace: str, info: Any, wanted: dict[str, Label]) -> Counter[str]:
    """Log what people say of one trace, and take back what they no longer say."""
    counts: Counter[str] = Counter()
    known = {one.source.source_id: one for one in info.assessments if one.name == NAME and _is_ours(one)}
    for who, label in wanted.items():
        old = known.pop(who, None)
        if old is not None and (old.feedback.value, old.rationale or "") == (label.label, label.note):
            counts["unchanged"] += 1
            continue
        if old is not None:
            client.delete_assessment(trace, old.assessment_id)
        client.log_assessment(trace, _feedback(trace, label))
        counts["logged"] += 1
    for gone in known.values():
        client.delete_assessment(trace, gone.assessment_id)
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
