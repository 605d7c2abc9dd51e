"""Which trajectories take part in an update, the advantage of each of their tokens, and the numbers that go on to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from tracewheel.config import GaeAdvantageConfig, KlConfig, PolicyGradientConfig, TeacherAdvantageConfig, UpdateSections
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json, write_json
from tracewheel.learner.advantages.group import whiten, zero_variance, zero_variance_share
from tracewheel.learner.advantages.trajectories import advantage_function
from tracewheel.learner.backends.backend import Backend
from tracewheel.learner.forward_passes import ForwardPasses
from tracewheel.learner.policy_versions import staleness
from tracewheel.learner.scored_trajectories import rewards_of, truncated, with_certainty, with_finite_logprobs
from tracewheel.learner.token_advantages import (
    advantages_by_critic,
    advantages_by_group,
    advantages_by_teacher,
    baselines_of,
    mean_divergence,
)
from tracewheel.learner.trajectory_table import TrajectoryTable
from tracewheel.learner.value_learner import ValueLearner
from tracewheel.policy.adapters import policy_of

if TYPE_CHECKING:
    import pandas as pd


FILE = "learner.json"


@dataclass
class LearnerState:
    """The adapted KL weight, and the mean entropy of the last step (nats). `domains` is empty since 0.2."""

    kl_weight: float
    entropy: float | None = None
    domains: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path, kl: KlConfig) -> Self:
        """Read the state of the previous update, or start a new one. Without a KL target the profile's KL weight holds.

        Raises:
            DataError: the file does not hold a learner's state.
        """
        state = cls(kl.weight)
        if (folder / FILE).is_file():
            try:
                state = cls(**read_json(folder / FILE))
            except TypeError as error:
                raise DataError(f"{folder / FILE}: not a learner's state: {error}") from error
        if kl.target is None or not state.kl_weight:  # without a KL before, the weight begins
            state.kl_weight = kl.weight
        return state

    def save(self, out: Path) -> None:
        """Write it; equal states give equal bytes."""
        write_json(out / FILE, vars(self))


class AdvantageEstimator:
    """Selects scored trajectories and computes their advantages, as the profile's algorithm does.

    Args:
        config: The profile.
        passes: Scores tokens under other policies.
        backend: Divides the work among processes.
        carried: The KL weight.
        values: The critic, where the algorithm has one.
        state: The folder of the previous update.
    """

    def __init__(
        self,
        config: UpdateSections,
        passes: ForwardPasses,
        backend: Backend,
        carried: LearnerState,
        values: ValueLearner | None,
        state: Path,
    ) -> None:
        assert isinstance(config.learner, PolicyGradientConfig)
        self._config = config
        self._settings: PolicyGradientConfig = config.learner
        self._passes = passes
        self._backend = backend
        self._carried = carried
        self._values = values
        self.version = policy_of(state, config.policy.base).version

    def estimate(self, trajectories: pd.DataFrame, iteration: int) -> tuple[TrajectoryTable, dict[str, float]]:
        """The trajectories that take part, with a list of advantages per token in the column `advantages`, and figures.

        Left out are trajectories without a finite reward, too old ones, those without an action, those whose sampler
        gave a token a log-probability that is not finite, truncated ones if the profile says so, and groups without
        variance, as its `zero_variance` says. An advantage counts as much as its reward is certain.
        """
        rewards = rewards_of(trajectories)
        if self._settings.truncated == "mask":
            rewards = np.where(truncated(trajectories), np.nan, rewards)
        fresh = self._fresh(trajectories, iteration)
        figures = {
            "zero_variance_share": zero_variance_share(torch.from_numpy(rewards), trajectories["group"].tolist()),
            "stale_share": float((~fresh).mean()),
            "kl_weight": self._carried.kl_weight,
        }
        sound = with_finite_logprobs(trajectories)
        figures["not_finite_share"] = float((~sound).mean())
        usable = trajectories[np.isfinite(rewards) & fresh & sound & trajectories["action_mask"].map(any).to_numpy()]
        totals = usable["total"].astype("float64").tolist()
        table = self._with_advantages(TrajectoryTable(usable.assign(reward=totals)), figures)
        table = TrajectoryTable(with_certainty(table.frame), table.per_token)
        return table, figures | {"kept_rows": float(len(table))}

    def _fresh(self, trajectories: pd.DataFrame, iteration: int) -> np.ndarray:
        bound = self._settings.off_policy.max_staleness
        return (
            np.ones(len(trajectories), dtype=bool)
            if bound is None
            else staleness(trajectories, self.version, iteration) <= bound
        )

    def _with_advantages(self, table: TrajectoryTable, figures: dict[str, float]) -> TrajectoryTable:
        advantage = self._settings.advantage
        if isinstance(advantage, GaeAdvantageConfig):
            return self._by_critic(advantage, self._with_signal(table))
        if isinstance(advantage, TeacherAdvantageConfig):
            return self._by_teacher(advantage, self._with_signal(table))
        return self._by_group(table, figures)

    def _with_signal(self, table: TrajectoryTable) -> TrajectoryTable:
        """The rows without the groups that `zero_variance` leaves out, for advantages that compare no groups."""
        if self._settings.zero_variance.kind not in ("skip", "dynamic") or not len(table):
            return table
        rewards = torch.tensor(table.frame["reward"].tolist(), dtype=torch.float64)
        return table.take(np.flatnonzero(~zero_variance(rewards, table.frame["group"].tolist()).numpy()))

    def _by_group(self, table: TrajectoryTable, figures: dict[str, float]) -> TrajectoryTable:
        if self._kl_in_reward and len(table):
            table = self._passes.with_reference(table)
            figures["kl"] = mean_divergence(table)
        if self._settings.advantage.kind == "greedy_baseline" and len(table):
            figures["without_baseline_share"] = float(baselines_of(table).isnan().double().mean())
        kept, advantages = advantages_by_group(self._settings, table, self._carried.kl_weight)
        return TrajectoryTable(_with_column(table, advantages).take(kept).frame)

    def _by_teacher(self, advantage: TeacherAdvantageConfig, table: TrajectoryTable) -> TrajectoryTable:
        teacher = advantage_function("teacher")(self._config, advantage)
        table = table.with_pass("teacher", self._backend, self._passes.batches(table), teacher)
        return TrajectoryTable(_with_column(table, advantages_by_teacher(table)).frame)

    def _by_critic(self, advantage: GaeAdvantageConfig, table: TrajectoryTable) -> TrajectoryTable:
        assert self._values is not None
        if self._kl_in_reward:
            table = self._passes.with_reference(table)
        if self._settings.off_policy.proximal == "recompute":
            table = self._passes.with_proximal(table)
        table = self._values.with_values(table)
        if self._settings.truncated == "bootstrap":
            table = self._values.with_values_after(table)
        advantages, returns = advantages_by_critic(
            self._settings, advantage, table, self._passes.batches(table), self._carried.kl_weight
        )
        table = table.with_per_token("returns", returns)
        return _with_column(table, _whitened(advantages, table))

    @property
    def _kl_in_reward(self) -> bool:
        return self._settings.kl.place == "reward" and self._carried.kl_weight > 0.0


def _whitened(advantages: list[Tensor], table: TrajectoryTable) -> list[Tensor]:
    masks = [torch.tensor(list(mask)) for mask in table.frame["action_mask"]]
    if not masks:
        return advantages
    values = torch.cat([row[: len(mask)] for row, mask in zip(advantages, masks, strict=True)])
    return list(whiten(values, torch.cat(masks)).split([len(mask) for mask in masks]))


def _with_column(table: TrajectoryTable, advantages: Sequence[Sequence[float] | Tensor]) -> TrajectoryTable:
    import pandas as pd

    columns = zip(advantages, table.frame["token_ids"], strict=True)
    column = [[float(value) for value in row][: len(ids)] for row, ids in columns]
    return TrajectoryTable(table.frame.assign(advantages=pd.Series(column, index=table.frame.index)), table.per_token)
