"""Writes OpenEnv's `TrainingTrace` (schema 1): one turn for each model call, with its prompt's ids, sampled ids and mask.

Checked by OpenEnv's own model and validator (docs/export.md). That contract has no place for the end of an episode; reward,
stop reason and fault are in each turn's `metadata`.
"""

from __future__ import annotations

from typing import Any

from tracewheel_lab.export.episode import Conversation, Episode, SampledTurn, conversations

SCHEMA = 1
INFRASTRUCTURE_FAILED = "infrastructure_failed"


def write_episode(episode: Episode) -> dict[str, Any]:
    """The training trace of an episode; all of its branches, each turn once.

    The loss mask of an episode that the infrastructure failed is 0 throughout: it is context, and nothing is learnt from it.

    Raises:
        DataError: the trajectory is damaged.
    """
    turns = [(turn, one) for one in conversations(episode.trajectory) for turn in one.turns]
    turns.sort(key=lambda pair: pair[0].number)
    last = turns[-1][0].number if turns else -1
    return {"schema_version": SCHEMA, "turns": [_turn(episode, turn, one, turn.number == last) for turn, one in turns]}


def _turn(episode: Episode, turn: SampledTurn, conversation: Conversation, is_last: bool) -> dict[str, Any]:
    trajectory = episode.trajectory
    failed = trajectory.stop_reason == INFRASTRUCTURE_FAILED
    message = conversation.messages[turn.message]
    # An episode also ends with `max_tokens` where an observation has no room; then the turn before it was whole.
    cut_off = is_last and trajectory.stop_reason == "max_tokens" and turn.message == len(conversation.messages) - 1
    reason = "length" if cut_off else "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "node_id": f"{trajectory.id}-{turn.number}",
        "prompt_token_ids": turn.prompt_ids,
        "completion_token_ids": turn.sampled_ids,
        "per_token_logps": turn.logprobs,
        "loss_mask": [0] * len(turn.prompt_ids) + [0 if failed else counts for counts in turn.mask],
        "request": {"messages": conversation.messages[: turn.message], "tools": episode.tools},
        "response": {"choices": [{"message": message, "finish_reason": reason}]},
        "metadata": _metadata(episode, turn, conversation),
    }


def _metadata(episode: Episode, turn: SampledTurn, conversation: Conversation) -> dict[str, Any]:
    trajectory = episode.trajectory
    known = {
        "index": turn.number,
        "session_id": trajectory.id,
        "task_id": trajectory.task_id,
        "model": episode.model,
        "policy_version": turn.record["policy_version"],
        "version_changes": turn.version_changes or None,
        "forced_tokens": turn.record.get("forced") or None,
        "turn_reward": turn.record.get("reward"),
        "branch": conversation.number if trajectory.branches else None,
        "branch_reason": conversation.reason,
        "agent": conversation.agent,
        "stop_reason": trajectory.stop_reason,
        "fault": trajectory.fault,
        "detail": trajectory.detail,
        "reward_status": episode.score.status if episode.score else None,
        "n_tools": len(episode.tools) if episode.tools else None,
        "sampling_params": {"temperature": trajectory.temperature},
    }
    # A reward of None is said: in OpenEnv's records it means unscored.
    return {**{name: value for name, value in known.items() if value is not None and value != ""}, "reward": episode.reward}
