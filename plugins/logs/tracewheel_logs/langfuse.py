"""Reads Langfuse's exports: `{"trace", "observations"}`, or a trace with its observations, as the API returns it.

Rows of the APIs for observations (v1 and v2) and for scores (v1 to v3), each alone, in a list or in a page `{"data", "meta"}`,
are gathered by trace, in whichever files they are.

Generations are model calls, in the dialect of the traced framework (`langfuse_calls`); what was read is checked against the
trace's own output. An object of observation ids to chat messages
(`{"input": {"success", "data"}, "output"}`), as written by Langfuse's own normalisation, is read too.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Trace,
    as_chat,
    as_tools,
    build_trace,
    list_field,
    nanoseconds,
    object_field,
    parsed_json,
    text_field,
    texts_of,
)
from tracewheel_logs.langfuse_calls import is_tool_run, model_calls, said_by, tool_run
from tracewheel_logs.model_calls import Conversation, ModelCall, join_calls
from tracewheel_logs.scores import LoggedScore, judge_of, judged_of, outcome_of, scores_info

FORMAT = "langfuse"
PERSON, MODEL = "person", "model"  # who gave a score, beside programs
WORD = re.compile(r"\w+")
# An application may reword what its agent said; less than this share of its words in common is another text.
SHARE_READ = 0.8
KEPT = ("name", "tags", "version", "release", "environment")
TYPES = {
    "SPAN", "EVENT", "GENERATION", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL",
}  # fmt: skip
# What an observation says of its trace (v2), by its name in a trace.
OF_TRACE = {"name": "traceName", "sessionId": "sessionId", "userId": "userId"} | {key: key for key in KEPT[1:]}


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
    if not isinstance(observation, dict) or not observation or not observation.keys() <= {"input", "output"}:
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
    runs = [tool_run(observation) for observation in observations if is_tool_run(observation)]
    half = any(not call.inputs or not (call.outputs or call.ended) for call in calls)
    if not any(call.inputs or call.outputs for call in calls):
        calls = [ModelCall(0, said_by(about.get("input"), "user"), said_by(about.get("output"), "assistant"))]
    conversation = join_calls(calls, runs)
    if conversation.messages and conversation.messages[0]["role"] in ("assistant", "tool"):
        conversation = replace(conversation, messages=[*said_by(about.get("input"), "user"), *conversation.messages])
    called = sum(
        len(message.get("tool_calls") or ())
        for message in [*conversation.messages, *itertools.chain.from_iterable(conversation.others)]
    )
    if half and called < len(runs):
        raise InvalidRecord(
            "content was not read",
            f"{len(runs)} tools ran, {called} calls of them are in the generations, and one of these has no input or no output",
        )
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
            value = score.get("value")
            label = score.get("stringValue") or (value if isinstance(value, str) else None)
            value = label if score.get("dataType") == "CATEGORICAL" else value
            whole = (score.get("observationId") or None) in roots
            scores.append(LoggedScore(score.get("name"), value, judge_of(score.get("source")), label, whole))
    return scores


def recognises_rows(value: Any) -> bool:
    """Whether this is an observation or a score of the API, or a page of them."""
    return any(map(_is_row, value["data"])) if _is_page(value) else _is_row(value)


def _is_page(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("data"), list) and isinstance(value.get("meta"), dict)


def _is_row(value: Any) -> bool:
    value = _camel(value)
    return _is_observation(value) or _is_score(value) or _is_trace(value)


def _camel(row: Any) -> Any:
    """A row of the bulk export (Langfuse 3), whose names have underscores, with the API's names; any other unchanged."""
    if not isinstance(row, dict) or not isinstance(row.get("project_id"), str):
        return row
    names = {key: head + "".join(map(str.title, rest)) for key in row for head, *rest in [key.split("_")]}
    row = {names[key]: value for key, value in row.items()}
    return row | ({"model": row["providedModelName"]} if row.get("providedModelName") else {})


def _is_trace(value: Any) -> bool:
    """Whether this is a trace's own row in a bulk export."""
    return (
        isinstance(value, dict) and {"id", "timestamp", "projectId", "input", "output"} <= value.keys() and "type" not in value
    )


def _is_observation(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("traceId"), str):
        return False
    return isinstance(value.get("id"), str) and value.get("type") in TYPES and "startTime" in value


