"""`learner.kind: auto`: GRPO or rejection sampling, by the groups of a run's first update."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tracewheel.config import DpoConfig, LostTasksConfig, PolicyGradientConfig
from tracewheel.config.algorithms import CHOSEN
from tracewheel.core.files import read_json

if TYPE_CHECKING:
    import pandas as pd

CHOICE_FILE = "algorithm.json"  # in the output of an update, for the next one
KINDS = ("grpo", "rejection_sampling")

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
    """Rejection sampling where most groups are lost, else GRPO, which uses partial rewards too.

    Where rewards are 0 or 1 the two are not told apart at any share (`benchmarks/results/lost_tasks.md`).
    """
    return KINDS[shares["first_lost"] > LostTasksConfig.MOST]


def says(shares: Mapping[str, float]) -> str:
    """The choice and its reason, in a line."""
    lost, some, solved = (shares[name] for name in ("first_lost", "first_some", "first_solved"))
    shown = f"{lost:.0%} are lost, {some:.0%} solved by some samples, {solved:.0%} by all"
    return f"{kind_of(shares)}, as of the first groups {shown}"


def _shares(trajectories: pd.DataFrame) -> dict[str, float]:
    groups = trajectories.dropna(subset=["success"]).groupby("group")["success"].agg(["min", "max"])
    lost, solved = ((groups[name] == value).sum() / max(len(groups), 1) for name, value in (("max", 0.0), ("min", 1.0)))
    return {"first_lost": float(lost), "first_some": float(1.0 - lost - solved), "first_solved": float(solved)}
