"""How far two runs' evaluations can be compared, and their paired differences, family by family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tracewheel.comparison.differences import setting_differences
from tracewheel.core.inference import holm, mean_interval, sign_flip_p
from tracewheel.evaluation.paired_outcomes import Paired, check_results, common_components, pair, read_outcomes

if TYPE_CHECKING:
    import pandas as pd

# Settings of rollouts that bound an evaluation's episodes; the others belong to training, or change no token.
LIMITS = ("max_turns", "max_tokens", "max_turn_tokens", "step_seconds", "episode_seconds")
SAMPLING = ("temperature", "top_p")


@dataclass
class Soundness:
    """Whether two evaluations of the same tasks can be paired, and what to keep in mind.

    Attributes:
        against: Why they cannot be paired; empty where they can.
        greedy_only: Why sampled episodes are left out; "" where they count.
        notes: What else differs.
    """

    against: list[str] = field(default_factory=list)
    greedy_only: str = ""
    notes: list[str] = field(default_factory=list)


def soundness(
    base: Mapping[str, Any], other: Mapping[str, Any], inputs: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> Soundness:
    """What two resolved profiles allow.

    Args:
        base: The profile of the run to compare with.
        other: The profile of the other run.
        inputs: Digests of what each has read; a recording of the same digest is the same, wherever it lies.
    """
    found = Soundness()
    same_recording = "recording" in inputs[0] and inputs[0]["recording"] == inputs[1].get("recording")
    changed = [] if same_recording else _changed(base, other, "environment", ("kind", "args"))
    first = [(values.get("rubric") or {}).get("verifiers", [{}])[0].get("kind") for values in (base, other)]
    if first[0] != first[1]:
        changed.append(f"the rubric's first verifier {first[0]} / {first[1]}")
    if changed:  # with another meaning of success, a difference says nothing
        found.against.append(f"success means something else: {', '.join(changed)}")
    if not same_recording and "recording" in inputs[0] and "recording" in inputs[1]:
        found.against.append("the recorded environments differ")
    if changed := _changed(base, other, "evaluation", SAMPLING):
        found.greedy_only = f"sampled episodes are not compared: {', '.join(changed)}"
    if changed := _changed(base, other, "evaluation", ("samples",)):
        found.notes.append(
            f"{changed[0]}: sampled rates are means of different numbers of episodes, and pass@k is not compared"
        )
    if changed := _changed(base, other, "rollout", LIMITS):
        found.notes.append(f"episodes are bounded otherwise, which is part of the difference: {', '.join(changed)}")
    if changed := _changed(base, other, "gate", ("looks",)):
        found.notes.append(f"{changed[0]}: an evaluation in looks may have ended before all held-out tasks were played")
    if changed := _changed(base, other, "policy", ("chat_template", "dtype", "device")):
        found.notes.append(f"the policies read and compute otherwise: {', '.join(changed)}")
    if changed := _changed(base, other, "rollout", ("engine",)):
        found.notes.append(f"the engines differ: {', '.join(changed)}")
    if base.get("seed") != other.get("seed"):
        found.notes.append(
            f"seed {base.get('seed')} and {other.get('seed')}: sampled episodes are drawn with other random numbers"
        )
    return found


def _changed(
    base: Mapping[str, Any], other: Mapping[str, Any], section: str, names: tuple[str, ...] | None = None
) -> list[str]:
    """What differs in a section, or in some keys of it, each as `name base/other`."""
    one, two = base.get(section) or {}, other.get(section) or {}
    if names is not None:
        one, two = ({name: values[name] for name in names if name in values} for values in (one, two))
    return [f"{section}.{row['name']} {row['values'][0]} / {row['values'][1]}" for row in setting_differences([one, two])]


CONFIDENCE = 0.95
ALL = "all families"


def paired_differences(
    run: pd.DataFrame, base: pd.DataFrame, *, greedy_weight: float, confidence: float = CONFIDENCE
) -> dict[str, Any]:
    """Differences on the tasks that are in both tables, run minus base.

    The figure of a task is the gate's: `greedy_weight` times greedy success plus the rest times the sampled rate, or greedy
    success alone where one of the two has no sampled episodes. An episode that is missing widens the interval by its worst
    case. Intervals are each at `confidence`; `stands_out` is by Holm's test over all families together.

    Args:
        run: `results.parquet` of an evaluation.
        base: The same of another one.
        greedy_weight: 1 for greedy success alone.

    Returns:
        `tasks` (in both), `sampled` (whether sampled episodes count), `confidence`, and `rows`: for all families and for each,
        `family`, `tasks`, `pairs` (scored for both), `difference`, `interval`, `p` (two-sided, randomisation test) and
        `stands_out`; None where nothing is scored.

    Raises:
        DataError: a table lacks a column or holds a task twice.
    """
    check_results(run, "the run")
    check_results(base, "the base")
    common = sorted(set(run["task_id"]) & set(base["task_id"]))
    new, old = (table.set_index("task_id").loc[common] for table in (run, base))
    families = new["family"].to_numpy(dtype=object)
    paired = pair(read_outcomes(new), read_outcomes(old), families, greedy_weight, common_components(new, old))
    rows = [_row(ALL, paired, np.ones(len(paired.lowest), dtype=bool), np.ones(len(paired.seen), dtype=bool), confidence)]
    for family in sorted(set(families.tolist())):
        rows.append(_row(str(family), paired, paired.families == family, paired.seen_families == family, confidence))
        rows[-1]["tasks"] = int((families == family).sum())
    rows[0]["tasks"] = len(common)
    tested = [row for row in rows[1:] if row["p"] is not None]
    for row, stands_out in zip(tested, holm([row["p"] for row in tested], 1.0 - confidence), strict=True):
        row["stands_out"] = stands_out
    return {"tasks": len(common), "sampled": paired.compares_sampled, "confidence": confidence, "rows": rows}


def _row(
    family: str, paired: Paired, counted: npt.NDArray[np.bool_], seen: npt.NDArray[np.bool_], confidence: float
) -> dict[str, Any]:
    lowest, highest, values = paired.lowest[counted], paired.highest[counted], paired.seen[seen]
    row: dict[str, Any] = {"family": family, "tasks": 0, "pairs": len(values), "difference": None, "interval": None, "p": None}
    row["stands_out"] = False
    if len(values):
        row["difference"] = float(values.mean())
    if len(lowest):
        parts = paired.components[counted]
        row["interval"] = list(mean_interval(lowest, highest, (1.0 - confidence) / 2, parts))
        row["p"] = min(1.0, 2.0 * min(sign_flip_p(lowest, parts), sign_flip_p(-highest, parts)))
    return row
