"""Reads Langfuse's exports: `{"trace", "observations"}`, or a trace with its observations, as the API returns it.

Generations are model calls, in the dialect of the traced framework. An object of observation ids to chat messages
(`{"input": {"success", "data"}, "output"}`), as written by Langfuse's own normalisation, is read too.
"""

from __future__ import annotations

from typing import Any

from tracewheel.core.types import Trace
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.building import Place, RawTrace, build_trace, list_field, object_field, text_field
from tracewheel.traces.readers.content import as_text
from tracewheel.traces.readers.conversation import ModelCall, ToolRun, join_calls
from tracewheel.traces.readers.dialects import as_chat, has_tool_definition, parsed
from tracewheel.traces.readers.reader import Reader
from tracewheel.traces.readers.scores import LoggedScore, judge_of, outcome_of, scores_info
from tracewheel.traces.readers.spans import nanoseconds
from tracewheel.traces.readers.tools import as_tools

FORMAT = "langfuse"
ATTRIBUTES_OF_TOOLS = ("gen_ai.tool.definitions", "ai.prompt.tools")
CALL_ID_KEYS = ("gen_ai.tool.call.id", "ai.toolCall.id", "tool_call.id")
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
    calls = [_model_call(observation) for observation in observations if observation.get("type") == "GENERATION"]
    if not any(call.inputs or call.outputs for call in calls):
        calls = [ModelCall(0, as_chat(about.get("input")), as_chat(about.get("output"), "assistant"))]
    conversation = join_calls(
        calls, [_tool_run(observation) for observation in observations if observation.get("type") == "TOOL"]
    )
    if not conversation.messages:
        raise InvalidRecord("no messages", "no generation of the trace has messages")
    scores = _scores(about, observations)
    metadata = parsed(about.get("metadata"))
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


def _model_call(observation: dict[str, Any]) -> ModelCall:
    """The model call of a generation. An OpenAI response object has the instructions and tools that the input lacks."""
    given, said = parsed(observation.get("input")), parsed(observation.get("output"))
    attributes = _attributes(observation)
    inputs = as_chat(given)
    offered = next((attributes[key] for key in ATTRIBUTES_OF_TOOLS if key in attributes), None)
    if isinstance(said, dict) and said.get("object") == "response":
        if isinstance(said.get("instructions"), str):
            inputs = [{"role": "system", "content": said["instructions"]}, *inputs]
        offered = said.get("tools")
    tools = as_tools(offered) or as_tools(observation.get("toolDefinitions")) or _tools_in(given) or _tools_asked(attributes)
    model = observation.get("model")
    start = nanoseconds(observation.get("startTime"))
    return ModelCall(start, inputs, as_chat(said, "assistant"), model if isinstance(model, str) else None, tools)


def _tools_in(given: Any) -> list[dict[str, Any]]:
    offered = [
        definition for message in (given if isinstance(given, list) else []) if (definition := has_tool_definition(message))
    ]
    offered += list_field(given, "tools") if isinstance(given, dict) else []
    return as_tools(offered)


def _tools_asked(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    parameters = parsed(attributes.get("model_request_parameters"))
    if not isinstance(parameters, dict):
        return []
    return as_tools([*list_field(parameters, "function_tools"), *list_field(parameters, "output_tools")])


def _tool_run(observation: dict[str, Any]) -> ToolRun:
    attributes = _attributes(observation)
    call_id = next((attributes[key] for key in CALL_ID_KEYS if isinstance(attributes.get(key), str)), None)
    names = [attributes.get(key) for key in ("gen_ai.tool.name", "tool.name", "ai.toolCall.name")]
    name = next((name for name in [*names, observation.get("name")] if isinstance(name, str)), None)
    result = observation.get("output")
    return ToolRun(nanoseconds(observation.get("startTime")), name, call_id, None if result is None else as_text(result))


def _attributes(observation: dict[str, Any]) -> dict[str, Any]:
    metadata = parsed(observation.get("metadata"))
    return object_field(metadata, "attributes") if isinstance(metadata, dict) else {}


READER = Reader(FORMAT, recognises, read)
