"""Reads the memory of a smolagents agent: a list of steps, as `agent.memory.get_full_steps()` and `get_succinct_steps()` give
it, or a `RunResult` with such steps.

A tool-calling agent's step is a turn with calls and their replies. A code agent writes its code as text, which stays text, and
the observation is the user's, as the model saw it. Several calls share one observation: the last gets it, the others an
empty reply.
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Trace,
    as_text,
    build_trace,
    identity_of,
    list_field,
    object_field,
    read_parts,
    tool_call,
)
from tracewheel_logs.values import time_text

FORMAT = "smolagents"
TASK, PLAN, ACTION = {"task", "task_images"}, {"plan", "timing"}, {"step_number", "timing", "observations"}
GO_ON = "Now proceed and carry out this plan."


def is_step(value: Any) -> bool:
    """Whether this is one step."""
    return isinstance(value, dict) and any(value.keys() >= keys for keys in (TASK, PLAN, ACTION, {"system_prompt"}))


def recognises(value: Any) -> bool:
    """Whether this is the result of a run with its steps."""
    steps = value.get("steps") if isinstance(value, dict) else None
    return isinstance(steps, list) and bool(steps) and {"output", "state"} <= value.keys() and is_step(steps[0])


def read_result(value: Any, place: Place) -> Trace:
    """The trace of a run's result. Its `state` says how the run ended, which is no outcome.

    Raises:
        InvalidRecord: it cannot be read.
    """
    return _trace(value["steps"], place, {"state": value["state"]})


def read(value: Any, place: Place) -> Trace:
    """The trace of a list of steps.

    Raises:
        InvalidRecord: it cannot be read.
    """
    return _trace(value, place, {})


def _trace(steps: list[Any], place: Place, info: dict[str, Any]) -> Trace:
    messages: list[dict[str, Any]] = []
    usage: dict[str, int] = {}
    started: list[float] = []
    for position, step in enumerate(steps):
        if not is_step(step):
            raise InvalidRecord("message unreadable", f"step {position} is no step of smolagents")
        _append(messages, step)
        for name, count in object_field(step, "token_usage").items():
            usage[name] = usage.get(name, 0) + (count if isinstance(count, int) else 0)
        start = object_field(step, "timing").get("start_time")
        started += [float(start)] if isinstance(start, int | float) else []
    created = time_text(int(min(started) * 1e9)) if started else None
    return build_trace(FORMAT, place, RawTrace(messages, created=created, info={**info, "usage": usage}))


def _append(messages: list[dict[str, Any]], step: dict[str, Any]) -> None:
    if isinstance(step.get("system_prompt"), str):
        messages.append({"role": "system", "content": step["system_prompt"]})
    elif step.keys() >= TASK:
        messages.append({"role": "user", "content": "\n".join([as_text(step["task"]), *_images(step["task_images"])])})
    else:
        _add_system(messages, step)
        messages += _planned(step) if step.keys() >= PLAN else _acted(step)


def _add_system(messages: list[dict[str, Any]], step: dict[str, Any]) -> None:
    """The system prompt, which only the inputs of the model hold."""
    first = next(iter(list_field(step, "model_input_messages")), None)
    if isinstance(first, dict) and first.get("role") == "system" and not any(m["role"] == "system" for m in messages):
        messages.insert(0, {"role": "system", "content": read_parts(first.get("content")).text or ""})


def _planned(step: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": as_text(step["plan"])}, {"role": "user", "content": GO_ON}]


def _acted(step: dict[str, Any]) -> list[dict[str, Any]]:
    said = object_field(step, "model_output_message")
    text = read_parts(said.get("content") if said else step.get("model_output")).text
    calls = [_call(call) for call in list_field(said, "tool_calls") if isinstance(call, dict)]
    error = object_field(step, "error")
    mark = "" if calls else "Observation:\n"
    seen = [mark + as_text(step["observations"])] if step.get("observations") is not None else []
    seen += [f"Error:\n{as_text(error.get('message'))}"] if error else []
    if images := _images(step.get("observations_images")):
        seen[-1:] = ["\n".join([*seen[-1:], *images])]
    if not calls:
        turn = [{"role": "assistant", "content": text}] if text is not None else []
        return turn + [{"role": "user", "content": one} for one in seen]
    messages: list[dict[str, Any]] = [{"role": "assistant", "content": text or None, "tool_calls": calls}]
    if not seen:  # the final answer
        return messages
    texts = [""] * (len(calls) - 1) + ["\n".join(seen)]
    replies = zip(calls, texts, strict=True)
    return messages + [{"role": "tool", "tool_call_id": call["id"], "content": one} for call, one in replies]


def _images(images: Any) -> list[str]:
    """Placeholders for images, which are there as text, if at all."""
    parts = [{"type": "image", "data": as_text(image)} for image in images or ()]
    return [read_parts(part).text or "" for part in parts]


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = object_field(call, "function")
    return tool_call(identity_of(call.get("id")), function.get("name"), function.get("arguments"))


READERS = (Reader(FORMAT, recognises, read_result), Reader(FORMAT, is_step, read, "list"))
