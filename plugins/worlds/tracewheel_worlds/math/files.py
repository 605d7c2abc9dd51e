"""Tasks from files of published sets of problems."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tracewheel import DataError, Task, parse_json, read_text
from tracewheel_worlds.math.tasks import math_task

BOXED = "\\boxed{"
LEVEL = re.compile(r"(\d+)")


def tasks_from(path: Path) -> list[Task]:
    r"""The tasks of a JSONL file, in its order; a problem that occurs twice counts once.

    A line has `question` and `answer` as in GSM8K, whose answer ends with `#### 42`; or `problem` and `solution` as
    in MATH, whose answer is in the solution's last `\boxed{}`, with `level` ("Level 3") and `type` where there are
    any.

    Raises:
        DataError: the file cannot be read, or a line is neither; the message names it.
    """
    lines = read_text(path).split("\n")  # a text may hold other ends of lines, as U+2028
    tasks: dict[str, Task] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: not JSON: {error}") from error
        task = _task(row if isinstance(row, dict) else {}, f"{path}:{number}")
        tasks.setdefault(task.fingerprint, task)
    return list(tasks.values())


def _task(row: dict[str, Any], place: str) -> Task:
    if isinstance(row.get("question"), str) and isinstance(row.get("answer"), str):
        _, found, answer = row["answer"].rpartition("####")
        if not found or not answer.strip():
            raise DataError(f"{place}: 'answer' does not end with #### and the result")
        return math_task(row["question"], answer.strip().replace(",", ""), "gsm8k", 1)
    if isinstance(row.get("problem"), str) and isinstance(row.get("solution"), str):
        boxed = last_boxed(row["solution"])
        if not boxed:
            raise DataError(f"{place}: 'solution' has no \\boxed{{}} with the answer")
        level = LEVEL.search(str(row.get("level", "")))
        return math_task(row["problem"], boxed, str(row.get("type") or "math"), int(level.group(1)) if level else 1)
    raise DataError(f"{place}: needs 'question' and 'answer' (GSM8K), or 'problem' and 'solution' (MATH)")


def last_boxed(text: str) -> str:
    r"""What the last `\boxed{}` of a text holds; "" where there is none."""
    start = text.rfind(BOXED)
    depth = 0
    for place in range(start + len(BOXED) - 1, len(text)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + len(BOXED) : place].strip()
    return ""
