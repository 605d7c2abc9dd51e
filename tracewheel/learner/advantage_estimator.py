"""Which trajectories take part in an update, and the advantage of each of their tokens."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tracewheel.config import GaeAdvantageConfig, PolicyGradientConfig, TeacherAdvantageConfig, UpdateSections
from tracewheel.core.errors import DataError
from tracewheel.learner.advantages import advantage_function, whiten, zero_variance, zero_variance_share
from tracewheel.learner.backends.backend import Backend
from tracewheel.learner.forward_passes import ForwardPasses
from tracewheel.learner.learner_state import LearnerState
from tracewheel.learner.policy_versions import age, staleness, version_in_run
from tracewheel.learner.scored_trajectories import rewards_of, truncated, with_certainty, with_finite_logprobs
from tracewheel.learner.token_advantages import (
    RewardKl,
    advantages_by_critic,
    advantages_by_group,
    advantages_by_teacher,
    baselines_of,
    mean_divergence,
)
from tracewheel.learner.trajectory_buffer import VERSION, TrajectoryBuffer
from tracewheel.learner.trajectory_table import TrajectoryTable
from tracewheel.learner.value_learner import ValueLearner
from tracewheel.policy.adapters import policy_of

if TYPE_CHECKING:
    import pandas as pd


RETAIN = 0.9  # of the earlier weight, at each update: the policy has changed since
LEAST_DEVIATION = 0.05  # of rewards from 0 to 1: keeps tiny differences small in a nearly mastered family

RewardScales = dict[str, dict[str, float]]


def normalise(
    rewards: Sequence[float], families: Sequence[str], scales: Mapping[str, Mapping[str, float]]
) -> tuple[list[float], RewardScales]:
    """Update the running moments of each family with an update's rewards, and normalise the rewards by them.

    Otherwise a domain whose rewards spread ten times as wide would have ten times the gradient. With advantages
    scaled by group this changes nothing; with unscaled ones, or a critic, it does.

    Args:
        rewards: One per rollout; NaN and infinite ones are returned as they are and do not count.
        families: The domain of each.
        scales: `{family: {"count", "mean", "squares"}}` from the last update, `{}` at first: the weight of the
            rewards so far, their mean, and the sum of squared deviations from it.

    Returns:
        The rewards, and the scales for the next update.

    Raises:
        DataError: the scales do not have that form.
    """
    if len(rewards) != len(families):
        raise ValueError(f"{len(rewards)} rewards and {len(families)} families")
    running = {family: _figures(family, values) for family, values in scales.items()}
    observed: defaultdict[str, list[float]] = defaultdict(list)
    for reward, family in zip(rewards, families, strict=True):
        if math.isfinite(reward):
            observed[family].append(reward)
    for family, values in sorted(observed.items()):
        running[family] = _merged(running.get(family), values)
    scaled = [
        (reward - running[family]["mean"]) / deviation(running[family]) if math.isfinite(reward) else reward
        for reward, family in zip(rewards, families, strict=True)
    ]
    return scaled, running


def normalise_turns(
    turn_rewards: Sequence[Sequence[float]], families: Sequence[str], scales: Mapping[str, Mapping[str, float]]
) -> list[list[float]]:
    """Normalise the rewards of turns by scales that `normalise` returned.

    Each is divided by the family's deviation, and the mean is subtracted from the last turn: a trajectory's turns
    still sum to its normalised reward.
    """
    scaled = []
    for rewards, family in zip(turn_rewards, families, strict=True):
        figures = scales.get(family)
        if figures is None or not rewards:
            scaled.append(list(rewards))
            continue
        parts = [reward / deviation(figures) for reward in rewards]
        scaled.append([*parts[:-1], parts[-1] - figures["mean"] / deviation(figures)])
    return scaled


def deviation(figures: Mapping[str, float]) -> float:
    """The running standard deviation, never less than `LEAST_DEVIATION`."""
    return max(math.sqrt(figures["squares"] / figures["count"]), LEAST_DEVIATION)


def _merged(before: Mapping[str, float] | None, values: Sequence[float]) -> dict[str, float]:
    """Merge decayed moments with new values: the pairwise update of Chan, Golub and LeVeque (1979)."""
    count = float(len(values))
    mean = math.fsum(values) / count
    squares = math.fsum((value - mean) ** 2 for value in values)
    if before is None:
        return {"count": count, "mean": mean, "squares": squares}
    old_count = RETAIN * before["count"]
    both = old_count + count
    apart = mean - before["mean"]
    return {
        "count": both,
        "mean": before["mean"] + apart * count / both,
        "squares": RETAIN * before["squares"] + squares + apart**2 * old_count * count / both,
    }


def _figures(family: str, values: object) -> dict[str, float]:
    if isinstance(values, Mapping) and set(values) == {"count", "mean", "squares"}:
        numbers = {str(name): float(value) for name, value in values.items()}
        if all(map(math.isfinite, numbers.values())) and numbers["count"] > 0 and numbers["squares"] >= 0:
            return numbers
    raise DataError(f"reward normalisation: the scale of family '{family}' is {values!r}, not count, mean and squares")


BUFFER = "buffer.parquet"


class AdvantageEstimator:
    """Selects scored trajectories and computes their advantages, as the profile's algorithm does.

    Args:
        config: The profile.
        passes: Scores tokens under other policies.
        backend: Divides the work among processes.
        carried: KL weight and reward scales; the latter are updated.
        values: The critic, where the algorithm has one.
        state: The folder of the previous update, with its trajectory buffer.
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
        self._buffer: TrajectoryBuffer | None = None
        if self._settings.buffer.kind != "none":
            stored = state / BUFFER
            buffer = self._settings.buffer
            self._buffer = TrajectoryBuffer.load(buffer, stored) if stored.is_file() else TrajectoryBuffer(buffer)

    def save(self, out: Path) -> None:
        """Write the trajectory buffer, where there is one."""
        if self._buffer is not None:
            self._buffer.save(out / BUFFER)

    def estimate(
        self, trajectories: pd.DataFrame, iteration: int, rng: random.Random
    ) -> tuple[TrajectoryTable, dict[str, float]]:
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
        drawn = self._drawn(iteration, rng)
        if drawn is not None:
            figures["buffer_rows"] = float(len(drawn))
            if len(drawn):
                ages = age(drawn[VERSION].to_numpy(), self.version, iteration)
                figures |= {"advantage_age_mean": float(ages.mean()), "advantage_age_max": float(ages.max())}
        table = self._with_advantages(TrajectoryTable(self._with_rewards(usable)), drawn, iteration, figures)
        table = TrajectoryTable(with_certainty(table.frame), table.per_token)
        return table, figures | {"kept_rows": float(len(table))}

    def _fresh(self, trajectories: pd.DataFrame, iteration: int) -> np.ndarray:
        bound = self._settings.off_policy.max_staleness
        return (
            np.ones(len(trajectories), dtype=bool)
            if bound is None
            else staleness(trajectories, self.version, iteration) <= bound
        )

    def _drawn(self, iteration: int, rng: random.Random) -> pd.DataFrame | None:
        """Trajectories of earlier iterations; None without a buffer."""
        if self._buffer is None:
            return None
        version = version_in_run(self.version, iteration)
        drawn = self._buffer.draw(self._settings.buffer.rows, iteration, rng, version=version)
        return drawn[self._fresh(drawn, iteration)] if len(drawn) else drawn

    def _with_rewards(self, trajectories: pd.DataFrame) -> pd.DataFrame:
        """The trajectories with the column `reward`: their total, normalised by the profile's settings."""
        import pandas as pd

        totals = trajectories["total"].astype("float64").tolist()
        if self._settings.reward_normalisation == "none":
            return trajectories.assign(reward=totals)
        if "family" not in trajectories:
            raise DataError("learner.reward_normalisation: the scores name no family of their tasks; score the rollouts again")
        families = trajectories["family"].tolist()
        rewards, self._carried.domains = normalise(totals, families, self._carried.domains)
        trajectories = trajectories.assign(reward=rewards)
        if "turn_rewards" in trajectories:
            given = [[] if turns is None else list(turns) for turns in trajectories["turn_rewards"]]
            scaled = normalise_turns(given, families, self._carried.domains)
            trajectories = trajectories.assign(turn_rewards=pd.Series(scaled, index=trajectories.index))
        return trajectories

    def _with_advantages(
        self, table: TrajectoryTable, drawn: pd.DataFrame | None, iteration: int, figures: dict[str, float]
    ) -> TrajectoryTable:
        advantage = self._settings.advantage
        if isinstance(advantage, GaeAdvantageConfig):
            current = self._with_signal(table)
            table = self._by_critic(advantage, _joined(current, drawn), iteration)
            self._store(table.take(range(len(current))), iteration)
            return table
        if isinstance(advantage, TeacherAdvantageConfig):
            table = self._by_teacher(advantage, self._with_signal(table))
        else:
            table = self._by_group(table, iteration, figures)
        self._store(table, iteration)
        return _joined(table, drawn)

    def _store(self, table: TrajectoryTable, iteration: int) -> None:
        if self._buffer is not None:
            self._buffer.add(table.frame, iteration, version=version_in_run(self.version, iteration))

    def _with_signal(self, table: TrajectoryTable) -> TrajectoryTable:
        """The rows without the groups that `zero_variance` leaves out, for advantages that compare no groups."""
        if self._settings.zero_variance.kind not in ("skip", "dynamic") or not len(table):
            return table
        rewards = torch.tensor(table.frame["reward"].tolist(), dtype=torch.float64)
        return table.take(np.flatnonzero(~zero_variance(rewards, table.frame["group"].tolist()).numpy()))

    def _by_group(self, table: TrajectoryTable, iteration: int, figures: dict[str, float]) -> TrajectoryTable:
        if self._kl_in_reward and len(table):
            table = self._passes.with_reference(table)
            figures["kl"] = mean_divergence(table)
        if self._settings.advantage.kind == "greedy_baseline" and len(table):
            figures["without_baseline_share"] = float(baselines_of(table).isnan().double().mean())
        kept, advantages = advantages_by_group(self._settings, table, self._reward_kl(iteration))
        return TrajectoryTable(_with_column(table, advantages).take(kept).frame)

    def _by_teacher(self, advantage: TeacherAdvantageConfig, table: TrajectoryTable) -> TrajectoryTable:
        teacher = advantage_function("teacher")(self._config, advantage)
        table = table.with_pass("teacher", self._backend, self._passes.batches(table), teacher)
        return TrajectoryTable(_with_column(table, advantages_by_teacher(table)).frame)

    def _by_critic(self, advantage: GaeAdvantageConfig, table: TrajectoryTable, iteration: int) -> TrajectoryTable:
        assert self._values is not None
        if self._kl_in_reward:
            table = self._passes.with_reference(table)
        if self._settings.off_policy.proximal == "recompute":
            table = self._passes.with_proximal(table)
        table = self._values.with_values(table)
        if self._settings.truncated == "bootstrap":
            table = self._values.with_values_after(table)
        advantages, returns = advantages_by_critic(
            self._settings, advantage, table, self._passes.batches(table), self._reward_kl(iteration)
        )
        table = table.with_per_token("returns", returns)
        return _with_column(table, _whitened(advantages, table) if advantage.whiten else advantages)

    def _reward_kl(self, iteration: int) -> RewardKl:
        direction = self._settings.kl.direction
        return RewardKl(self._carried.kl_weight, direction)

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


def _joined(table: TrajectoryTable, drawn: pd.DataFrame | None) -> TrajectoryTable:
    """This iteration's trajectories, followed by those drawn from the buffer."""
    import pandas as pd

    if drawn is None or drawn.empty:
        return table
    return TrajectoryTable(pd.concat([table.frame, drawn], ignore_index=True))
