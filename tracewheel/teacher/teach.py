"""The teaching stage: a stronger model plays the training tasks, and its verified successes are imitated.

Sequence-level distillation (Kim and Rush 2016, arXiv:1606.07947) from a teacher behind an endpoint.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tracewheel.config import TeachSections
from tracewheel.core.errors import ConfigError
from tracewheel.core.files import write_json
from tracewheel.core.types import Task
from tracewheel.curation.curated_folder import EPISODES_FILE
from tracewheel.curation.episode_writer import KNOWN_COLUMNS
from tracewheel.teacher.attempt import Attempt
from tracewheel.teacher.imitation import find_faults, verified
from tracewheel.teacher.play import Progress, play_all, wanted_episodes
from tracewheel.teacher.usage import usage_of

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
