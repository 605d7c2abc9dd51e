"""Settings and values that are gone, and what to do about them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tracewheel.config.operations import LIMITS

THIS_VERSION = "0.2"


def _constants(section: str, **values: Any) -> dict[str, str]:
    """Settings of a section that have become constants, and their values."""
    return {
        f"{section}.{name}": f"it is {json.dumps(value, ensure_ascii=False)} now; delete the line"
        for name, value in values.items()
    }


def _of_a_rubric(section: str) -> Iterable[tuple[str, str]]:
    return _constants(section, **{"process_weight": 1.0, "overlong.weight": 0.5, "objectives.only_success": True}).items()


# Names of settings and sections, or `name=value`, and what to do about them in a profile of an earlier version.
REMOVED: dict[str, str] = {
    **_constants("guard", window=4, doubtful=2.6, certain=4.8, persistent=3.5, success_fall=0.25, malformed_rise=0.05),
    **_constants("audit", changes=4, seed=0, max_false_accept=0.01, max_false_reject=0.01, max_flips=0.1, confidence=0.95),
    **_constants("audit", examples=3),
    **_constants("doctor", window=3, repeated_phrases=0.5, solved=0.9, mastery=0.85),
    **{f"doctor.{name}": f"write doctor.limits: {{{name}: [warning, severe]}}" for name in LIMITS},
    **_constants("sampler", decay=0.5, retain=0.5, floor=0.1),
    **_constants("sampler.variants", after=2, at_most=0.0, per_task=2, limit=64),
    **_constants("rate_trials", kl_most=0.01),
    "curation.difficulty": "tiers part at pass rates of 0.8, 0.6, 0.4 and 0.2; delete the section",
    **_constants("curation.duplicates", similar=0.8, near="unkeyed", same_content=0.6, permutations=128, longest=8000),
    **_constants("curation.decontamination", words=13, share=0.2, similar=0.8, common=10),
    **_constants("curation.sets", pairs_per_task=8, margin=1.0, shared="auto"),
    **_constants("ingest.redaction", key_variable="TRACEWHEEL_REDACTION_KEY"),
    **_constants("learner.kl", late_from=0.8, horizon=10),
    "learner.kl.late_direction": "the direction is one for a whole run (learner.kl.direction); delete the line",
    "learner.buffer": "updates learn from their own iteration's trajectories; delete the section",
    "learner.reward_normalisation": "write learner.advantage: {kind: domain}, or delete the line",
    **_constants("learner", replay_weight=0.3),
    **_constants("learner.surrogate", temperature_positive=1.0, temperature_negative=1.05),
    "learner.kl.direction": "the divergence is KL(policy || reference); delete the line",
    "learner.entropy.floor": "write learner.entropy.bonus alone: it holds at any entropy",
    **{f"learner.advantage.{name}": "V-trace is gone; delete the line" for name in ("vtrace", "rho_max", "c_max")},
    **_constants("learner.advantage", whiten=True),
    **_constants("learner.advantage.critic", rank=8, hidden=128),
    **_constants("learner.zero_variance", limit=0.5, max_rounds=3),
    **_constants("learner.mismatch", another_model=1.0),
    **_constants("learner", margin=0.5),
    **_constants("learner.backend", timeout_minutes=30),
    **_constants("warm_start.backend", timeout_minutes=30),
    **{
        f"rollout.exploration.{name}": "explore with rollout.temperature and exploration.environment_args; delete the line"
        for name in ("temperature_end", "temperature_spread", "epsilon", "tools")
    },
    **_constants("rollout.engine", max_loras=2, enforce_eager=False),
    **_constants("rollout.harness", output_bytes=65536),
    **{name: value for rubric in ("rubric", "evaluation.rubric") for name, value in _of_a_rubric(rubric)},
    **_constants("schedule", give_up_after=3, drift_level=0.1),
    "schedule.min_expected_gain": (
        "schedule.min_new_tasks decides; `tracewheel runs worth` of the wheel tracewheel-lab (plugins/lab) estimates the gain"
    ),
    **_constants("screening", false_alarms_per_year=1.0),
    **_constants("teacher", longest_wait=300),
    **_constants("baseline", longest_wait=300),
    "rollout.mode=overlap": "write async, which samples while updates run, or sync, which repeats byte for byte",
    "rollout.engine.max_lora_rank": "it is the largest rank that the profile trains; delete the line",
    **_constants("gate", min_fidelity=0.99),
    "comparison.harder_curve": "the policies that are compared play the harder tier at the end; delete the line",
    "evaluation.bootstrap": "intervals are computed without resampling; delete the line",
    "gate.looks": "all held-out tasks are played before the gate decides; delete the line",
    "tracking.openlineage": (
        "`tracewheel export-openlineage RUN` of the wheel tracewheel-lab (plugins/lab) tells of a run when it is complete"
    ),
    "training.specialists": (
        "train each adapter in a run of its own, on logs of its families, and merge them: `tracewheel merge` of the wheel "
        "tracewheel-lab (plugins/lab)"
    ),
    "warm_start.lora.families": "train each adapter in a run of its own, with its own warm_start.lora",
    **_constants("guard", entropy=3.0, kl=10.0, grad_norm=10.0, kl_least=0.1, kl_most=5.0, factor=0.3),
}


def removed(name: str) -> str:
    """What has become of a setting or a value of an earlier version; empty for a name that never was one.

    Args:
        name: Its path in a profile, or `path=value`; numbers in it are places in a list.
    """
    parts = [part for part in name.split(".") if not part.isdigit()]
    paths = (".".join(parts[:size]) for size in range(len(parts), 0, -1))
    advice = next((REMOVED[path] for path in paths if path in REMOVED), "")
    return f"was removed in {THIS_VERSION}: {advice}" if advice else ""


def without_removed(values: Any, path: str = "") -> Any:
    """The values of a profile without settings of earlier versions."""
    if isinstance(values, list):
        return [without_removed(item, path) for item in values]
    if not isinstance(values, dict):
        return values
    paths = {key: f"{path}.{key}" if path else str(key) for key in values}
    gone = {key for key, value in values.items() if paths[key] in REMOVED or f"{paths[key]}={value}" in REMOVED}
    kept = {key: without_removed(value, paths[key]) for key, value in values.items() if key not in gone}
    # A section of which nothing is left may have gone with its settings; one that is still there has its defaults without it.
    return {key: value for key, value in kept.items() if value != {} or not values[key]}
