"""Reads the spans of one trace, wherever they lay: which conventions they keep, and the conversation they come to."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tracewheel.traces import mlflow, openinference, otel
from tracewheel.traces.building import Place, build_trace, time_text
from tracewheel.traces.conversation import join_calls
from tracewheel.traces.quarantine import Unfit
from tracewheel.traces.reader import Reader
from tracewheel.traces.spans import Span, first_text, in_order, is_envelope, is_span, read_span
from tracewheel.types import Trace

FAMILIES: tuple[ModuleType, ...] = (mlflow, openinference, otel)


def is_exported(value: Any) -> bool:
    """Whether a value is a span, or an export of spans."""
    return is_span(value) or is_envelope(value)


def read_of(family: ModuleType | None) -> Any:
    """The function that reads the spans of one trace: by the given conventions, or by those that they keep."""

    def read(values: Any, place: Place) -> Trace:
        spans = list(in_order([read_span(value) for value in values]))
        chosen = family or next((one for one in FAMILIES if any(map(one.speaks, spans))), None)
        if chosen is None:
            raise Unfit("no messages", "no span of the trace is of a model call")
        return read_spans(spans, chosen, place)

    return read


def read_spans(spans: list[Span], family: ModuleType, place: Place) -> Trace:
    """The trace that spans come to.

    Raises:
        Unfit: there is no conversation in them, or it does not hold together.
    """
    conversation = join_calls(family.model_calls(spans), family.tool_runs(spans))
    if not conversation.messages:
        raise Unfit("no messages", "no span of the trace has messages of a model call")
    attributes = {key: value for span in reversed(spans) for key, value in span.attributes.items()}
    starts = [span.start for span in spans if span.start]
    return build_trace(
        family.FORMAT,
        place,
        conversation.messages,
        id=spans[0].trace_id,
        tools=conversation.tools,
        session=first_text(attributes, *family.SESSION_KEYS),
        user=first_text(attributes, *family.USER_KEYS),
        created=time_text(min(starts, default=None)),
        model=conversation.model,
        info={"spans": len(spans), "root": spans[0].name, "other_conversations": conversation.others},
    )


READERS = tuple(Reader(family.FORMAT, is_exported, read_of(family), "trace id") for family in (openinference, otel))
ANY_READER = Reader("spans", is_exported, read_of(None), "trace id")
