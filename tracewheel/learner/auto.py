"""`learner.kind: auto`: GRPO or rejection sampling, by the groups of a run's first update."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tracewheel.config import DpoConfig, PolicyGradientConfig
from tracewheel.config.algorithms import CHOSEN
from tracewheel.core.files import read_json

if TYPE_CHECKING:
    import pandas as pd

CHOICE_FILE = "algorithm.json"  # in the output of an update, for the next one
KINDS = ("grpo", "rejection_sampling")
MOST_LOST = 0.25  # the share of lost groups from which rejection sampling was measured to lead

AnyLearner = TypeVar("AnyLearner", PolicyGradientConfig, PolicyGradientConfig | DpoConfig)


def as_kind(learner: PolicyGradientConfig, kind: str) -> PolicyGradientConfig:
    """A learner `auto` as one of `KINDS`, with that preset and its own other choices."""
    return PolicyGradientConfig.model_validate({**learner.model_dump(exclude={*CHOSEN}), "kind": kind})


def alternatives(learner: PolicyGradientConfig) -> list[PolicyGradientConfig]:
    """What it may turn out to be."""
    return [as_kind(learner, kind) for kind in KINDS] if learner.kind == "auto" else [learner]


def chosen(learner: AnyLearner, state: Path, trajectories: pd.DataFrame, iteration: int) -> tuple[AnyLearner, dict[str, float]]:
    """What an update learns with, and the shares that it was chosen by; a learner that is not `auto` stays, without shares.

    Args:
        state: The folder of the previous update, which keeps its choice.
        trajectories: As `read_scored_trajectories` gives them.
        iteration: The first one chooses.
    """
    if not isinstance(learner, PolicyGradientConfig) or learner.kind != "auto":
        return learner, {}
    file = state / CHOICE_FILE
    shares: dict[str, float] = read_json(file) if iteration > 1 and file.is_file() else _shares(trajectories)
    return as_kind(learner, kind_of(shares)), shares


def kind_of(shares: Mapping[str, float]) -> str:
    """Rejection sampling where many groups are lost and teach nothing, else GRPO, which learns from partial rewards too.

    The share is the least at which the two were compared (`benchmarks/results/lost_tasks.md`).
    """
    return KINDS[shares["first_lost"] > MOST_LOST]


def says(shares: Mapping[str, float]) -> str:
    """The choice and its reason, in a line."""
    lost, some, solved = (shares[name] for name in ("first_lost", "first_some", "first_solved"))
    shown = f"{lost:.0%} are lost and teach nothing, {solved:.0%} solved by all samples, {some:.0%} teach"
    return f"{kind_of(shares)}, as of the first groups {shown}"


def _shares(trajectories: pd.DataFrame) -> dict[str, float]:
    """Of the groups: lost with equal rewards, solved by all samples, and the rest."""
    scored = trajectories.dropna(subset=["success"]).groupby("group")
    success, reward = scored["success"].agg(["min", "max"]), scored["total"].agg(["min", "max"])
    nothing = (success["max"] == 0.0) & (reward["min"] == reward["max"])
    lost, solved = (each.sum() / max(len(success), 1) for each in (nothing, success["min"] == 1.0))
    return {"first_lost": float(lost), "first_some": float(1.0 - lost - solved), "first_solved": float(solved)}
