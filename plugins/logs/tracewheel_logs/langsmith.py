"""Reads LangSmith's runs: one run a line, or run trees with their `child_runs`. The runs of one root run are one trace.

Runs of models are the conversation, runs of tools supply results that no later run shows. The name of a run's project is
`session_id` in LangSmith; a conversation's id is in the metadata (`thread_id`, `session_id` or `conversation_id`).
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
    as_text,
    as_tools,
    build_trace,
    ending,
    list_field,
    nanoseconds,
    object_field,
    parsed_json,
    text_field,
    tie_calls,
    with_ending,
)
from tracewheel_logs.langchain import flat, is_conversation, read_messages
from tracewheel_logs.model_calls import Conversation, ModelCall, ToolRun, join_calls
from tracewheel_logs.scores import LoggedScore, outcome_of, scores_info
from tracewheel_logs.values import failed_by

FORMAT = "langsmith"
KINDS = ("chain", "llm", "tool", "retriever", "embedding", "prompt", "parser")
MARKS = {"dotted_order", "parent_run_id", "trace_id", "child_runs", "session_id", "session_name", "child_run_ids"}
SOURCES = {"model": "model", "app": "person"}
TEXTS = ("inputs", "outputs", "extra", "feedback_stats", "tags", "events")
DEEPEST = 60


def recognises(value: Any) -> bool:
    """Whether this is a run, or an answer of the API that holds runs."""
    if isinstance(value, dict) and isinstance(value.get("runs"), list) and value["runs"]:
        return all(map(_is_run, value["runs"]))
    return _is_run(value)


def _is_run(value: Any) -> bool:
    return isinstance(value, dict) and value.get("run_type") in KINDS and "id" in value and bool(MARKS & value.keys())


def parts(value: Any) -> list[tuple[str, Any]]:
    """The runs of a run tree, each by the id of its trace."""
    found: list[tuple[str, Any]] = []
    for run in value["runs"] if isinstance(value.get("runs"), list) else [value]:
        _flatten(run, None, found, 0)
    return found


def _flatten(run: dict[str, Any], root: str | None, found: list[tuple[str, Any]], depth: int) -> None:
    if depth > DEEPEST:
        raise InvalidRecord("message unreadable", f"a run tree deeper than {DEEPEST} runs")
    order = text_field(run, "dotted_order") or ""
    # The first part of a dotted order is the root's start and, after its "Z", the root's id.
    trace = root or text_field(run, "trace_id") or order.split(".")[0].partition("Z")[2] or text_field(run, "id") or ""
    children = [child for child in list_field(run, "child_runs") if isinstance(child, dict)]
    found.append((trace, {key: part for key, part in run.items() if key != "child_runs"} if "child_runs" in run else run))
    for child in children:
        parent = {"parent_run_id": run.get("id")} if child.get("parent_run_id") is None else {}
        _flatten({**child, **parent}, trace, found, depth + 1)


def read(values: Any, place: Place) -> Trace:
    """The trace of one group of runs.

    Raises:
        InvalidRecord: it cannot be read.
    """
    merged: dict[str, dict[str, Any]] = {}
    for run in values:
        # A bulk export has these as JSON text.
        run = {key: parsed_json(part) if key in TEXTS else part for key, part in run.items()}
        known = merged.setdefault(as_text(run.get("id")), {})
        known |= {key: part for key, part in run.items() if part is not None or key not in known}
    runs = sorted(merged.values(), key=lambda run: (nanoseconds(run.get("start_time")), as_text(run.get("dotted_order"))))
    root = next((run for run in runs if run.get("parent_run_id") is None), runs[0])
    conversation = join_calls(
        [_model_call(run) for run in runs if run.get("run_type") == "llm"],
        [_tool_run(run) for run in runs if run.get("run_type") == "tool"],
    )
    if not conversation.messages:
        conversation = _of_root(root)
    if not conversation.messages:
        raise InvalidRecord("no messages", "no run of a model, nor the root run, has messages")
    metadata = _metadata(root)
    scores = [score for run in runs for score in _scores(run, run is root)]
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            conversation.messages,
            id=text_field(root, "trace_id", "id"),
            tools=conversation.tools,
            session=text_field(metadata, "thread_id", "session_id", "conversation_id"),
            user=text_field(metadata, "user_id", "user"),
            created=text_field(root, "start_time"),
            model=conversation.model,
            outcome=outcome_of(scores),
            task=text_field(root, "reference_example_id"),
            info={
                "name": root.get("name"),
                "project": root.get("session_name") or root.get("session_id"),
                "tags": root.get("tags"),
                "run_metadata": metadata,
                "errors": [run["error"] for run in runs if run.get("error")],
                "runs": len(runs),
                **scores_info(scores),
                "other_conversations": conversation.others,
            },
        ),
    )


def _metadata(run: dict[str, Any]) -> dict[str, Any]:
    return object_field(object_field(run, "extra"), "metadata")


def _chat(value: Any, default_role: str) -> list[dict[str, Any]]:
    """Messages of LangChain, of a provider's API, or a batch of one of these."""
    while isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    if is_conversation(value):
        return read_messages(value)
    return read_messages([value]) if flat(value) is not None else as_chat(value, default_role)


