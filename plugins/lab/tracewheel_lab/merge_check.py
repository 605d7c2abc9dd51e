"""Merging adapters from folders: the merge is evaluated together with its parts, and refused when it is worse than one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel import (
    DataError,
    EvaluateSections,
    Evaluation,
    GateRefused,
    PolicyRef,
    RetrainConfig,
    comparable_rates,
    evaluate_split,
    policy_of,
    write_json,
)
from tracewheel_lab.merging import MERGED, MergeConfig, Part, compare, merge

COMPARISON_FILE, VALIDATION = "comparison.json", "validation"


@dataclass(frozen=True)
class MergeFolders:
    """What is merged: each folder holds an adapter, or a state with one.

    Attributes:
        parts: By name.
        start: The adapter that all parts began as, and that what they learnt is added to; None for the bare base.
    """

    parts: Mapping[str, Path]
    start: Path | None = None


def merge_and_check(
    config: RetrainConfig, folders: MergeFolders, settings: MergeConfig, out: Path, curated: Path | None
) -> dict[str, Any]:
    """Merge, and compare the merge with its parts on the validation split.

    Writes what `merge` writes, and with `curated` also `validation/`, an evaluation each, and `comparison.json`.

    Args:
        curated: The curation whose validation split judges; None to leave the merge unevaluated.

    Raises:
        AdapterMismatchError: an adapter was made for another base.
        DataError: a folder holds a whole model.
        GateRefused: the merge is worse than one of its parts.
    """
    base = config.policy.base
    parts = {name: policy_of(folder, base) for name, folder in folders.parts.items()}
    start = policy_of(folders.start, base) if folders.start else None
    wholes = [name for name, policy in {**parts, **({"--start": start} if start else {})}.items() if policy.adapter is None]
    if wholes:
        raise DataError(f"{', '.join(wholes)}: a whole model; only adapters can be merged")
    onto = Path(start.adapter) if start and start.adapter else None
    adapters = [Part(name, Path(str(policy.adapter)), onto) for name, policy in parts.items()]
    record = merge(config, adapters, settings, out, onto=onto, version=max(policy.version for policy in parts.values()))
    if curated is None:
        return {**record, "evaluated": False}
    rates = _rates(config, {**parts, MERGED: policy_of(out, base)}, out, curated)
    comparison = compare(rates[MERGED], {name: rate for name, rate in rates.items() if name != MERGED})
    result = {**record, "evaluated": True, **{name: value for name, value in comparison.items() if name != "parts"}}
    if not comparison["accepted"]:
        raise GateRefused(_why_not(comparison), {**result, "rates": rates})
    write_json(out / COMPARISON_FILE, comparison)
    return {**result, "rates": rates}


def _why_not(comparison: Mapping[str, Any]) -> str:
    if comparison["rate"] is None or comparison["best_part"] is None:
        return "too few episodes of the validation split were scored to compare the merge with its parts"
    reason = f"the merge reaches {comparison['rate']:.3f} on the validation split, {comparison['best_part']} alone"
    return f"{reason} {comparison['best_part_rate']:.3f}"


def _rates(config: RetrainConfig, policies: Mapping[str, PolicyRef], out: Path, curated: Path) -> dict[str, float | None]:
    evaluations = {}
    for name, policy in policies.items():
        folder = out / VALIDATION / name
        evaluations[name] = Evaluation(evaluate_split(EvaluateSections.of(config), policy, curated, VALIDATION, folder), folder)
    return comparable_rates(evaluations)
