"""Which of a trace's scores is its outcome, and which a judge's opinion of it: tracers keep many, by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

OUTCOME_NAMES = ("reward", "total", "success", "score", "correctness")
# A judge says many things (toxicity, for which more is worse); these names say that the task was done.
JUDGED_NAMES = (*OUTCOME_NAMES, "task_success", "task_completion", "goal_success", "goal_completion", "goal_accuracy")
PERSON, MODEL = "person", "model"
# What tracers call whoever gave a score: Langfuse (EVAL, ANNOTATION), MLflow (LLM_JUDGE, HUMAN), Phoenix (LLM, HUMAN).
JUDGES = {"ANNOTATION": PERSON, "HUMAN": PERSON, "EVAL": MODEL, "LLM_JUDGE": MODEL, "AI_JUDGE": MODEL, "LLM": MODEL}
WORDS = dict.fromkeys(("yes", "true", "pass", "passed", "correct", "success"), 1.0)
WORDS |= dict.fromkeys(("no", "false", "fail", "failed", "incorrect", "failure"), 0.0)


@dataclass(frozen=True)
class LoggedScore:
    """A score of a whole trace, or of a part of it.

    Attributes:
        name: What it is called.
        value: As it was logged.
        judge: `PERSON` or `MODEL`; "" for a program's, and where the log does not say.
        label: The word for it, where there is one beside the value.
        whole: Whether it is of the whole trace and not of a step.
    """

    name: Any
    value: Any
    judge: str = ""
    label: Any = None
    whole: bool = True


def judge_of(source: Any) -> str:
    """Who gave a score, by the tracer's word for it."""
    return JUDGES.get(source.upper(), "") if isinstance(source, str) else ""


def outcome_of(scores: Sequence[LoggedScore]) -> float | None:
    """The outcome among scores of the whole that no judge gave: the first of `OUTCOME_NAMES` that is a number, or yes or no."""
    numbers = {
        score.name.lower(): float(score.value)
        for score in scores
        if score.whole and not score.judge and isinstance(score.name, str) and isinstance(score.value, int | float)
    }
    return next((numbers[name] for name in OUTCOME_NAMES if name in numbers), None)


def judged_of(scores: Sequence[LoggedScore]) -> float | None:
    """What a judge said of the whole, from 0 to 1: a person before a model, then the first of `JUDGED_NAMES`; else None.

    A number on another scale is not taken, as nobody says where it ends; a word that is as good as yes or no is.
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
    """What a trace's `info` has of its scores: all of them as logged, and under `judged` what a judge said of the whole."""
    listed = [
        {key: value for key, value in _shown(score).items() if value not in (None, "") or key in ("name", "value")}
        for score in scores
    ]
    return {"scores": listed, "judged": judged_of(scores)}


def _shown(score: LoggedScore) -> dict[str, Any]:
    part = None if score.whole else "step"
    return {"name": score.name, "value": score.value, "judge": score.judge, "label": score.label, "of": part}


def _share(score: LoggedScore) -> float | None:
    """A score from 0 to 1, None for what is none."""
    for said in (score.value, score.label):
        if isinstance(said, str):
            if said.strip().lower() in WORDS:
                return WORDS[said.strip().lower()]
        elif isinstance(said, int | float) and math.isfinite(said) and 0 <= said <= 1:
            return float(said)
    return None
