"""Reads the spans of one trace, wherever they lay: which conventions they keep, and the conversation they come to."""

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
    """The function that reads the spans of one trace: by the given conventions, or by those that they keep."""

    def read(values: Any, place: Place) -> Trace:
        spans = list(in_order([read_span(value) for value in values]))
        chosen = family or next((one for one in FAMILIES if any(map(one.recognises_span, spans))), None)
        if chosen is None:
            raise InvalidRecord("no messages", "no span of the trace is of a model call")
        return read_spans(spans, chosen, place)

    return read


def read_spans(spans: list[Span], family: ModuleType, place: Place) -> Trace:
    """The trace that spans come to.

    Raises:
        InvalidRecord: there is no conversation in them, or it does not hold together.
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
    """What was said of spans: in events of OpenTelemetry's, which do not say by whom (a model), and in Phoenix's annotations.

    Args:
        spans: All of a trace, in order. Of the whole is what is said of the outermost one and of the first agent's.
    """
    agents = [
        span
        for span in spans
        if span.attributes.get("gen_ai.operation.name") == "invoke_agent" or span.attributes.get(openinference.KIND) == "AGENT"
    ]
    of_the_whole = {span.span_id for span in (*spans[:1], *agents[:1])}
    scores = []
    for span in spans:
        whole = span.span_id in of_the_whole
        for name, said in span.events:
            if name == f"{EVALUATION}.result":
                value, label = said.get(f"{EVALUATION}.score.value"), said.get(f"{EVALUATION}.score.label")
                scores.append(LoggedScore(said.get(f"{EVALUATION}.name"), value, MODEL, label, whole))
        for note in span.annotations:
            result = object_field(note, "result")
            judge = judge_of(note.get("annotator_kind"))
            scores.append(LoggedScore(note.get("name"), result.get("score"), judge, result.get("label"), whole))
    return scores


READERS = tuple(Reader(family.FORMAT, is_exported, read_of(family), "trace id") for family in (openinference, otel))
ANY_READER = Reader("spans", is_exported, read_of(None), "trace id")