def _model_call(run: dict[str, Any]) -> ModelCall:
    inputs, outputs = object_field(run, "inputs"), object_field(run, "outputs")
    given = next((inputs[key] for key in ("messages", "prompts", "prompt", "input", "contents") if inputs.get(key)), None)
    asked = object_field(object_field(run, "extra"), "invocation_params")
    system = [{"role": "system", "content": inputs["system"]}] if isinstance(inputs.get("system"), str) else []
    tools = next((holder[key] for holder in (asked, inputs) for key in ("tools", "functions") if holder.get(key)), None)
    about = _metadata(run)
    named = (about.get("ls_model_name"), asked.get("model"), asked.get("model_name"), outputs.get("model"), inputs.get("model"))
    return ModelCall(
        nanoseconds(run.get("start_time")),
        system + _chat(given, "user"),
        _said(outputs),
        next((name for name in named if isinstance(name, str)), None),
        as_tools(tools),
        failed_by(run.get("error")),
    )


def _said(outputs: dict[str, Any]) -> list[dict[str, Any]]:
    """What a model said: LangChain's generations, a chat completion, or messages."""
    generations = outputs.get("generations")
    while isinstance(generations, list) and generations:
        generations = generations[0]
    if isinstance(generations, dict):
        said = generations.get("message")
        messages = _chat([said], "assistant") if isinstance(said, dict) else as_chat(generations.get("text"), "assistant")
        return with_ending(messages, ending(generations))
    for key in ("messages", "message", "output"):
        if outputs.get(key):
            return _chat(outputs[key], "assistant")
    return as_chat(outputs, "assistant")


def _tool_run(run: dict[str, Any]) -> ToolRun:
    outputs = run.get("outputs")
    output = outputs.get("output", outputs) if isinstance(outputs, dict) else outputs
    message = flat(output) or (output if isinstance(output, dict) and "tool_call_id" in output else None)
    identity = text_field(message, "tool_call_id") if message else None
    result = (read_messages([{"type": "tool", **message}])[0]["content"] if message else output) if output else run.get("error")
    return ToolRun(nanoseconds(run.get("start_time")), run.get("name"), identity, result)


def _of_root(root: dict[str, Any]) -> Conversation:
    """The conversation in the inputs and outputs of the root run, for traces without runs of models."""
    inputs, outputs = object_field(root, "inputs"), object_field(root, "outputs")
    given = _chat(inputs.get("messages"), "user") if inputs.get("messages") else as_chat(inputs)
    said = _chat(outputs["messages"], "assistant") if outputs.get("messages") else as_chat(outputs, "assistant")
    heads = [[message["role"], message.get("content")] for message in said[: len(given)]]
    repeats = heads == [[message["role"], message.get("content")] for message in given]
    return Conversation(tie_calls(said if repeats else given + said) if given and said else [], [], None, [])


def _scores(run: dict[str, Any], whole: bool) -> list[LoggedScore]:
    """The feedback on a run: each as given, or only the means by key, which name no source."""
    listed = [one for key in ("feedback", "feedbacks") for one in list_field(run, key) if isinstance(one, dict)]
    scores = []
    for one in listed:
        source = SOURCES.get(as_text(object_field(one, "feedback_source").get("type")), "")
        value = one.get("score") if one.get("score") is not None else one.get("value")
        scores.append(LoggedScore(one.get("key"), value, source, one.get("comment"), whole))
    if not listed:
        for key, stats in object_field(run, "feedback_stats").items():
            if isinstance(stats, dict) and stats.get("avg") is not None:
                scores.append(LoggedScore(key, stats["avg"], "", None, whole))
    return scores


READERS = (Reader(FORMAT, recognises, read, "group", Signs.NAMED, parts=parts),)
