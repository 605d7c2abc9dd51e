"""The log record of a deployed agent's episode, in any environment."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tracewheel.core.types import Task
from tracewheel.demo.workspace_logs import with_call_ids
from tracewheel.environments import make_environment
from tracewheel.environments.episode import play_calls
from tracewheel.scoring.verifiers import episode_from, make_verifier, verdict_of

REWARD_SHARE = 0.7


@dataclass(frozen=True)
class Session:
    """Whose episode it is, and when."""

    user: str
    name: str
    time: datetime


def played_record(
    task: Task, calls: Iterable[tuple[str, dict[str, Any]]], model: str, session: Session, rng: random.Random
) -> dict[str, Any]:
    """The record in OpenAI chat format of an episode of these calls, as JSON types; some records have a reward."""
    environment, episode = make_environment(task.environment), f"{rng.getrandbits(48):012x}"
    messages = play_calls(environment, task, calls)
    record: dict[str, Any] = {
        "id": f"chat-{episode}",
        "session": session.name,
        "user": session.user,
        "created": session.time.isoformat().replace("+00:00", "Z"),
        "model": model,
        "messages": with_call_ids(messages, episode[:8]),
        "tools": environment.tools(),
    }
    if rng.random() < REWARD_SHARE:
        state = environment.snapshot()
        start = next((place for place, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
        record["reward"] = verdict_of(
            make_verifier(task.verifier), task, state, lambda: episode_from(messages, start, state)
        ).total
    record["environment"] = {"kind": task.environment, "initial_state": task.initial_state, "goal": task.goal}
    return record
