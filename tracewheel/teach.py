"""The teaching stage: a stronger model plays the training tasks, and what it verifiably solves is imitated.

Sequence-level distillation (Kim and Rush 2016, arXiv:1606.07947) from a teacher that only an endpoint knows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import RetrainConfig, TeacherConfig
from tracewheel.errors import ConfigError, InfrastructureError
from tracewheel.files import write_json
from tracewheel.teacher_episode import Attempt, find_faults, play
from tracewheel.types import Task, content_hash

if TYPE_CHECKING:
    from tracewheel.engines.openai_chat import OpenAiChat

EPISODES_FILE, ATTEMPTS_FILE, REPORT_FILE = "episodes.parquet", "attempts.parquet", "metrics.json"
EPISODE_COLUMNS = ("trace_id", "task_id", "split", "success", "failure", "user", "session", "messages", "tools")
Progress = Callable[[int, int], None]
# What has no bearing on what the teacher says.
HOW_ASKED = {"concurrency", "timeout", "retries", "api_key_variable", "samples"}


def teach(
    config: RetrainConfig, tasks: list[Task], out: Path, *, journal: Path, progress: Progress | None = None
) -> dict[str, Any]:
    """Let the teacher play tasks, and keep what it solved as demonstrations.

    Writes into `out`:

    - episodes.parquet: the demonstrations, with the columns of the curation stage's file; the profile's
      `warm_start.extra_demonstrations` takes the folder.
    - attempts.parquet: every episode and what became of it.
    - metrics.json: what the function returns.

    Args:
        config: `teacher`, `rollout`, `policy` and `seed` are used.
        tasks: Of the training split only.
        journal: Each episode is noted here as soon as it has ended, since it may have cost money. A later call
            with the same journal plays only what is missing. The caller deletes it when all is done.
        progress: Called with (episodes done, episodes in all).

    Raises:
        ConfigError: the profile has no teacher.
        InputError: the endpoint, the model or the key is wrong.
        InfrastructureError: the very first episode got no answer, or none did.
    """
    import pandas as pd

    from tracewheel.engines.openai_chat import OpenAiChat
    from tracewheel.engines.policy_model import load_renderer

    if config.teacher is None:
        raise ConfigError("teacher: the profile has none; set teacher.endpoint and teacher.model")
    teacher = config.teacher
    wanted = [(_key(config, teacher, task, sample), task, sample) for task in tasks for sample in range(teacher.samples)]
    done = _read_journal(journal, {key for key, _, _ in wanted})
    missing = [item for item in wanted if item[0] not in done]
    journal.parent.mkdir(parents=True, exist_ok=True)
    with OpenAiChat(teacher) as chat, journal.open("a", encoding="utf-8") as notes:

        def note(attempt: Attempt) -> None:
            # A second run is to try again what the machinery failed.
            if attempt.stop_reason != "infrastructure_failed":
                notes.write(_text(asdict(attempt)) + "\n")
                notes.flush()
            done[attempt.key] = attempt
            if progress:
                progress(len(done), len(wanted))

        _play_all(chat, config, missing, note)
    attempts = [done[key] for key, _, _ in wanted]
    if attempts and all(attempt.stop_reason == "infrastructure_failed" for attempt in attempts):
        raise InfrastructureError(f"all {len(attempts)} episodes of the teacher failed, the first: {attempts[0].detail}")
    find_faults(attempts, load_renderer(config.policy.base, config.policy.tool_format), config.rollout)
    chosen = [attempt for attempt in attempts if not attempt.fault]
    out.mkdir(parents=True, exist_ok=True)
    episodes = pd.DataFrame([_episode(attempt) for attempt in chosen], columns=list(EPISODE_COLUMNS))
    episodes.astype({"success": "float64"}).to_parquet(out / EPISODES_FILE, index=False)
    rows = [asdict(a) | {"messages": _text(a.messages), "tools": _text(a.tools)} for a in attempts]
    played = pd.DataFrame(rows, columns=[spec.name for spec in fields(Attempt)])
    played.astype({"success": "float64"}).to_parquet(out / ATTEMPTS_FILE, index=False)
    report = _report(attempts, chosen)
    write_json(out / REPORT_FILE, report)
    return report


def _text(value: Any) -> str:
    """JSON text in the order given: a tool whose keys are sorted is other tokens to the policy."""
    return json.dumps(value, ensure_ascii=False)


def _episode(attempt: Attempt) -> dict[str, Any]:
    return {
        "trace_id": f"teacher-{attempt.key}",
        "task_id": attempt.task_id,
        "split": "train",
        "success": attempt.success,
        "failure": "",
        "user": None,
        "session": None,
        "messages": _text(attempt.messages),
        "tools": _text(attempt.tools),
    }


def _report(attempts: list[Attempt], chosen: list[Attempt]) -> dict[str, Any]:
    scored = [attempt.success for attempt in attempts if attempt.success is not None]
    return {
        "episodes": len(attempts),
        "success": sum(value >= 1.0 for value in scored) / len(scored) if scored else None,
        "demonstrations": len(chosen),
        "tasks": len({attempt.task_id for attempt in attempts}),
        "tasks_taught": len({attempt.task_id for attempt in chosen}),
        "left_out": dict(sorted(Counter(attempt.fault for attempt in attempts if attempt.fault).items())),
        "prompt_tokens": sum(attempt.prompt_tokens for attempt in attempts),
        "completion_tokens": sum(attempt.completion_tokens for attempt in attempts),
    }


def _key(config: RetrainConfig, teacher: TeacherConfig, task: Task, sample: int) -> str:
    settings = teacher.model_dump(mode="json", exclude=HOW_ASKED)
    return content_hash([settings, config.rollout.max_turns, config.seed, task.id, sample])


def _read_journal(journal: Path, keys: set[str]) -> dict[str, Attempt]:
    """The episodes already played. A last line that was cut off in the writing counts as not there."""
    found: dict[str, Attempt] = {}
    if not journal.exists():
        return found
    whole = journal.read_bytes().rpartition(b"\n")
    if whole[2]:
        journal.write_bytes(whole[0] + whole[1])
    for line in whole[0].splitlines():
        attempt = Attempt(**json.loads(line))
        if attempt.key in keys:
            found[attempt.key] = attempt
    return found


def _play_all(
    chat: OpenAiChat, config: RetrainConfig, wanted: list[tuple[str, Task, int]], note: Callable[[Attempt], None]
) -> None:
    """Play episodes, the first one alone: an endpoint that does not answer is found out before all wait for it."""
    assert config.teacher is not None
    if not wanted:
        return
    first = play(chat, config, *wanted[0])
    note(first)
    if first.stop_reason == "infrastructure_failed":
        raise InfrastructureError(f"the teacher: {first.detail}")
    with ThreadPoolExecutor(config.teacher.concurrency) as pool:
        futures = [pool.submit(play, chat, config, *item) for item in wanted[1:]]
        try:
            for future in as_completed(futures):
                note(future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
