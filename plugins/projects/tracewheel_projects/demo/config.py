"""The profile of the tiny base policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tracewheel import Count, Positive, Strict, load_as

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class BasePhaseConfig(Strict):
    """One phase of the base's training: its text, as weights of skills, and its optimiser steps."""

    skills: dict[str, Count]
    conversations: Count
    steps: Count
    learning_rate: Positive = 3e-3
    muon_learning_rate: Positive = 1e-2


class BasePolicyConfig(Strict):
    """The tiny base policy: its world, its size, its text and its training.

    `complete_share` of the conversations are complete episodes of `complete_families`; the rest are single skills of the
    world (`World.skills`). Tokens outside assistant turns count `prompt_weight`.
    """

    world: str = "workspace"
    seed: int = 0
    threads: Count = 2
    hidden_size: Count = 128
    layers: Count = 4
    heads: Count = 4
    kv_heads: Count = 2
    feed_forward: Count = 256
    complete_share: Share = 0.1
    complete_families: tuple[str, ...] = ("pattern",)
    phases: Annotated[tuple[BasePhaseConfig, ...], Field(min_length=1)]
    batch_tokens: Count = 6144
    prompt_weight: Share = 0.2
    replay_rows: Count = 2000

    def as_written(self) -> dict[str, Any]:
        """The config for `base.json`; the workspace, the first of the worlds, is not named."""
        return self.model_dump(exclude={"world"} if self.world == "workspace" else None)


def load_base_config(path: str | Path, overrides: list[str] | None = None) -> BasePolicyConfig:
    """Read the profile of the tiny base policy.

    Raises:
        ConfigError: as for `load_config`.
    """
    return load_as(BasePolicyConfig, path, overrides)
