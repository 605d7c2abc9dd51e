"""Reads trajectories in Harbor's agent trajectory interchange format (ATIF, v1.0 to v1.8): steps of user, system and agent.

An agent's step is an assistant turn, and its observation holds the replies to its calls. Results that name no call are
assigned to the step's calls in order; of several calls with one such result, the last gets it and the others an empty
reply. The observation of a step without calls becomes a user message, as the model saw it.

A trajectory that goes on in another file begins there with the steps that the model still saw, marked `is_copied_context`. Each
file is a trace, as the model saw it; they share the session, and `info.copied_messages` counts what belongs to the file
before. Embedded trajectories of sub-agents are traces of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tracewheel import (
    InvalidRecord,
    Part,
    Place,
    RawTrace,
    Reader,
    Signs,
    Trace,
    as_text,
    as_tools,
    build_trace,
    identity_of,
    list_field,
    nanoseconds,
    object_field,
    read_parts,
    reward_field,
    text_field,
    tool_call,
)
from tracewheel_logs.values import time_text

FORMAT = "atif"
# What our own writer adds to `extra`.
OPENAI_MESSAGE, ARGUMENTS_TEXT = "openai_message", "arguments_text"
CONTINUED = re.compile(r"-cont-\d+$")
KEPT = ("schema_version", "final_metrics", "notes", "extra", "continued_trajectory_ref")


def recognises(value: Any) -> bool:
    """Whether this is one trajectory."""
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        return False
    version = value.get("schema_version")
    return isinstance(version, str) and version.upper().startswith("ATIF")


def split(value: dict[str, Any]) -> Iterator[Part]:
    """The trajectory, and those of its sub-agents; a sub-agent belongs to the session of its parent."""
    yield Part(value, None, value)
    for inner in list_field(value, "subagent_trajectories"):
        whole = {"schema_version": value["schema_version"], "session_id": value.get("session_id"), **inner}
        for part in split({**whole, "steps": list_field(whole, "steps")}):
            yield part._replace(value={**part.value, "parent": value.get("trajectory_id") or value.get("session_id")})


def read(value: Any, place: Place) -> Trace:
    """The trace of one trajectory. Token ids and log-probabilities are kept if every agent step has them.

    Raises:
        InvalidRecord: it cannot be read.
    """
    steps = value["steps"]
    if not steps:
        raise InvalidRecord("no messages", "'steps' is to be a list with at least one step")
    agent = object_field(value, "agent")
    messages: list[dict[str, Any]] = []
    copied = 0
    for position, step in enumerate(steps):
        if not isinstance(step, dict):
            raise InvalidRecord("message unreadable", f"step {position} is not an object")
        before = len(messages)
        _append(messages, step, position)
        copied += (len(messages) - before) if step.get("is_copied_context") else 0
    own = [step for step in steps if not step.get("is_copied_context")]
    models = [step["model_name"] for step in own if isinstance(step.get("model_name"), str)]
    times = [nanoseconds(step["timestamp"]) for step in own if step.get("timestamp")]
    session = text_field(value, "session_id")
    info = {key: value.get(key) for key in KEPT} | {"copied_messages": copied or None, "parent": value.get("parent")}
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            messages,
            id=text_field(value, "trajectory_id"),
            tools=as_tools(agent.get("tool_definitions")),
            session=CONTINUED.sub("", session) if session else None,
            created=time_text(min(times, default=0) or None),
            model=models[0] if models else text_field(agent, "model_name"),
            outcome=reward_field(value, "reward"),
            tokens=_tokens(own),
            info={**info, "agent": {key: part for key, part in agent.items() if key != "tool_definitions"}},
        ),
    )


def _append(messages: list[dict[str, Any]], step: dict[str, Any], position: int) -> None:
    source = step.get("source")
    text = read_parts(step.get("message")).text
    if source == "agent":
        _append_turn(messages, step, text)
    elif source == "user":
        messages.append({"role": "user", "content": text} | _kept(step))
    elif source == "system":
        # After the first assistant turn, the model sees the harness's messages as the user's.
        has_begun = any(message["role"] == "assistant" for message in messages)
        messages.append(
            {"role": "user", "content": text, "name": "system"}
            if has_begun
            else {"role": "system", "content": text} | _kept(step)
        )
    else:
        raise InvalidRecord("unknown role", f"step {position} has the source {source!r:.40}")
    if source != "agent":
        results = list_field(object_field(step, "observation"), "results")
        messages += [{"role": "user", "content": _result_text(result)} for result in results if isinstance(result, dict)]


def _kept(holder: dict[str, Any]) -> dict[str, Any]:
    """What our own writer kept of the OpenAI message, for which ATIF has no field."""
    return object_field(object_field(holder, "extra"), OPENAI_MESSAGE)


def _append_turn(messages: list[dict[str, Any]], step: dict[str, Any], text: str | None) -> None:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    calls = [_call(call) for call in list_field(step, "tool_calls")]
    if calls:
        message["tool_calls"] = calls
    if isinstance(step.get("reasoning_content"), str):
        message["reasoning"] = step["reasoning_content"]
    messages.append(message | _kept(step))
    results = [result for result in list_field(object_field(step, "observation"), "results") if isinstance(result, dict)]
    if not calls:
        messages += [{"role": "user", "content": _result_text(result)} for result in results]
        return
    named = [
        (call_id, _result_text(result), _kept(result))
        for result in results
        if (call_id := identity_of(result.get("source_call_id")))
    ]
    nameless = [result for result in results if not identity_of(result.get("source_call_id"))]
    replied = {call_id for call_id, *_ in named}
    waiting = [call["id"] for call in calls if call["id"] not in replied] if nameless else []
    texts = [""] * (len(waiting) - len(nameless)) + [_result_text(result) for result in nameless]
    if nameless and not waiting:  # every call has one: `build_trace` leaves these out
        named += [("", text, {}) for text in texts]
        texts = []
    if len(texts) > len(waiting) > 0:
        texts = [*texts[: len(waiting) - 1], "\n".join(texts[len(waiting) - 1 :])]
    replies = [*named, *((call_id, content, {}) for call_id, content in zip(waiting, texts, strict=True))]
    messages += [{"role": "tool", "tool_call_id": call_id, "content": content} | kept for call_id, content, kept in replies]


def _call(call: Any) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise InvalidRecord("tool calls unreadable", "a tool call is not an object")
    written = object_field(call, "extra").get(ARGUMENTS_TEXT)
    made = tool_call(identity_of(call.get("tool_call_id")), call.get("function_name"), call.get("arguments"))
    if isinstance(written, str):
        made["function"]["arguments"] = written
    return made


def _result_text(result: dict[str, Any]) -> str:
    content = result.get("content")
    if isinstance(content, list):
        return read_parts(content).text or ""
    if content is None and result.get("subagent_trajectory_ref"):
        return as_text(result["subagent_trajectory_ref"])
    return as_text(content)


def _tokens(steps: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The tokens of the whole episode, if each step's prompt continues the step before; else None."""
    ids: list[Any] = []
    logprobs: list[float] = []
    mask: list[int] = []
    for step in steps:
        metrics = object_field(step, "metrics")
        sampled, prompt = metrics.get("completion_token_ids"), metrics.get("prompt_token_ids")
        if step.get("source") != "agent":
            continue
        if not isinstance(sampled, list) or not isinstance(prompt, list) or prompt[: len(ids)] != ids:
            return None
        drawn = metrics.get("logprobs")
        seen = len(prompt) - len(ids)
        known = isinstance(drawn, list) and len(drawn) == len(sampled)
        logprobs += [0.0] * seen + (drawn if known and drawn else [float("nan")] * len(sampled))
        mask += [0] * seen + [1] * len(sampled)
        ids = [*prompt, *sampled]
    if not ids or not all(isinstance(token, int) for token in ids):
        return None
    complete = all(isinstance(number, int | float) and number == number for number in logprobs)
    return {"token_ids": ids, "logprobs": logprobs if complete else None, "action_mask": mask}


READERS = (Reader(FORMAT, recognises, read, split=split, signs=Signs.NAMED),)
