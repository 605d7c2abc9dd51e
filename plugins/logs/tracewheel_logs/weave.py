"""Reads calls exported from W&B Weave: one call a line, or lists of them. The calls of one trace are read together.

Calls of model clients (OpenAI's, Anthropic's, Gemini's) are the conversation; other calls supply the results of tools of
their name, if no later call of a model shows them.
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Signs,
    Trace,
    as_chat,
    as_tools,
    build_trace,
    ending,
    list_field,
    nanoseconds,
    object_field,
    read_parts,
    text_field,
)
from tracewheel_logs.dialogue import Dialogue
from tracewheel_logs.gemini import is_whole, read_contents
from tracewheel_logs.model_calls import ModelCall, ToolRun, join_calls
from tracewheel_logs.openai_responses import read_response_items
from tracewheel_logs.scores import LoggedScore, outcome_of, scores_info
from tracewheel_logs.values import failed_by

FORMAT = "weave"
MARKS = {"op_name", "trace_id", "started_at", "inputs"}
SCORER = "wandb.runnable."


def recognises(value: Any) -> bool:
    """Whether this is a call, or an answer of the API that holds calls."""
    if isinstance(value, dict) and isinstance(value.get("calls"), list) and value["calls"]:
        return all(map(_is_call, value["calls"]))
    return _is_call(value)


def _is_call(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() >= MARKS and isinstance(value["op_name"], str)


def parts(value: Any) -> list[tuple[str, Any]]:
    """The calls of an export by the id of their trace."""
    calls = value["calls"] if isinstance(value.get("calls"), list) else [value]
    return [(text_field(call, "trace_id") or text_field(call, "id") or "", call) for call in calls]


def read(values: Any, place: Place) -> Trace:
    """The trace of one group of calls.

    Raises:
        InvalidRecord: it cannot be read.
    """
    calls = sorted(values, key=lambda call: nanoseconds(call.get("started_at")))
    root = next((call for call in calls if not call.get("parent_id")), calls[0])
    pairs = [(call, _model_call(call)) for call in calls]
    runs = [_tool_run(call) for call, model_call in pairs if model_call is None and call is not root]
    conversation = join_calls([model_call for _, model_call in pairs if model_call is not None], runs)
    if not conversation.messages:
        raise InvalidRecord("no messages", "no call of the trace is one of a model with messages")
    attributes = object_field(root, "attributes")
    scores = [score for call in calls for score in _scores(call, call is root)]
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            conversation.messages,
            id=text_field(root, "trace_id"),
            tools=conversation.tools,
            session=text_field(root, "thread_id") or text_field(attributes, "session_id", "thread_id", "conversation_id"),
            user=text_field(attributes, "user_id", "user") or text_field(root, "wb_user_id"),
            created=text_field(root, "started_at"),
            model=conversation.model,
            outcome=outcome_of(scores),
            info={
                "name": root.get("display_name") or _operation(root),
                "project": root.get("project_id"),
                "attributes": {key: part for key, part in attributes.items() if key != "weave"},
                "errors": [call["exception"] for call in calls if call.get("exception")],
                "calls": len(calls),
                **scores_info(scores),
                "other_conversations": conversation.others,
            },
        ),
    )


def _operation(call: dict[str, Any]) -> str:
    """An operation's name without its address and version: `weave:///team/project/op/NAME:VERSION`."""
    return str(call["op_name"]).rsplit("/", 1)[-1].partition(":")[0]


def _model_call(call: dict[str, Any]) -> ModelCall | None:
    """A call of a model with what it was given and said; None for a call of anything else."""
    inputs = object_field(call, "inputs")
    output = call.get("output")
    said = output if isinstance(output, dict) else {}
    given, answer = Dialogue(), Dialogue()
    config = object_field(inputs, "config")
    tools = as_tools(inputs.get("tools"))
    if isinstance(inputs.get("messages"), list):
        if isinstance(inputs.get("system"), str | list) and inputs["system"]:
            given.said("system", read_parts(inputs["system"]).text or "")
        given.extend(as_chat(inputs["messages"]))
        if isinstance(said.get("choices"), list) and said["choices"] and isinstance(said["choices"][0], dict):
            answer.extend(as_chat([said["choices"][0].get("message")], "assistant"))
        elif isinstance(said.get("content"), str | list) or said.get("role") == "assistant":
            answer.extend(as_chat([{"role": "assistant", "content": said.get("content")}]))
        elif said:
            return None
    elif said.get("object") == "response" or isinstance(inputs.get("input"), list):
        if isinstance(inputs.get("instructions"), str):
            given.said("system", inputs["instructions"])
        read_response_items(inputs.get("input"), given)
        read_response_items(said.get("output"), answer)
    elif isinstance(said.get("candidates"), list) and (
        is_whole(inputs.get("contents")) or isinstance(inputs.get("contents"), str)
    ):
        contents = inputs["contents"]
        read_contents([{"role": "user", "parts": [{"text": contents}]}] if isinstance(contents, str) else contents, given)
        first = said["candidates"][0] if said["candidates"] else None
        read_contents([{"role": "model", **object_field(first, "content")}] if isinstance(first, dict) else [], answer)
        tools = as_tools(list_field(config, "tools"))
    else:
        return None
    model = text_field(said, "model", "model_version") or (inputs["model"] if isinstance(inputs.get("model"), str) else None)
    answers = [one for key in ("choices", "candidates") for one in list_field(said, key)[:1]]
    ended = ending(*answers, said) or failed_by(call.get("exception"))
    return ModelCall(nanoseconds(call.get("started_at")), given.messages(), answer.messages(), model, tools, ended)


def _tool_run(call: dict[str, Any]) -> ToolRun:
    output = call.get("output") if call.get("output") is not None else call.get("exception")
    return ToolRun(nanoseconds(call.get("started_at")), _operation(call), None, output)


def _scores(call: dict[str, Any], whole: bool) -> list[LoggedScore]:
    """The feedback in a call's summary: what scorers gave, and people's reactions and notes."""
    scores = []
    for one in list_field(object_field(object_field(call, "summary"), "weave"), "feedback"):
        kind = one.get("feedback_type") if isinstance(one, dict) else None
        payload = object_field(one, "payload") if isinstance(kind, str) else {}
        if isinstance(kind, str) and kind.startswith(SCORER):
            output = payload.get("output")
            named = output if isinstance(output, dict) else {kind.removeprefix(SCORER): output}
            scores += [LoggedScore(name, value, "", None, whole) for name, value in named.items()]
        elif isinstance(kind, str):
            scores.append(LoggedScore(kind, next(iter(payload.values()), None), "person", None, whole))
    return scores


READERS = (Reader(FORMAT, recognises, read, "group", Signs.NAMED, parts=parts),)
