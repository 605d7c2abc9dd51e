"""Reads the spans of one trace into a conversation, by the conventions that they follow."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tracewheel.core.types import Trace
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers import mlflow, openinference, otel
from tracewheel.traces.readers.building import Place, RawTrace, build_trace, object_field, time_text
from tracewheel.traces.readers.conversation import join_calls
from tracewheel.traces.readers.reader import Reader
from tracewheel.traces.readers.scores import MODEL, LoggedScore, judge_of, outcome_of, scores_info
from tracewheel.traces.readers.spans import Span, first_text, in_order, is_envelope, is_span, read_span

EVALUATION = "gen_ai.evaluation"
FAMILIES: tuple[ModuleType, ...] = (mlflow, openinference, otel)


def is_exported(value: Any) -> bool:
    """Whether a value is a span, or an export of spans."""
    return is_span(value) or is_envelope(value)


def read_of(family: ModuleType | None) -> Any:
    """A function that reads the spans of one trace by the given conventions, or by those that it recognises."""

    def read(values: Any, place: Place) -> Trace:
        spans = list(in_order([read_span(value) for value in values]))
        chosen = family or next((one for one in FAMILIES if any(map(one.recognises_span, spans))), None)
        if chosen is None:
            raise InvalidRecord("no messages", "no span of the trace is of a model call")
        return read_spans(spans, chosen, place)

    return read


def read_spans(spans: list[Span], family: ModuleType, place: Place) -> Trace:
    """The trace of these spans.

    Raises:
        InvalidRecord: they hold no conversation, or an invalid one.
    """
    conversation = join_calls(family.model_calls(spans), family.tool_runs(spans))
    if not conversation.messages:
        raise InvalidRecord("no messages", "no span of the trace has messages of a model call")
    attributes = {key: value for span in reversed(spans) for key, value in span.attributes.items()}
    starts = [span.start for span in spans if span.start]
    scores = span_scores(spans)
    return build_trace(
        family.FORMAT,
        place,
        RawTrace(
            conversation.messages,
            id=spans[0].trace_id,
            tools=conversation.tools,
            session=first_text(attributes, *family.SESSION_KEYS),
            user=first_text(attributes, *family.USER_KEYS),
            created=time_text(min(starts, default=None)),
            model=conversation.model,
            outcome=outcome_of(scores),
            info={
                "spans": len(spans),
                "root": spans[0].name,
                **scores_info(scores),
                "other_conversations": conversation.others,
            },
        ),
    )


def span_scores(spans: list[Span]) -> list[LoggedScore]:
    """The scores in OpenTelemetry's evaluation events (which name no judge: a model's) and in Phoenix's annotations.

    Args:
        spans: All spans of a trace, in order. Scores of the root and of the first agent span count for the whole trace.
    """
    agents = [
        span
        for span in spans
        if span.attributes.get("gen_ai.operation.name") == "invoke_agent" or span.attributes.get(openinference.KIND) == "AGENT"
    ]
    whole_ids = {span.span_id for span in (*spans[:1], *agents[:1])}
    scores = []
    for span in spans:
        whole = span.span_id in whole_ids
        for name, details in span.events:
            if name == f"{EVALUATION}.result":
                value, label = details.get(f"{EVALUATION}.score.value"), details.get(f"{EVALUATION}.score.label")
                scores.append(LoggedScore(details.get(f"{EVALUATION}.name"), value, MODEL, label, whole))
        for note in span.annotations:
            result = object_field(note, "result")
            judge = judge_of(note.get("annotator_kind"))
            scores.append(LoggedScore(note.get("name"), result.get("score"), judge, result.get("label"), whole))
    return scores


READERS = tuple(Reader(family.FORMAT, is_exported, read_of(family), "trace id") for family in (openinference, otel))
ANY_READER = Reader("spans", is_exported, read_of(None), "trace id")
