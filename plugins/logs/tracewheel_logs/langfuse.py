"""Reads Langfuse's exports: `{"trace", "observations"}`, or a trace with its observations, as the API returns it.

Generations are model calls, in the dialect of the traced framework (`langfuse_calls`); what was read is checked against the
trace's own output. An object of observation ids to chat messages
(`{"input": {"success", "data"}, "output"}`), as written by Langfuse's own normalisation, is read too.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from tracewheel import (
    Conversation,
    InvalidRecord,
    LoggedScore,
    ModelCall,
    Place,
    RawTrace,
    Reader,
    Trace,
    as_chat,
    as_tools,
    build_trace,
    join_calls,
    judge_of,
    list_field,
    object_field,
    outcome_of,
    parsed_json,
    scores_info,
    text_field,
    texts_of,
)
from tracewheel_logs.langfuse_calls import is_tool_run, model_calls, said_by, tool_run

FORMAT = "langfuse"
WORD = re.compile(r"\w+")
# An application may reword what its agent said; less than this share of its words in common is another text.
SHARE_READ = 0.8
KEPT = ("name", "tags", "version", "release", "environment")


def recognises(value: Any) -> bool:
    """Whether this is one trace."""
    if not isinstance(value, dict):
        return False
    if "observations" in value:
        if not isinstance(value["observations"], list):
            return False
        return isinstance(value.get("trace"), dict) or "id" in value
    return bool(value) and all(map(_is_normalised, value.values()))


def _is_normalised(observation: Any) -> bool:
    if not isinstance(observation, dict) or observation.keys() != {"input", "output"}:
        return False
    return all(isinstance(side, dict) and "success" in side for side in observation.values())


def read(value: Any, place: Place) -> Trace:
    """The trace of one export.

    Raises:
        InvalidRecord: it cannot be read.
    """
    if "observations" not in value:
        return _read_normalised(value, place)
    about = value["trace"] if isinstance(value.get("trace"), dict) else value
    observations = [observation for observation in value["observations"] if isinstance(observation, dict)]
    calls = model_calls(observations)
    if not any(call.inputs or call.outputs for call in calls):
        calls = [ModelCall(0, said_by(about.get("input"), "user"), said_by(about.get("output"), "assistant"))]
    conversation = join_calls(calls, [tool_run(observation) for observation in observations if is_tool_run(observation)])
    if not conversation.messages:
        raise InvalidRecord("no messages", "no generation of the trace has messages")
    conversation = _with_answer(about, conversation, calls)
    scores = _scores(about, observations)
    metadata = parsed_json(about.get("metadata"))
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            conversation.messages,
            id=text_field(about, "id"),
            tools=conversation.tools,
            session=text_field(about, "sessionId"),
            user=text_field(about, "userId"),
            created=text_field(about, "timestamp", "createdAt"),
            model=conversation.model,
            outcome=outcome_of(scores),
            info={
                **{key: about.get(key) for key in KEPT},
                "metadata": metadata if isinstance(metadata, dict) else None,
                **scores_info(scores),
                "other_conversations": conversation.others,
            },
        ),
    )


def _scores(about: dict[str, Any], observations: list[dict[str, Any]]) -> list[LoggedScore]:
    """The scores of a trace. Scores of its root observation count for the whole trace.

    A categorical score's value is an index into a list that is not exported, so its label is used instead.
    """
    roots = [None, *(observation.get("id") for observation in observations if not observation.get("parentObservationId"))]
    scores = []
    for score in list_field(about, "scores"):
        if isinstance(score, dict):
            label = score.get("stringValue") or None
            value = label if score.get("dataType") == "CATEGORICAL" else score.get("value")
            whole = (score.get("observationId") or None) in roots
            scores.append(LoggedScore(score.get("name"), value, judge_of(score.get("source")), label, whole))
    return scores


def _read_normalised(value: dict[str, Any], place: Place) -> Trace:
    calls = []
    for observation in value.values():
        inputs, outputs = (object_field(observation, side).get("data") for side in ("input", "output"))
        if isinstance(inputs, list) and isinstance(outputs, list):
            offered = [tool for message in inputs if isinstance(message, dict) for tool in list_field(message, "tools")]
            calls.append(ModelCall(0, as_chat(inputs), as_chat(outputs, "assistant"), None, as_tools(offered)))
    conversation = join_calls(sorted(calls, key=lambda call: len(call.inputs)), [])
    if not conversation.messages:
        raise InvalidRecord("no messages", "no observation has messages")
    info = {"other_conversations": conversation.others}
    return build_trace(FORMAT, place, RawTrace(conversation.messages, tools=conversation.tools, info=info))


def _with_answer(about: dict[str, Any], conversation: Conversation, calls: list[ModelCall]) -> Conversation:
    """The conversation with the trace's own output, if a model call lacks its output.

    Raises:
        InvalidRecord: the trace's output is in no conversation, and every call has an output of its own.
    """
    answers = [m for m in said_by(about.get("output"), "assistant") if m["role"] == "assistant" and m.get("content")]
    read = " ".join(texts_of([conversation.messages, conversation.others]))
    known = set(WORD.findall(read))
    for answer in answers[-1:]:
        words = set(WORD.findall(answer["content"]))
        if len(words & known) >= SHARE_READ * len(words):
            continue
        last = max(calls, key=lambda call: call.start)
        if conversation.messages[-1]["role"] != "assistant" or not last.outputs:
            return replace(conversation, messages=[*conversation.messages, answer])
        raise InvalidRecord(
            "content was not read", f"the trace's output {answer['content']!r:.60} is in none of its generations"
        )
    return conversation


READERS = (Reader(FORMAT, recognises, read),)
