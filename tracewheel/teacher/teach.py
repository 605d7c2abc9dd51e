"""The teaching stage: a stronger model plays the training tasks, and its verified successes are imitated.

Sequence-level distillation (Kim and Rush 2016, arXiv:1606.07947) from a teacher behind an endpoint.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import RolloutConfig, TeachSections
from tracewheel.core.errors import ConfigError
from tracewheel.core.files import write_json
from tracewheel.core.types import POLICY_FAULTS, Task, content_hash, first_turn
from tracewheel.curation.curated_folder import EPISODES_FILE
from tracewheel.curation.episode_writer import KNOWN_COLUMNS
from tracewheel.rollout.episode import UNFINISHED
from tracewheel.scoring.verifiers import Episode, episode_from, make_verifier, verdict_of
from tracewheel.teacher.attempt import Attempt, usage_of
from tracewheel.teacher.play import Progress, play_all, wanted_episodes

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


ATTEMPTS_FILE, REPORT_FILE = "attempts.parquet", "metrics.json"


def teach(
    config: TeachSections, tasks: list[Task], out: Path, *, journal: Path, progress: Progress | None = None
) -> dict[str, Any]:
    """Let the teacher play tasks, and keep what it solved as demonstrations.

    Writes into `out`:

    - episodes.parquet: the demonstrations, with the columns of the curation stage's file; the profile's
      `warm_start.extra_demonstrations` takes the folder.
    - attempts.parquet: every episode, how it ended, and what it took.
    - metrics.json: what the function returns.

    Args:
        config: `teacher`, `rollout`, `policy` and `seed` are used.
        tasks: Of the training split only.
        journal: Each reply is stored here as soon as it arrives, since it may have cost money. A later call
            with the same journal asks only for what is missing. The caller deletes it at the end.
        progress: Called with (episodes done, episodes in all).

    Returns:
        Counts, the teacher's success, what it took (see `usage_of`), and `stopped`: why some episodes did not finish, or empty.

    Raises:
        ConfigError: the profile has no teacher.
        InputError: the endpoint, the model or the key is wrong.
        InfrastructureError: the very first episode got no answer, or none did.
    """
    import pandas as pd

    from tracewheel.policy.loading import policy_renderer

    if config.teacher is None:
        raise ConfigError("teacher: the profile has none; set teacher.endpoint and teacher.model")
    wanted = wanted_episodes(config, config.teacher, tasks, config.teacher.samples, config.teacher.temperature)
    played = play_all(config, config.teacher, wanted, journal=journal, progress=progress)
    marks = [verified(attempt, item.task) for attempt, item in zip(played.attempts, wanted, strict=True)]
    successes = [success for success, _ in marks]
    renderer = policy_renderer(config.policy)
    faults = find_faults(played.attempts, successes, renderer, config.rollout)
    rows = [
        _row(attempt) | {"success": success, "detail": detail, "fault": fault}
        for attempt, (success, detail), fault in zip(played.attempts, marks, faults, strict=True)
    ]
    chosen = [_episode(row) for row in rows if not row["fault"]]
    out.mkdir(parents=True, exist_ok=True)
    episodes = pd.DataFrame(chosen, columns=list(KNOWN_COLUMNS))
    episodes.astype({"success": "float64", "opening": "int64"}).to_parquet(out / EPISODES_FILE, index=False)
    pd.DataFrame(rows).astype({"success": "float64", "cost": "float64"}).to_parquet(out / ATTEMPTS_FILE, index=False)
    scored = [success for success in successes if success is not None]
    report = {
        "episodes": len(rows),
        "success": sum(value >= 1.0 for value in scored) / len(scored) if scored else None,
        "demonstrations": len(chosen),
        "tasks": len({row["task_id"] for row in rows}),
        "tasks_taught": len({row["task_id"] for row in chosen}),
        "left_out": dict(sorted(Counter(fault for fault in faults if fault).items())),
        **usage_of(played.attempts),
        "stopped": played.stopped,
    }
    write_json(out / REPORT_FILE, report)
    return report


def _row(attempt: Attempt) -> dict[str, Any]:
    return {
        "key": attempt.key,
        "task_id": attempt.task_id,
        "sample": attempt.sample,
        "opening": attempt.opening,
        "messages": _text(attempt.messages),
        "tools": _text(attempt.tools),
        "stop_reason": attempt.stop_reason,
        "turns": len(attempt.turns),
        "malformed": attempt.malformed,
        **usage_of([attempt]),
    }


def _text(value: Any) -> str:
    """JSON text in the order given: sorted keys of a tool would be other tokens to the policy."""
    return json.dumps(value, ensure_ascii=False)


def _episode(row: dict[str, Any]) -> dict[str, Any]:
    rest = {"split": "train", "failure": "", "user": None, "session": None}
    return row | rest | {"trace_id": f"teacher-{row['key']}"}
