"""Trajectories of an evaluation as MLflow traces, with their scores as assessments.

Written through MLflow's store client in one batch of spans an evaluation: the public tracing calls
export each span by itself and take five times as long.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tasks.tracking.client import Target
from tracewheel.core.files import read_records
from tracewheel.core.types import Score, Task, Trajectory, first_turn
from tracewheel.rollout.rollout import TRAJECTORIES_FILE
from tracewheel.scoring.score import SCORES_FILE, read_scores

MILLISECOND = 1_000_000
LONGEST_PREVIEW = 500


@dataclass(frozen=True)
class EvaluationTags:
    """The tags that identify the traces of one evaluation."""

    policy: str
    split: str
    run_id: str


def log_traces(target: Target, evaluation: Path, tasks: list[Task], wanted: int, evaluated: EvaluationTags, *, at: int) -> int:
    """Log `wanted` greedy trajectories of an evaluation, spread evenly over its tasks. Returns how many were added.

    The ids follow from the MLflow run, the policy and the trajectory, so that after a kill only those
    that are missing are added. A trace's tags come after its spans: one that can be found is whole.

    Args:
        at: Milliseconds since 1970 at which the traces begin.
    """
    from mlflow.tracing.client import TracingClient

    if not wanted:
        return 0
    trajectories = read_records(evaluation / "greedy" / TRAJECTORIES_FILE, Trajectory)
    scores = {score.trajectory_id: score for score in read_scores(evaluation / "greedy" / SCORES_FILE)}
    by_id = {task.id: task for task in tasks}
    client = TracingClient(target.settings.uri)
    filter_string = (
        f"metadata.`mlflow.sourceRun` = '{target.mlflow_run_id}' AND tags.policy = '{evaluated.policy}' "
        f"AND tags.split = '{evaluated.split}'"
    )
    present = {
        trace.info.trace_id
        for trace in client.search_traces(
            locations=[target.experiment_id], filter_string=filter_string, max_results=500, include_spans=False
        )
    }
    spans: list[Any] = []
    missing: list[tuple[_Trace, dict[str, str]]] = []
    for trajectory in trajectories[:: max(1, len(trajectories) // wanted)][:wanted]:
        number = _number(target.mlflow_run_id, evaluated.policy, trajectory.id, bits=128)
        task = by_id[trajectory.task_id]
        tags = {**asdict(evaluated), "task_id": task.id, "family": task.family, "tier": str(task.tier)}
        tags |= {"entry": evaluation.name, "trajectory": trajectory.id}
        trace = _Trace(number, trajectory, scores[trajectory.id], at * MILLISECOND)
        if trace.id in present:
            continue
        spans += trace.spans()
        missing.append((trace, tags))
    if spans:
        client.log_spans(target.experiment_id, spans)
    for trace, tags in missing:
        client.start_trace(trace.info(target.experiment_id, target.mlflow_run_id, tags))
    return len(missing)


class _Trace:
    """One trajectory in MLflow's terms. Turns have no times of their own: each is given a millisecond."""

    def __init__(self, number: int, trajectory: Trajectory, score: Score, start: int) -> None:
        from mlflow.tracing.utils import generate_mlflow_trace_id_from_otel_trace_id

        self.number = number
        self.id: str = generate_mlflow_trace_id_from_otel_trace_id(number)
        self.trajectory = trajectory
        self.score = score
        self.start = start
        self.begun = first_turn(trajectory.messages, trajectory.turns)

    def info(self, experiment_id: str, mlflow_run_id: str, tags: dict[str, str]) -> Any:
        from mlflow.entities import TraceInfo, TraceState
        from mlflow.entities.trace_location import TraceLocation

        failed = self.trajectory.stop_reason == "infrastructure_failed"
        return TraceInfo(
            trace_id=self.id,
            trace_location=TraceLocation.from_experiment_id(experiment_id),
            request_time=self.start // MILLISECOND,
            state=TraceState.ERROR if failed else TraceState.OK,
            request_preview=self._asked()[:LONGEST_PREVIEW],
            response_preview=json.dumps(self._outcome())[:LONGEST_PREVIEW],
            execution_duration=len(self.trajectory.messages),
            trace_metadata={"mlflow.sourceRun": mlflow_run_id},
            tags={"mlflow.traceName": "episode"} | tags,
            assessments=list(self._assessments()),
        )

    def spans(self) -> list[Any]:
        messages = self.trajectory.messages
        root = self._span("episode", "AGENT", messages[: self.begun], self._outcome(), range(len(messages)))
        children, calls = [], {}
        for place, message in enumerate(messages[self.begun :], self.begun):
            if message["role"] == "assistant":
                calls = {call["id"]: call["function"] for call in message.get("tool_calls") or []}
                children.append(self._span("turn", "LLM", None, message, range(place, place + 1), parent=True))
            elif message["role"] == "tool":
                call = calls.get(message.get("tool_call_id"), {})
                name, given, said = message.get("name") or "tool", call.get("arguments"), message["content"]
                children.append(self._span(name, "TOOL", given, said, range(place, place + 1), parent=True))
        return [root, *children]

    def _asked(self) -> str:
        """The user's last message before the episode's first turn: the task's prompt, also after an earlier conversation."""
        asked = (str(m["content"]) for m in reversed(self.trajectory.messages[: self.begun]) if m["role"] == "user")
        return next(asked, "")

    def _outcome(self) -> dict[str, Any]:
        return {"stop_reason": self.trajectory.stop_reason, "detail": self.trajectory.detail, "total": self.score.total}

    def _assessments(self) -> Iterator[Any]:
        from mlflow.entities import AssessmentError, AssessmentSource, Feedback

        source = AssessmentSource("CODE", "tracewheel.scoring.rubric")
        if self.score.total is None:
            error = AssessmentError(self.score.status.upper(), self.score.detail)
            yield Feedback(name="total", error=error, source=source, trace_id=self.id)
            return
        for name, value in {"total": self.score.total, **self.score.breakdown}.items():
            yield Feedback(name=name, value=value, source=source, trace_id=self.id)

    def _span(self, name: str, kind: str, inputs: Any, outputs: Any, covers: range, *, parent: bool = False) -> Any:
        """A span over some messages of the conversation."""
        from mlflow.entities.span import Span
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

        root_number = _number(self.id, "root", bits=64)
        number = _number(self.id, "span", covers.start, bits=64) if parent else root_number
        flags = TraceFlags(TraceFlags.SAMPLED)
        values = {"traceRequestId": self.id, "spanType": kind, "spanInputs": inputs, "spanOutputs": outputs}
        return Span(
            ReadableSpan(
                name=name,
                context=SpanContext(self.number, number, False, flags),
                parent=SpanContext(self.number, root_number, False, flags) if parent else None,
                attributes={f"mlflow.{key}": json.dumps(value) for key, value in values.items() if value is not None},
                start_time=self.start + covers.start * MILLISECOND,
                end_time=self.start + covers.stop * MILLISECOND,
                status=Status(StatusCode.OK),
            )
        )


def _number(*parts: object, bits: int) -> int:
    digest = hashlib.sha256("|".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[: bits // 8], "big") or 1
