"""Merges several adapters into one with PEFT's `add_weighted_adapter`.

The changes of each adapter since its start are merged: merging whole adapters would count, trim and elect their common
start too. The merged change is then added to an adapter, usually that start. In the space of weights this happens on the
products B A, and a result that is not a sum is brought to low rank by singular values; see `MergeConfig` for the space of
factors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tracewheel import DataError, RetrainConfig, digest_of, load_base, policy_of, read_json, save_adapter, write_json

if TYPE_CHECKING:
    from peft import PeftModel

MERGED = "merged"
ROUNDING = 1e-9


class MergeConfig(BaseModel):
    """How adapters are merged, through PEFT.

    `linear` adds them up, each times `weight`. `ties` (Yadav et al. 2023) keeps the largest entries of each adapter, a
    share of `density`, and averages those that agree with the sign of their sum. `dare_linear` and `dare_ties` (Yu et al.
    2024) instead keep a random share and rescale it. The default `weight` gives the mean of all adapters; `linear` with
    weight 1 composes them.

    `space: weights` merges the changes that the adapters made to the weights since their start. `space: factors` merges
    the two low-rank matrices separately, which is a rough approximation, fast on large models, and needs equal ranks.
    `rank` is the rank of the result: by default the sum of the ranks, with `factors` the rank of one adapter.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Literal["linear", "ties", "dare_linear", "dare_ties"] = "ties"
    weight: Annotated[float, Field(gt=0.0)] | None = None
    density: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    space: Literal["weights", "factors"] = "weights"
    rank: Annotated[int, Field(ge=1)] | None = None

    def weight_of(self, parts: int) -> float:
        """The weight of each adapter when `parts` are merged."""
        if self.weight is not None:
            return self.weight
        if self.method in ("ties", "dare_ties"):
            return 1.0  # they average already
        # PEFT takes the square root of the weight for each of the two factors, so their product needs the square.
        return 1.0 / parts if self.space == "weights" else 1.0 / parts**2


@dataclass(frozen=True)
class Part:
    """An adapter to merge, and the one that its training started from; None for the bare base."""

    name: str
    adapter: Path
    start: Path | None = None


def merge(
    config: RetrainConfig,
    parts: Sequence[Part],
    settings: MergeConfig,
    out: Path,
    *,
    onto: Path | None = None,
    version: int = 0,
) -> dict[str, Any]:
    """Merge adapters of one base; writes `adapter/` and `merge.json` (settings, parts and their digests).

    Args:
        config: The profile: base, seed.
        parts: At least two adapters.
        settings: The method and its settings.
        out: The folder to write.
        onto: The adapter that the merged change is added to; None for the bare base.
        version: The policy version of the result.

    Raises:
        AdapterMismatchError: an adapter belongs to another base.
        DataError: there are too few parts, or their ranks do not fit.
    """
    import torch

    if len(parts) < 2:
        raise DataError("a merge needs at least two adapters")
    folders = dict.fromkeys(folder for part in parts for folder in (part.adapter, part.start) if folder)
    folders |= {onto: None} if onto else {}
    for folder in folders:
        policy_of(folder, config.policy.base)  # checks it
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(config.seed)
        model, names = _load(config, list(folders))
        learnt = [(names[part.adapter], names[part.start] if part.start else None) for part in parts]
        _combine(model, learnt, names[onto] if onto else None, settings)
        saved = save_adapter(config.policy, model, MERGED, out, version)
    record = {
        "settings": settings.model_dump(mode="json"),
        "weight": settings.weight_of(len(parts)),
        "base_hash": read_json(saved / "adapter.json")["base_hash"],
        "parts": {
            part.name: {"digest": digest_of(part.adapter), "start": digest_of(part.start) if part.start else None}
            for part in parts
        },
        "onto": digest_of(onto) if onto else None,
        "rank": model.peft_config[MERGED].r,
    }
    write_json(out / "merge.json", record)
    return record


