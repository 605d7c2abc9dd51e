"""Fetching the champion that a run starts from, and registering the policy that it ends with."""

from __future__ import annotations

from typing import Any

import prefect
from prefect.cache_policies import NO_CACHE

from tasks.engine.run import Policy, Run
from tasks.engine.stage import Context, stage_task
from tasks.tracking.champion import keep_weights
from tasks.tracking.registry import fetch_champion, register
from tracewheel.config import ChampionSections
from tracewheel.policy.adapters import policy_of


@stage_task("champion", code="tracewheel.policy.adapters", sections=ChampionSections)
def load_champion(context: Context[ChampionSections], *, version: str, digest: str) -> dict[str, Any]:
    """Fetch the champion's adapter, or whole model: from the registry, or else the work folder's copy."""
    weights = fetch_champion(context.config, context.out, version, digest, context.reporter.say)
    keep_weights(context.config.work_dir, weights, digest, weights.name)
    return {"version": version, "policy_version": policy_of(weights, context.config.policy.base).version}


@prefect.task(name="promote_policy", retries=2, retry_delay_seconds=1, cache_policy=NO_CACHE)
def promote_policy(run: Run, policy: Policy, verdict: dict[str, Any]) -> str:
    """Register the challenger's weights; on promotion make it the champion. Returns the model version."""
    assert policy.weights is not None
    return register(run, policy.weights, verdict)
