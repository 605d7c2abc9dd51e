"""Which of a teacher's episodes are worth imitating."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tracewheel.config import RolloutConfig
from tracewheel.core.types import POLICY_FAULTS, Task, content_hash, first_turn
from tracewheel.rollout.episode import UNFINISHED
from tracewheel.scoring.verifiers import Episode, episode_from, make_verifier, verdict_of
from tracewheel.teacher.attempt import Attempt

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer


def verified(attempt: Attempt, task: Task) -> tuple[float | None, str]:
    """The verifier's score of an episode, None when there is none, and a detail."""
    if attempt.final_state is None or attempt.fault not in POLICY_FAULTS:
        return None, attempt.detail
    try:
        verifier = make_verifier(task.verifier)
        return verdict_of(verifier, task, attempt.final_state, functools.partial(_seen, attempt)).total, attempt.detail
    except Exception as error:  # a verifier may be anyone's code: whatever it raises, this episode is unscored
        return None, f"the verifier cannot judge: {type(error).__name__}: {error}"


def _seen(attempt: Attempt) -> Episode:
    """The episode as a verifier sees it."""
    usages = [turn["usage"] for turn in attempt.turns]
    known = all(usage["known"] for usage in usages)
    return episode_from(
        attempt.messages,
        first_turn(attempt.messages, attempt.turns),
        attempt.final_state or {},
        attempt.turns,
        stop_reason=attempt.stop_reason,
        detail=attempt.detail,
        fault=attempt.fault,
        tokens=sum(usage["completion_tokens"] for usage in usages) if known else None,
    )


def find_faults(attempts: list[Attempt], marks: list[float | None], renderer: ChatRenderer, config: RolloutConfig) -> list[str]:
    """Why each attempt is no demonstration; empty for one that is.

    Args:
        attempts: Episodes.
        marks: The verifier's score of each.
        renderer: Of the policy that imitates them.
        config: The limits of its episodes.
    """
    known: set[str] = set()
    faults = []
    for attempt, mark in zip(attempts, marks, strict=True):
        fault = _fault(attempt, mark, renderer, config)
        if not fault:
            same = content_hash([attempt.task_id, [_spoken(message) for message in attempt.messages]])
            fault = "same as another" if same in known else ""
            known.add(same)
        faults.append(fault)
    return faults


def _spoken(message: dict[str, Any]) -> list[Any]:
    """A message without the ids that an endpoint gives its calls."""
    calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls", [])]
    return [message["role"], message.get("content"), calls]


def _fault(attempt: Attempt, mark: float | None, renderer: ChatRenderer, config: RolloutConfig) -> str:
    if attempt.stop_reason in (*UNFINISHED, "refused"):
        return attempt.stop_reason
    if mark is None:
        return "unscored"
    if mark < 1.0:
        return "failed"
    if attempt.malformed:
        return "malformed call"
    if attempt.stop_reason not in ("finished", "no_tool_call"):
        return "not ended"
    rendered = renderer.conversation(attempt.messages, attempt.tools, attempt.opening)
    if rendered.longest > config.max_tokens:
        return "longer than rollout.max_tokens"
    if max(turn.end - turn.start for turn in rendered.turns) > config.max_turn_tokens:
        return "a turn longer than rollout.max_turn_tokens"
    return ""