def compare(merged: float | None, parts: Mapping[str, float | None]) -> dict[str, Any]:
    """Accept a merge if it is not worse than the best of its parts.

    Args:
        merged: The merge's success on the validation split; None, which is never accepted, where it is unknown.
        parts: The parts' success, by name. Parts of unknown success are not compared; without another one the merge is
            not accepted.
    """
    known = {name: rate for name, rate in parts.items() if rate is not None}
    best = max(known, key=lambda name: known[name]) if known else None
    return {
        "rate": merged,
        "parts": dict(parts),
        "best_part": best,
        "best_part_rate": known[best] if best else None,
        "accepted": merged is not None and best is not None and merged >= known[best] - ROUNDING,
    }


def _load(config: RetrainConfig, folders: list[Path]) -> tuple[PeftModel, dict[Path, str]]:
    """The base with all adapters, and their names in it."""
    from peft import PeftModel

    names = {folder: f"adapter_{number}" for number, folder in enumerate(folders)}
    base = load_base(config.policy, config.policy.base)
    model = PeftModel.from_pretrained(base, folders[0], adapter_name=names[folders[0]])
    for folder in folders[1:]:
        model.load_adapter(folder, adapter_name=names[folder])
    return model, names


def _combine(model: PeftModel, learnt: list[tuple[str, str | None]], onto: str | None, settings: MergeConfig) -> None:
    """Add the adapter `merged` to the model.

    Args:
        model: The base with all adapters.
        learnt: The names of each part's adapter and of its start.
        onto: The name of the adapter that the change is added to.
        settings: The method and its settings.
    """
    weight = settings.weight_of(len(learnt))
    if settings.space == "factors":
        ranks = {model.peft_config[part].r for part, _ in learnt}
        if len(ranks) > 1 or settings.rank not in (None, *ranks):
            raise DataError(f"space 'factors' keeps the one rank that all adapters have, here {sorted(ranks)}: use 'weights'")
        _add(model, [(part, weight) for part, _ in learnt], MERGED, settings.method, density=settings.density)
    elif settings.method == "linear":
        terms: dict[str, float] = {onto: 1.0} if onto else {}
        for part, start in learnt:
            terms[part] = terms.get(part, 0.0) + weight
            if start:
                terms[start] = terms.get(start, 0.0) - weight
        _sum(model, {name: factor for name, factor in terms.items() if abs(factor) > ROUNDING}, settings.rank)
    else:
        changes = [(_change(model, part, start), weight) for part, start in learnt]
        name, rank = ("combined", None) if onto else (MERGED, settings.rank)
        whole = _rank_of_all(model, [*(part for part, _ in learnt), *dict.fromkeys(start for _, start in learnt if start)])
        rank = min(rank or whole, _smallest_side(model))
        _add(model, changes, name, f"{settings.method}_svd", rank=rank, density=settings.density)
        if onto:
            _sum(model, {onto: 1.0, name: 1.0}, settings.rank)


def _change(model: PeftModel, part: str, start: str | None) -> str:
    """The name of the adapter with a part's change since its start."""
    if start is None:
        return part
    name = f"{part}_since_{start}"
    if name not in model.peft_config:
        _add(model, [(part, 1.0), (start, -1.0)], name, "cat")
    return name


def _sum(model: PeftModel, terms: dict[str, float], rank: int | None) -> None:
    """Make `merged` the weighted sum: exact, or the nearest of a lower rank."""
    if rank is None or rank >= _rank_of_all(model, list(terms)):
        _add(model, list(terms.items()), MERGED, "cat")
    else:
        _add(model, list(terms.items()), MERGED, "svd", rank=min(rank, _smallest_side(model)))


def _add(
    model: PeftModel,
    terms: list[tuple[str, float]],
    name: str,
    method: Any,
    *,
    rank: int | None = None,
    density: float | None = None,
) -> None:
    """Add the adapter `name`, combined from adapters and their weights by a method of PEFT's."""
    names, weights = map(list, zip(*terms, strict=True))
    model.base_model.add_weighted_adapter(names, weights, name, method, svd_rank=rank, svd_full_matrices=False, density=density)


def _rank_of_all(model: PeftModel, names: list[str]) -> int:
    return sum(model.peft_config[name].r for name in names)


def _smallest_side(model: PeftModel) -> int:
    """The largest rank that every adapted layer can have; PEFT truncates it in a smaller layer, and then cannot load it."""
    from peft.tuners.lora import LoraLayer

    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    return min(min(layer.in_features, layer.out_features) for layer in layers)
