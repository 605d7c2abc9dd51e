"""How far a judge agrees with labels: agreement, Cohen's kappa, false accepts and rejects, bias by length, self-consistency."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from tracewheel import DataError, Episode, EpisodeVerifier, Task, episode_from, rate_interval
from tracewheel_graders.judges.asking import JudgeFailure

PASS, FAIL = "pass", "fail"


@dataclass(frozen=True)
class Labelled:
    """An episode with a person's label: its task's prompt, the conversation, and whether it is a success."""

    task: str
    prompt: str
    messages: list[dict[str, Any]]
    passes: bool


@dataclass(frozen=True)
class Judged:
    """A label beside what a judge said: `said` is None where it gave no verdict; `disagreement` is among its votes."""

    task: str
    passes: bool
    said: bool | None
    length: int
    disagreement: float = 0.0
    flagged: bool = False


def read_labelled(path: Path) -> list[Labelled]:
    """A file of JSON lines: `label` (`pass` or `fail`), `messages` in OpenAI's format, and `task`, the task's name, if known.

    Raises:
        DataError: a line is not that.
    """
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            messages = row["messages"]
            prompt = next(message["content"] for message in messages if message["role"] == "user")
            if row["label"] not in (PASS, FAIL):
                raise ValueError(f"label {row['label']!r} is neither '{PASS}' nor '{FAIL}'")
            found.append(Labelled(str(row.get("task") or prompt), prompt, messages, row["label"] == PASS))
        except (ValueError, KeyError, TypeError, StopIteration) as error:
            raise DataError(f"{path}:{number}: no labelled episode ({type(error).__name__}: {error})") from error
    if not found:
        raise DataError(f"{path}: has no labelled episode")
    return found


def judge_labelled(verifier: EpisodeVerifier, cases: Sequence[Labelled], pass_mark: float) -> list[Judged]:
    """What a judge says of labelled episodes: it passes what it gives `pass_mark` or more."""
    found = []
    for case in cases:
        start = next((n for n, message in enumerate(case.messages) if message["role"] == "assistant"), len(case.messages))
        episode = episode_from(case.messages, start, {})
        task = Task(case.task, "", "", 1, case.prompt, {}, {}, verifier.kind, case.task)
        length = _length(episode)
        try:
            verdict = verifier.verify_episode(task, episode)
        except JudgeFailure:
            found.append(Judged(case.task, case.passes, None, length))
            continue
        parts = verdict.parts
        flagged = bool(parts.get("flagged", 0.0))
        found.append(
            Judged(case.task, case.passes, verdict.total >= pass_mark, length, float(parts.get("disagreement", 0.0)), flagged)
        )
    return found


def calibration(judged: Sequence[Judged]) -> dict[str, Any]:
    """The figures of a judge, with 95% intervals that take the episodes of a task for alike.

    `false_accept`: the judge passes what people fail, among what they fail; `false_reject` the other way round. `length_bias`
    is Spearman's correlation of (judge minus label) with the length of what the agent wrote: above 0 it is milder with long
    episodes. `self_consistency` is 1 minus the mean disagreement of its votes. What has no verdict is counted and left out.
    """
    told = [item for item in judged if item.said is not None]
    failed, passed = ([item for item in told if item.passes is truth] for truth in (False, True))
    return {
        "labelled": len(judged),
        "without_verdict": len(judged) - len(told),
        "flagged": sum(item.flagged for item in told),
        "agreement": _rate(told, lambda item: item.said == item.passes),
        "kappa": {"value": kappa(told), "interval": _kappa_interval(told)},
        "false_accept": _rate(failed, lambda item: bool(item.said)),
        "false_reject": _rate(passed, lambda item: not item.said),
        "length_bias": length_bias(told),
        "self_consistency": 1.0 - sum(item.disagreement for item in told) / len(told) if told else None,
    }


def kappa(told: Sequence[Judged]) -> float | None:
    """Cohen's kappa (1960): agreement beyond chance, over the most that is possible. None where chance explains all."""
    if not told:
        return None
    n = len(told)
    observed = sum(item.said == item.passes for item in told) / n
    said, passes = sum(bool(item.said) for item in told) / n, sum(item.passes for item in told) / n
    chance = said * passes + (1 - said) * (1 - passes)
    return None if chance >= 1.0 else (observed - chance) / (1.0 - chance)


def length_bias(told: Sequence[Judged]) -> dict[str, float] | None:
    """Spearman's correlation and its p-value; None where either side does not vary."""
    from scipy.stats import spearmanr

    errors = [int(bool(item.said)) - int(item.passes) for item in told]
    lengths = [item.length for item in told]
    if len(set(errors)) < 2 or len(set(lengths)) < 2:
        return None
    found = spearmanr(errors, lengths)
    return {"correlation": float(found.statistic), "p_value": float(found.pvalue)}


def _rate(told: Sequence[Judged], holds: Callable[[Judged], bool]) -> dict[str, Any]:
    values = [float(holds(item)) for item in told]
    if not values:
        return {"rate": None, "interval": [0.0, 1.0], "n": 0}
    interval = rate_interval(values, [item.task for item in told])
    return {"rate": sum(values) / len(values), "interval": list(interval), "n": len(values)}


def _kappa_interval(told: Sequence[Judged]) -> list[float] | None:
    """By the jackknife over tasks (Tukey 1958), with Student's quantile. None where a kappa is."""
    tasks = sorted({item.task for item in told})
    whole, without = kappa(told), [kappa([item for item in told if item.task != task]) for task in tasks]
    if len(tasks) < 2 or whole is None or None in without:
        return None
    half = stdtrit(len(tasks) - 1, 0.975) * math.sqrt((len(tasks) - 1) * np.var(np.array(without, dtype=float)))
    return [max(-1.0, whole - half), min(1.0, whole + half)]


def _length(episode: Episode) -> int:
    own = [message for message in episode.messages[episode.start :] if message["role"] == "assistant"]
    return sum(len(message.get("content") or "") for message in own)
