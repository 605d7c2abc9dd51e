"""Reads results of tau2-bench: `{"info", "tasks", "simulations"}`, or one simulation.

Source of the format: Barres et al., "tau2-bench: Evaluating Conversational Agents in a Dual-Control Environment", arXiv
2506.07982. A simulation is a trace; the trials of a task are attempts. The agent saw the user's texts and its own calls and
results; the user's calls and results, and the tasks with their expected actions, stay out. The policy is the system message.
"""

from __future__ import annotations

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
    list_field,
    message_list,
    object_field,
    reward_field,
    text_field,
    tool_call,
)

FORMAT = "tau2"
SIMULATION = {"task_id", "messages", "termination_reason"}
# The episode ended for a reason that is not the agent's: it is unscored, also where the log says 0.
FAILED = {"infrastructure_error", "user_error", "unexpected_error"}
KEPT = ("trial", "seed", "termination_reason", "duration", "agent_cost", "user_cost", "mode", "reward_info")


def recognises(value: Any) -> bool:
    """Whether these are results, or one simulation."""
    if not isinstance(value, dict):
        return False
    return _is_simulation(value) or ("tasks" in value and isinstance(value.get("simulations"), list))


def _is_simulation(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() >= SIMULATION and isinstance(value["messages"], list)


def split(value: dict[str, Any]) -> Iterator[Part]:
    """The simulations of one run."""
    info = object_field(value, "info")
    for simulation in list_field(value, "simulations") if "simulations" in value else [value]:
        yield Part((info, simulation), None, {"info": info, "tasks": [], "simulations": [simulation]})


def read(value: Any, place: Place) -> Trace:
    """The trace of one simulation.

    Raises:
        InvalidRecord: it cannot be read.
    """
    info, simulation = value
    environment = object_field(info, "environment_info")
    policy = text_field(environment, "policy") or text_field(simulation, "policy")
    said = [message for entry in message_list(simulation) for message in _each(entry)]
    messages = [read_as for message in said if (read_as := _message(message)) is not None]
    if policy and not (messages and messages[0]["role"] == "system"):
        messages.insert(0, {"role": "system", "content": policy})
    domain, task = text_field(environment, "domain_name"), text_field(simulation, "task_id")
    reason = simulation.get("termination_reason")
    reward = reward_field(object_field(simulation, "reward_info"), "reward")
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            messages,
            id=text_field(simulation, "id"),
            tools=as_tools(environment.get("tool_defs")),
            created=text_field(simulation, "start_time", "timestamp"),
            model=text_field(object_field(info, "agent_info"), "llm"),
            outcome=None if reason in FAILED else reward,
            task=f"{domain}/{task}" if domain and task else task,
            info={**{key: simulation.get(key) for key in KEPT}, "user_model": object_field(info, "user_info").get("llm")},
        ),
    )


def _each(entry: Any) -> list[Any]:
    """The results of calls that were made together are one entry."""
    return list_field(entry, "tool_messages") if isinstance(entry, dict) and "tool_messages" in entry else [entry]


def _message(message: Any) -> dict[str, Any] | None:
    """A message as the agent saw it; None of what only the user saw."""
    if not isinstance(message, dict):
        raise InvalidRecord("message unreadable", "a message is not an object")
    role, text = message.get("role"), message.get("content")
    calls = [call for call in list_field(message, "tool_calls") if isinstance(call, dict)]
    if role == "tool":
        if message.get("requestor") == "user":
            return None
        return {"role": "tool", "tool_call_id": message.get("id"), "content": as_text(text)}
    if role != "assistant":
        return None if calls and not text else {"role": role, "content": text or ""}
    read_as: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        read_as["content"] = text or None
        read_as["tool_calls"] = [tool_call(call.get("id"), call.get("name"), call.get("arguments")) for call in calls]
    return read_as


READERS = (Reader(FORMAT, recognises, read, signs=Signs.NAMED, split=split),)