def _is_score(value: Any) -> bool:
    if not isinstance(value, dict) or not {"id", "name", "dataType", "source"} <= value.keys():
        return False
    return isinstance(value.get("subject"), dict) or bool({"traceId", "sessionId"} & value.keys())


def rows(value: Any) -> list[tuple[str, Any]]:
    """The rows of a page, or the one row, each with the id of its trace.

    Raises:
        InvalidRecord: one is of no trace.
    """
    found = []
    for row in map(_camel, value["data"] if _is_page(value) else [value]):
        row = {**row, "traceId": row["id"]} if _is_trace(row) else row
        row = _with_trace_id(row) if _is_score(row) else row
        name = text_field(row, "traceId", "sessionId") if isinstance(row, dict) else None
        if not name:
            raise InvalidRecord("no messages", "a row of Langfuse that is of no trace and no session")
        found.append((name if row.get("traceId") else f"session {name}", row))
    return found


def _with_trace_id(score: dict[str, Any]) -> dict[str, Any]:
    """A score of the API v3, which names what it scores as `subject`, in the form of the earlier ones."""
    subject = score.get("subject")
    if not isinstance(subject, dict):
        return score
    if subject.get("kind") == "observation":
        return {**score, "traceId": subject.get("traceId"), "observationId": subject.get("id")}
    return {**score, f"{subject.get('kind')}Id": subject.get("id")}


def states(values: list[Any]) -> list[dict[str, Any]] | None:
    """What scores say of a trace whose observations were read before, or of a session: the outcome of each kind of source.

    Scores of single observations say nothing, as do those of other names than a success or a total has.
    """
    if any(_is_observation(row) or _is_trace(row) for row in values):
        return None
    whole = [row for row in values if not row.get("observationId")]
    lines = []
    for judge, kind in (("", "verified"), (PERSON, "label"), (MODEL, "judge")):
        rows = [row for row in whole if judge_of(row.get("source")) == judge]
        scores = _scores({"scores": rows}, [])
        value = judged_of(scores) if judge else outcome_of(scores)
        if value is not None:
            named = {"id": rows[0]["traceId"]} if rows[0].get("traceId") else {"session": rows[0]["sessionId"]}
            said = max(str(row.get("timestamp") or "") for row in rows) or None
            lines.append({"type": "tracewheel.outcome", **named, "value": value, "kind": kind, "said": said})
    return lines


def read_rows(values: Any, place: Place) -> Trace:
    """The trace of its observations and scores; of several versions of a row, the last.

    Raises:
        InvalidRecord: it cannot be read.
    """
    traces = [row for row in values if _is_trace(row)]
    latest = {row.get("id"): row for row in values if not _is_trace(row)}.values()
    observations = sorted(filter(_is_observation, latest), key=lambda row: nanoseconds(row["startTime"]))
    if traces and not observations:
        raise InvalidRecord("no messages", "a trace without its observations, whose files are to be read together with it")
    if traces:
        scored = {**traces[-1], "scores": [row for row in latest if _is_score(row)]}
        return read({"trace": scored, "observations": observations}, place)
    known = {row["id"] for row in observations}
    roots = [row for row in observations if row.get("isRootObservation") or row.get("parentObservationId") not in known]
    about: dict[str, Any] = {"id": observations[0]["traceId"], "timestamp": observations[0]["startTime"]}
    about |= {name: next((row[key] for row in observations if row.get(key)), None) for name, key in OF_TRACE.items()}
    if len(roots) == 1:
        about |= {side: roots[0].get(side) for side in ("input", "output")}
    about["scores"] = [row for row in latest if _is_score(row)]
    return read({"trace": about, "observations": observations}, place)


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
        InvalidRecord: the agent answered, the trace's output is in no conversation, and every call has an output of its own.
    """
    answers = [m for m in said_by(about.get("output"), "assistant") if m["role"] == "assistant" and m.get("content")]
    read = " ".join(texts_of([conversation.messages, conversation.others]))
    known = set(WORD.findall(read))
    for answer in answers[-1:]:
        if conversation.messages[-1].get("tool_calls"):
            continue  # it ended by a call: what the program wrote then, such as "done", is no answer of the agent
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


READERS = (
    Reader(FORMAT, recognises, read),
    Reader(FORMAT, recognises_rows, read_rows, "group", parts=rows, states=states),
)
