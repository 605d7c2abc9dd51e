"""Reads MLflow's traces: `{"info", "data": {"spans"}}`, or their spans exported alone.

A chat model's span has the conversation in its inputs and outputs. Where model spans have outputs only, as those that
Tracewheel logs, the conversation is the root's inputs followed by each span's outputs in order.
Source of the format: https://mlflow.org/docs/latest/genai/tracing/
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Trace,
    as_chat,
    as_text,
    as_tools,
    build_trace,
    list_field,
    nanoseconds,
    object_field,
    parsed_json,
    text_field,
)
from tracewheel_logs.model_calls import Conversation, ModelCall, ToolRun, join_calls
from tracewheel_logs.scores import LoggedScore, judge_of, outcome_of, scores_info
from tracewheel_logs.spans import Span, SpanConventions, first_text, read_span, spans_in_order
from tracewheel_logs.values import time_text

FORMAT = "mlflow"
KIND = "mlflow.spanType"
MODEL_KINDS = ("CHAT_MODEL", "LLM")
SESSION_KEYS = ("mlflow.trace.session", "session.id")
USER_KEYS = ("mlflow.trace.user", "user.id")


def recognises(value: Any) -> bool:
    """Whether this is one trace."""
    if not isinstance(value, dict) or not isinstance(value.get("info"), dict):
        return False
    return isinstance(value.get("data"), dict) and isinstance(value["data"].get("spans"), list)


def recognises_span(span: Span) -> bool:
    """Whether the span has MLflow's attributes."""
    return any(key.startswith("mlflow.") for key in span.attributes)


def read(value: Any, place: Place) -> Trace:
    """The trace of one MLflow trace.

    Raises:
        InvalidRecord: it cannot be read.
    """
    about = value["info"]
    written = [span for span in value["data"]["spans"] if isinstance(span, dict)]
    spans = list(spans_in_order([read_span(span) for span in written]))
    conversation = _conversation(spans)
    if not conversation.messages:
        raise InvalidRecord("no messages", "no span of the trace has messages of a model call")
    metadata = {**object_field(about, "request_metadata"), **object_field(about, "trace_metadata")}
    tags = object_field(about, "tags")
    scores = _scores(about)
    moment = nanoseconds(about.get("request_time") or about.get("timestamp_ms"))
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            conversation.messages,
            id=text_field(about, "trace_id", "request_id"),
            tools=conversation.tools,
            session=first_text(metadata, *SESSION_KEYS),
            user=first_text(metadata, *USER_KEYS),
            created=time_text(moment or None),
            model=conversation.model,
            outcome=outcome_of(scores),
            task=first_text(tags, "task_id"),
            info={
                "state": about.get("state") or about.get("status"),
                "tags": {name: tag for name, tag in tags.items() if not name.startswith("mlflow.")},
                **scores_info(scores),
                "other_conversations": conversation.others,
            },
        ),
    )


def _scores(about: dict[str, Any]) -> list[LoggedScore]:
    """The feedback on a trace, without expectations and without feedback that was replaced later."""
    scores = []
    for assessment in list_field(about, "assessments"):
        if isinstance(assessment, dict) and "expectation" not in assessment and assessment.get("valid") is not False:
            name, value = assessment.get("assessment_name") or assessment.get("name"), object_field(assessment, "feedback")
            judge = judge_of(object_field(assessment, "source").get("source_type"))
            scores.append(LoggedScore(name, value.get("value"), judge, whole=not assessment.get("span_id")))
    return scores


def _conversation(spans: list[Span]) -> Conversation:
    return join_calls(model_calls(spans), tool_runs(spans))


def model_calls(spans: list[Span]) -> list[ModelCall]:
    """The model calls in a trace's spans; the root's inputs and outputs where there are none.

    Raises:
        InvalidRecord: a message has content that is not text.
    """
    models = [span for span in spans if _attribute(span, KIND) in MODEL_KINDS]
    calls = [_model_call(span) for span in models or spans[:1]]
    if len(spans) > 1 and models and not any(call.inputs for call in calls):
        return [ModelCall(spans[0].start, _joined_outputs(spans), [], calls[0].model, calls[0].tools)]
    return calls


def _model_call(span: Span) -> ModelCall:
    inputs, outputs = _attribute(span, "mlflow.spanInputs"), _attribute(span, "mlflow.spanOutputs")
    # What was sent first: MLflow's own list has the keys of schemas in another order, which are other tokens.
    sent = as_tools(inputs.get("tools")) if isinstance(inputs, dict) else []
    offered = sent or as_tools(_attribute(span, "mlflow.chat.tools"))
    model = _attribute(span, "mlflow.llm.model") or (inputs.get("model") if isinstance(inputs, dict) else None)
    whole = _attribute(span, "mlflow.chat.messages")
    said = as_chat(whole if isinstance(whole, list) else inputs)
    replied = [] if isinstance(whole, list) else as_chat(outputs, "assistant")
    return ModelCall(span.start, said, replied, model if isinstance(model, str) else None, offered, span.ended)


def _joined_outputs(spans: list[Span]) -> list[dict[str, Any]]:
    """The conversation in spans that log new messages only."""
    messages = as_chat(_attribute(spans[0], "mlflow.spanInputs"))
    waiting: list[dict[str, Any]] = []
    for span in spans[1:]:
        outputs = _attribute(span, "mlflow.spanOutputs")
        if _attribute(span, KIND) in MODEL_KINDS:
            messages += as_chat(outputs, "assistant")
            waiting = list(messages[-1].get("tool_calls") or []) if messages else []
        elif _attribute(span, KIND) == "TOOL" and waiting:
            call = next((call for call in waiting if call["function"]["name"] == span.name), waiting[0])
            waiting.remove(call)
            messages.append({"role": "tool", "tool_call_id": call["id"], "name": span.name, "content": as_text(outputs)})
    return messages


def tool_runs(spans: list[Span]) -> list[ToolRun]:
    """The runs of tools in a trace's spans."""
    runs = []
    for span in spans:
        if _attribute(span, KIND) == "TOOL":
            result = _attribute(span, "mlflow.spanOutputs")
            runs.append(ToolRun(span.start, span.name, None, result))
    return runs


def _attribute(span: Span, key: str) -> Any:
    """An attribute's value; MLflow writes it as JSON text, even if it is a string."""
    value = span.attributes.get(key)
    if isinstance(value, str) and value[:1] == '"' and value[-1:] == '"':
        inner = parsed_json(f"[{value}]")
        return inner[0] if isinstance(inner, list) and len(inner) == 1 else value
    return parsed_json(value)


CONVENTIONS = SpanConventions(FORMAT, recognises_span, model_calls, tool_runs, SESSION_KEYS, USER_KEYS)
READERS = (Reader(FORMAT, recognises, read),)
