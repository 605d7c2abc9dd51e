"""Chooses among a trace's logged scores: its outcome, and a judge's opinion of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

OUTCOME_NAMES = ("reward", "total", "success", "score", "correctness")
# Judges score many things (for toxicity, more is worse); these names mean that the task was done.
JUDGED_NAMES = (*OUTCOME_NAMES, "task_success", "task_completion", "goal_success", "goal_completion", "goal_accuracy")
PERSON, MODEL = "person", "model"
# Names for the source of a score: Langfuse (EVAL, ANNOTATION), MLflow (LLM_JUDGE, HUMAN), Phoenix (LLM, HUMAN).
JUDGES = {"ANNOTATION": PERSON, "HUMAN": PERSON, "EVAL": MODEL, "LLM_JUDGE": MODEL, "AI_JUDGE": MODEL, "LLM": MODEL}
WORDS = dict.fromkeys(("yes", "true", "pass", "passed", "correct", "success"), 1.0)
WORDS |= dict.fromkeys(("no", "false", "fail", "failed", "incorrect", "failure"), 0.0)


@dataclass(frozen=True)
class LoggedScore:
    """A score of a whole trace, or of a part of it.

    Attributes:
        name: As logged.
        value: As logged.
        judge: `PERSON` or `MODEL`; "" for a program, or if not logged.
        label: The word for the value, if there is one.
        whole: Whether it scores the whole trace, not a step.
    """

    name: Any
    value: Any
    judge: str = ""
    label: Any = None
    whole: bool = True


def judge_of(source: Any) -> str:
    """The judge that gave a score, from the tracer's name for its source."""
    return JUDGES.get(source.upper(), "") if isinstance(source, str) else ""


def outcome_of(scores: Sequence[LoggedScore]) -> float | None:
    """The outcome: the first of `OUTCOME_NAMES` with a number or boolean, among scores of the whole trace without a judge."""
    numbers = {
        score.name.lower(): float(score.value)
        for score in scores
        if score.whole and not score.judge and isinstance(score.name, str) and isinstance(score.value, int | float)
    }
    return next((numbers[name] for name in OUTCOME_NAMES if name in numbers), None)


def judged_of(scores: Sequence[LoggedScore]) -> float | None:
    """A judge's score of the whole trace, from 0 to 1; None without one.

    A person's score comes before a model's, then the order of `JUDGED_NAMES` decides. Numbers beyond 0 to 1 are ignored, as
    their scale is unknown; words that mean yes or no count as 1 and 0.
    """
    for judge in (PERSON, MODEL):
        values = {
            score.name.lower().replace(" ", "_").replace("-", "_"): value
            for score in scores
            if score.whole and score.judge == judge and isinstance(score.name, str) and (value := _share(score)) is not None
        }
        found = next((values[name] for name in JUDGED_NAMES if name in values), None)
        if found is not None:
            return found
    return None


def scores_info(scores: Sequence[LoggedScore]) -> dict[str, Any]:
    """The entries of a trace's `info` about scores: all as logged, and a judge's score of the whole as `judged`."""
    listed = [
        {key: value for key, value in _shown(score).items() if value not in (None, "") or key in ("name", "value")}
        for score in scores
    ]
    return {"scores": listed, "judged": judged_of(scores)}


def _shown(score: LoggedScore) -> dict[str, Any]:
    part = None if score.whole else "step"
    return {"name": score.name, "value": score.value, "judge": score.judge, "label": score.label, "of": part}


def _share(score: LoggedScore) -> float | None:
    """A score as a number from 0 to 1; None if it is not one."""
    for value in (score.value, score.label):
        if isinstance(value, str):
            if value.strip().lower() in WORDS:
                return WORDS[value.strip().lower()]
        elif isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= 1:
            return float(value)
    return None
