"""Writes ATIF 1.8, Harbor's agent trajectory interchange format. Checked by Harbor's own validator (docs/export.md).

What the format has no field for goes into its `extra` objects. `extra.openai_message` of a step or a result holds the keys
of the OpenAI message that ATIF lacks; our reader puts them back, so that a conversation comes back as it was.
"""

from __future__ import annotations

import json
from typing import Any

from tracewheel import Trace, __version__, parse_json
from tracewheel_lab.export.episode import Conversation, Episode, Message, SampledTurn, conversations

VERSION = "ATIF-v1.8"
# Keys of `extra` objects that Tracewheel's reader of ATIF knows.
OPENAI_MESSAGE, ARGUMENTS_TEXT = "openai_message", "arguments_text"
# Keys of messages that have a field in ATIF, or that the format implies.
PLACED = {"role", "content", "tool_calls", "tool_call_id", "reasoning", "reasoning_content"}


def write_episode(episode: Episode) -> list[dict[str, Any]]:
    """The documents of an episode: one for each conversation, all of one `session_id`.

    The conversations of other agents than the first are embedded in the first document, as the format has it for sub-agents.
    A conversation that goes on from an earlier one begins with copied context, which ATIF excludes from training.

    Raises:
        DataError: the trajectory is damaged.
    """
    found = conversations(episode.trajectory)
    first = found[0]
    documents = [_document(episode, one) for one in found]
    inner = [document for one, document in zip(found, documents, strict=True) if one.agent != first.agent]
    if inner:
        documents[0]["subagent_trajectories"] = inner
    return [document for one, document in zip(found, documents, strict=True) if one.agent == first.agent]


def write_trace(trace: Trace) -> dict[str, Any]:
    """The document of a logged conversation. Its tokens are in `extra`: a log does not say which turn sampled them."""
    named = {"reward": trace.outcome, "user": trace.user, "task_id": trace.task, "created": trace.created}
    kept = {"format": trace.format, "tokens": trace.tokens, "environment": trace.environment}
    return _without_none(
        {
            "schema_version": VERSION,
            "session_id": trace.session or trace.id,
            "trajectory_id": trace.id,
            "agent": _agent(
                str(trace.info.get("agent_name") or "unknown"), trace.model, None if trace.tools_inferred else trace.tools
            ),
            "steps": _steps(trace.messages, {}, 0),
            "extra": _without_none(named | kept),
        }
    )


def _document(episode: Episode, conversation: Conversation) -> dict[str, Any]:
    trajectory, score = episode.trajectory, episode.score
    turns = {turn.message: turn for turn in conversation.turns}
    extra: dict[str, Any] = {
        "task_id": trajectory.task_id,
        "reward": episode.reward,
        "stop_reason": trajectory.stop_reason,
        "detail": trajectory.detail or None,
        "fault": trajectory.fault or None,
        "traceback": trajectory.traceback or None,
        "sample": trajectory.sample,
        "seed": str(trajectory.seed),  # 64 bits: more than a reader with floats keeps
        "temperature": trajectory.temperature,
        "policy_version": trajectory.policy_version,
        "source": episode.source or None,
        "final_state": trajectory.final_state or None,
    }
    if score is not None:
        parts = {name: getattr(score, name) or None for name in ("status", "breakdown", "detail", "answer", "explanation")}
        extra["score_parts"] = _without_none(parts)
    if trajectory.branches:
        branch = {"number": conversation.number, "reason": conversation.reason, "agent": conversation.agent}
        extra["branch"] = {name: value for name, value in branch.items() if value != ""}
    steps = _steps(conversation.messages, turns, conversation.copied)
    own = conversation.turns
    return _without_none(
        {
            "schema_version": VERSION,
            "session_id": trajectory.id,
            "trajectory_id": trajectory.id + (f"-branch-{conversation.number}" if conversation.number else ""),
            "agent": _agent(conversation.agent or "tracewheel", episode.model or None, episode.tools),
            "steps": steps,
            "final_metrics": {
                "total_prompt_tokens": sum(len(turn.prompt_ids) for turn in own),
                "total_completion_tokens": sum(len(turn.sampled_ids) for turn in own),
                "total_steps": len(steps),
            },
            "extra": _without_none(extra),
        }
    )


def _agent(name: str, model: str | None, tools: list[dict[str, Any]] | None) -> dict[str, Any]:
    return _without_none({"name": name, "version": __version__, "model_name": model, "tool_definitions": tools or None})


def _steps(messages: list[Message], turns: dict[int, SampledTurn], copied: int) -> list[dict[str, Any]]:
    """The steps. A tool's message is a result of the step with its call, or of the last step before it."""
    steps: list[dict[str, Any]] = []
    for position, message in enumerate(messages):
        if message["role"] == "tool" and steps:
            calls = {call["tool_call_id"] for call in steps[-1].get("tool_calls", [])}
            steps[-1].setdefault("observation", {"results": []})["results"].append(_result(message, calls))
            continue
        step = {"step_id": len(steps) + 1, **_said(message), "is_copied_context": True if position < copied else None}
        if message["role"] == "assistant":
            step |= _agent_fields(message, turns.get(position))
        steps.append(_without_none(step))
    return steps


def _said(message: Message) -> dict[str, Any]:
    sources = {"assistant": "agent", "system": "system", "developer": "system"}
    left = {name: value for name, value in message.items() if name not in PLACED}
    if message.get("content") is None:
        left["content"] = None
    if message["role"] not in ("assistant", "system", "user"):
        left["role"] = message["role"]
    return {
        "source": sources.get(message["role"], "user"),
        "message": message.get("content") or "",
        "extra": {OPENAI_MESSAGE: left} if left else None,
    }


def _agent_fields(message: Message, turn: SampledTurn | None) -> dict[str, Any]:
    fields = {
        "reasoning_content": message.get("reasoning_content") or message.get("reasoning") or None,
        "tool_calls": [_call(call) for call in message.get("tool_calls") or []] or None,
    }
    if turn is None:
        return fields
    record = turn.record
    noted = {
        "forced_tokens": record.get("forced") or None,
        "malformed_calls": record.get("malformed") or None,
        "version_changes": turn.version_changes or None,
        "reward": record.get("reward"),
        "loss_mask": None if all(turn.mask) else turn.mask,
    }
    metrics = {
        "prompt_tokens": len(turn.prompt_ids),
        "completion_tokens": len(turn.sampled_ids),
        "prompt_token_ids": turn.prompt_ids,
        "completion_token_ids": turn.sampled_ids,
        "logprobs": turn.logprobs,
        "extra": _without_none({"policy_version": record["policy_version"], **noted}),
    }
    return {**fields, "llm_call_count": 1, "metrics": metrics}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    text = call["function"]["arguments"]
    arguments = _arguments(text)
    written = json.dumps(arguments, ensure_ascii=False)
    return {
        "tool_call_id": call["id"],
        "function_name": call["function"]["name"],
        "arguments": arguments,
        # ATIF has an object here: the text, where writing the object again would not give it.
        **({"extra": {ARGUMENTS_TEXT: text}} if written != text else {}),
    }


def _arguments(text: Any) -> dict[str, Any]:
    """The arguments as an object; empty where the policy wrote none that can be read."""
    try:
        found = parse_json(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _result(message: Message, calls: set[str]) -> dict[str, Any]:
    left = {name: value for name, value in message.items() if name not in PLACED}
    known = message.get("tool_call_id") in calls
    result = {"source_call_id": message["tool_call_id"] if known else None, "content": message.get("content") or ""}
    return _without_none({**result, "extra": {OPENAI_MESSAGE: left} if left and known else None})


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
