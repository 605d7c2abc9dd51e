"""Merging adapters."""

from __future__ import annotations

from typing import Any

from tasks.engine.run import Policy
from tasks.engine.stage import Context, stage_task
from tracewheel.config import MergeConfig, MergeSections
from tracewheel.policy.merge import Part, merge


@stage_task("merge", code="tracewheel.policy.merge", sections=MergeSections)
def merge_policies(
    context: Context[MergeSections],
    *,
    parts: dict[str, Policy],
    starts: dict[str, Policy],
    onto: Policy,
    settings: dict[str, Any],
    version: int,
) -> dict[str, Any]:
    """Add what each part has learnt since its start to the adapter of `onto`; `settings` define the method."""
    named = []
    for name, part in parts.items():
        assert part.weights is not None
        named.append(Part(name, part.weights, starts[name].weights))
    return merge(context.config, named, MergeConfig(**settings), context.out, onto=onto.weights, version=version)
