"""Which trajectories take part in an update, and how good each of their tokens was."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tracewheel.config import GaeAdvantageConfig, PolicyGradientConfig, TeacherAdvantageConfig, UpdateSections
from tracewheel.core.errors import DataError
from tracewheel.learner.advantages import whiten, zero_variance, zero_variance_share
from tracewheel.learner.backend import Backend
from tracewheel.learner.buffer import ReplayBuffer
from tracewheel.learner.losses.kl import Direction, direction_at
from tracewheel.learner.memory import Memory
from tracewheel.learner.normalise import normalise, normalise_turns
from tracewheel.learner.passes import Passes
from tracewheel.learner.rows import Rows
from tracewheel.learner.samples import rewards_of
from tracewheel.learner.targets import critic_targets, group_targets, mean_divergence, teacher_targets
from tracewheel.learner.value_learning import ValueLearner
from tracewheel.learner.versions import staleness

if TYPE_CHECKING:
    import pandas as pd

BUFFER = "buffer.parquet"


class Judge:
    """Turns samples into rows with advantages, as the profile's algorithm sees them.

    Args:
        config: The profile.
        passes: What the models say of the rows.
        backend: Shares the work among processes.
        memory: The KL weight and the reward scales; the latter are brought up to date.
        values: The critic, where the algorithm has one.
        state: The folder of the previous update, with its replay buffer.
    """

    def __init__(
        self,
        config: UpdateSections,
        passes: Passes,
        backend: Backend,
        memory: Memory,
        values: ValueLearner | None,
        state: Path,
    ) -> None:
        assert isinstance(config.learner, PolicyGradientConfig)
        self._config = config
        self._settings: PolicyGradientConfig = config.learner
        self._passes = passes
        self._backend = backend
        self._memory = memory
        self._values = values
        self._buffer: ReplayBuffer | None = None
        if self._settings.buffer.kind != "none":
            stored = state / BUFFER
            buffer = self._settings.buffer
            self._buffer = ReplayBuffer.load(buffer, stored) if stored.is_file() else ReplayBuffer(buffer)

    def save(self, out: Path) -> None:
        """Write the replay buffer, where there is one."""
        if self._buffer is not None:
            self._buffer.save(out / BUFFER)

    def judge(self, samples: pd.DataFrame, iteration: int, rng: random.Random) -> tuple[Rows, dict[str, float]]:
        """The rows that take part, with the advantage of each token in the column `advantages`, and figures.

        Left out are what has no finite reward, what is too old, what holds no action, and groups that say
        nothing, as `zero_variance` has it.
        """
        rewards = rewards_of(samples)
        fresh = self._fresh(samples, iteration)
        figures = {
            "zero_variance_share": zero_variance_share(torch.from_numpy(rewards), samples["group"].tolist()),
            "stale_share": float((~fresh).mean()),
            "kl_weight": self._memory.kl_weight,
        }
        usable = samples[np.isfinite(rewards) & fresh & samples["action_mask"].map(any).to_numpy()]
        drawn = self._drawn(iteration, rng)
        if drawn is not None:
            figures["buffer_rows"] = float(len(drawn))
        rows = self._judged(Rows(self._with_rewards(usable)), drawn, iteration, figures)
        return rows, figures | {"kept_rows": float(len(rows))}

    def _fresh(self, samples: pd.DataFrame, iteration: int) -> np.ndarray:
        bound = self._settings.off_policy.max_staleness
        return np.ones(len(samples), dtype=bool) if bound is None else staleness(samples, iteration) <= bound

    def _drawn(self, iteration: int, rng: random.Random) -> pd.DataFrame | None:
        """Rows of earlier iterations; None without a buffer."""
        if self._buffer is None:
            return None
        drawn = self._buffer.draw(self._settings.buffer.rows, iteration, rng)
        return drawn[self._fresh(drawn, iteration)] if len(drawn) else drawn

    def _with_rewards(self, samples: pd.DataFrame) -> pd.DataFrame:
        """The samples with the column `reward`: their total, on the scale that the profile asks for."""
        import pandas as pd

        totals = samples["total"].astype("float64").tolist()
        if self._settings.reward_normalisation == "none":
            return samples.assign(reward=totals)
        if "family" not in samples:
            raise DataError("learner.reward_normalisation: the scores name no family of their tasks; score the rollouts again")
        families = samples["family"].tolist()
        rewards, self._memory.domains = normalise(totals, families, self._memory.domains, self._settings)
        samples = samples.assign(reward=rewards)
        if "turn_rewards" in samples:
            given = [[] if turns is None else list(turns) for turns in samples["turn_rewards"]]
            scaled = normalise_turns(given, families, self._memory.domains)
            samples = samples.assign(turn_rewards=pd.Series(scaled, index=samples.index))
        return samples

    def _judged(self, rows: Rows, drawn: pd.DataFrame | None, iteration: int, figures: dict[str, float]) -> Rows:
        advantage = self._settings.advantage
        if isinstance(advantage, GaeAdvantageConfig):
            now = self._speaking(rows)
            rows = self._by_critic(advantage, _joined(now, drawn), iteration)
            self._remember(rows.take(range(len(now))), iteration)
            return rows
        if isinstance(advantage, TeacherAdvantageConfig):
            rows = self._by_teacher(advantage, self._speaking(rows))
        else:
            rows = self._by_group(rows, iteration, figures)
        self._remember(rows, iteration)
        return _joined(rows, drawn)

    def _remember(self, rows: Rows, iteration: int) -> None:
        if self._buffer is not None:
            self._buffer.add(rows.table, iteration)

    def _speaking(self, rows: Rows) -> Rows:
        """The rows without the groups that the profile leaves out, for advantages that compare no groups."""
        if self._settings.zero_variance.kind not in ("skip", "dynamic") or not len(rows):
            return rows
        rewards = torch.tensor(rows.table["reward"].tolist(), dtype=torch.float64)
        return rows.take(np.flatnonzero(~zero_variance(rewards, rows.table["group"].tolist()).numpy()))

    def _by_group(self, rows: Rows, iteration: int, figures: dict[str, float]) -> Rows:
        if self._kl_in_reward and len(rows):
            rows = self._passes.with_reference(rows)
            figures["kl"] = mean_divergence(rows)
        kept, advantages = group_targets(self._settings, rows, self._memory.kl_weight, self._direction(iteration))
        return Rows(_advantaged(rows, advantages).take(kept).table)

    def _by_teacher(self, advantage: TeacherAdvantageConfig, rows: Rows) -> Rows:
        from tracewheel.learner.teacher import teacher_logprobs

        teacher = teacher_logprobs(self._config, advantage)
        rows = rows.with_pass("teacher", self._backend, self._passes.batches(rows), teacher)
        return Rows(_advantaged(rows, teacher_targets(rows)).table)

    def _by_critic(self, advantage: GaeAdvantageConfig, rows: Rows, iteration: int) -> Rows:
        assert self._values is not None
        if self._kl_in_reward:
            rows = self._passes.with_reference(rows)
        if self._settings.off_policy.proximal == "recompute":
            rows = self._passes.with_proximal(rows)
        rows = self._values.with_values(rows)
        found, returns = critic_targets(
            self._settings,
            advantage,
            rows,
            self._passes.batches(rows),
            self._memory.kl_weight,
            self._direction(iteration),
        )
        rows = Rows(rows.table, {**rows.extra, "returns": returns})
        return _advantaged(rows, _whitened(found, rows) if advantage.whiten else found)

    def _direction(self, iteration: int) -> Direction:
        return direction_at(self._settings.kl, iteration, self._config.training.iterations)

    @property
    def _kl_in_reward(self) -> bool:
        return self._settings.kl.place == "reward" and self._memory.kl_weight > 0.0


def _whitened(advantages: list[Tensor], rows: Rows) -> list[Tensor]:
    masks = [torch.tensor(list(mask)) for mask in rows.table["action_mask"]]
    if not masks:
        return advantages
    values = torch.cat([row[: len(mask)] for row, mask in zip(advantages, masks, strict=True)])
    return list(whiten(values, torch.cat(masks)).split([len(mask) for mask in masks]))


def _advantaged(rows: Rows, advantages: Sequence[Sequence[float] | Tensor]) -> Rows:
    import pandas as pd

    columns = zip(advantages, rows.table["token_ids"], strict=True)
    column = [[float(value) for value in row][: len(ids)] for row, ids in columns]
    return Rows(rows.table.assign(advantages=pd.Series(column, index=rows.table.index)), rows.extra)


def _joined(rows: Rows, drawn: pd.DataFrame | None) -> Rows:
    """Rows of now with rows of earlier iterations behind them."""
    import pandas as pd

    return rows if drawn is None or drawn.empty else Rows(pd.concat([rows.table, drawn], ignore_index=True))
