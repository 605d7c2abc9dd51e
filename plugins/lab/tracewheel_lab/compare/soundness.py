"""How far two runs' evaluations can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tracewheel import setting_differences

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
