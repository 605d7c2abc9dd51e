"""The policy update: GRPO on stored trajectories, a LoRA adapter against its frozen starting point.

Policy and reference are two adapters on one base, so there is no second model in memory. Everything
an update needs is in files (adapter, optimiser state, trajectories, scores) and every random choice
follows from (seed, iteration), so an update that is run again gives the same bytes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.adapters import check_adapter, write_adapter
from tracewheel.config import RetrainConfig
from tracewheel.errors import DataError
from tracewheel.files import read_table, write_json

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from torch import Tensor

    from tracewheel.batch import Batch

POLICY, REFERENCE = "policy", "reference"


def update(
    config: RetrainConfig, trajectories: Path, scores: Path, state: Path, reference: Path, out: Path, *, iteration: int
) -> dict[str, float]:
    """Update the policy once on an iteration's trajectories.

    Args:
        trajectories, scores: Parquet files of the rollout and score stages.
        state: The previous state: a folder with `adapter/` and, after an update, `optimizer.pt`.
        reference: The adapter that KL is measured to.
        out: Gets `adapter/`, `optimizer.pt` and `metrics.json`.
        iteration: Number of this update; fixes its random choices and the new policy version.

    Raises:
        AdapterMismatchError: an adapter belongs to another base.
        DataError: scores and trajectories do not belong together.
    """
    import torch

    torch.set_num_threads(config.threads)
    rollouts = _join(read_table(trajectories), read_table(scores))
    learner = Learner(config, state / "adapter", reference)
    optimizer_file = state / "optimizer.pt"
    if optimizer_file.exists():
        learner.optimizer.load_state_dict(torch.load(optimizer_file, weights_only=True))
    for group in learner.optimizer.param_groups:
        group["lr"] = _learning_rate(config, iteration)
    metrics = _rollout_metrics(rollouts) | learner.learn(rollouts, iteration)
    write_adapter(learner.model, out / "adapter", POLICY, config.policy.base, version=iteration)
    torch.save(learner.optimizer.state_dict(), out / "optimizer.pt")
    write_json(out / "metrics.json", metrics)
    return metrics


def _learning_rate(config: RetrainConfig, iteration: int) -> float:
    """The learning rate of an iteration, the first being 1."""
    settings, iterations = config.learner, config.training.iterations
    left = 1.0 - min(iteration - 1, iterations - 1) / iterations
    return settings.learning_rate * (left if settings.schedule == "linear" else 1.0)


def _join(trajectories: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    joined = trajectories.merge(
        scores[["trajectory_id", "total"]], left_on="id", right_on="trajectory_id", how="left", indicator=True
    )
    lost = joined[joined["_merge"] != "both"]
    if len(lost):
        raise DataError(f"{len(lost)} trajectories have no score, the first is {lost.iloc[0]['id']}; score them again")
    return joined.drop(columns="_merge")


def _rollout_metrics(rollouts: pd.DataFrame) -> dict[str, float]:
    actions = rollouts["action_mask"].map(sum)
    return {
        "reward": float(rollouts["total"].mean()),
        "unscored_share": float(rollouts["total"].isna().mean()),
        "generated_tokens": float(actions.mean()),
        "trajectory_tokens": float(rollouts["token_ids"].map(len).mean()),
        "truncated_share": float(rollouts["stop_reason"].isin(("max_tokens", "max_turns")).mean()),
    }


@dataclass(frozen=True)
class _Step:
    """One optimiser step's micro-batches, with the reference's log-probabilities of each."""

    batches: list[Batch]
    references: list[Tensor | None]


class Learner:
    """The model with its two adapters, and the optimiser of the policy's.

    Args:
        config: The profile.
        adapter: The policy's adapter, which is trained.
        reference: The adapter that KL is measured to, which is not.

    Raises:
        AdapterMismatchError: an adapter belongs to another base.
    """

    def __init__(self, config: RetrainConfig, adapter: Path, reference: Path) -> None:
        import torch
        from peft import PeftModel

        from tracewheel.engines.policy_model import load_base

        for path in (adapter, reference):
            check_adapter(path, config.policy.base)
        self.config = config
        base = load_base(config.policy, config.policy.base)
        self.model: Any = PeftModel.from_pretrained(base, adapter, adapter_name=POLICY, is_trainable=True)
        self.model.load_adapter(reference, adapter_name=REFERENCE)
        self.model.set_adapter(POLICY)
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            self.parameters, lr=config.learner.learning_rate, weight_decay=0.0
        )
        self.replay = _read_replay(config) if config.learner.replay_rows else None

    def learn(self, rollouts: pd.DataFrame, iteration: int) -> dict[str, float]:
        """Run the optimiser steps of one iteration; returns the means of their figures."""
        import torch

        from tracewheel.advantages import group_advantages, zero_variance_share

        rewards = torch.tensor(rollouts["total"].to_numpy(dtype="float64", na_value=float("nan")))
        groups = rollouts["group"].tolist()
        advantages, zero_variance = group_advantages(rewards, groups, self.config.learner.scale_advantages)
        figures = {"zero_variance_share": zero_variance_share(rewards, groups)}
        kept = ~zero_variance & ~rewards.isnan()
        useful = rollouts[kept.numpy()].assign(advantage=advantages[kept].numpy())
        if useful.empty:
            return figures | {"steps": 0.0}
        rng = random.Random(f"update-{self.config.seed}-{iteration}")
        temperature = float(rollouts["temperature"].iloc[0])
        steps = []
        for _ in range(self.config.learner.epochs):
            for step in self._steps(useful, rng, temperature):
                steps.append(self._optimise(step, temperature, rng))
        return figures | {key: sum(step[key] for step in steps) / len(steps) for key in steps[0]} | {"steps": float(len(steps))}

    def _steps(self, useful: pd.DataFrame, rng: random.Random, temperature: float) -> list[_Step]:
        import torch

        from tracewheel.batch import micro_batches
        from tracewheel.token_logprobs import action_logprobs

        order = list(range(len(useful)))
        rng.shuffle(order)
        n_steps = min(self.config.learner.minibatches, len(order))
        steps = []
        for number in range(n_steps):
            part = useful.iloc[sorted(order[number::n_steps])]
            batches = micro_batches(part, part["advantage"].tolist(), self.config.learner.micro_batch_tokens)
            batches = [batch.to(self.config.policy.device) for batch in batches]
            references: list[Tensor | None] = [None] * len(batches)
            if self.config.learner.kl:
                self.model.set_adapter(REFERENCE)
                with torch.no_grad():
                    references = [action_logprobs(self.model, batch, temperature)[0] for batch in batches]
                self.model.set_adapter(POLICY)
            steps.append(_Step(batches, references))
        return steps

    def _optimise(self, step: _Step, temperature: float, rng: random.Random) -> dict[str, float]:
        import torch

        from tracewheel.batch import step_totals
        from tracewheel.losses import Diagnostics, grpo_loss
        from tracewheel.token_logprobs import action_logprobs

        settings = self.config.learner
        totals = step_totals(step.batches)
        figures = {"loss": 0.0, "policy_loss": 0.0, "kl": 0.0, "entropy": 0.0}
        diagnostics = Diagnostics()
        self.optimizer.zero_grad()
        for batch, reference in zip(step.batches, step.references, strict=True):
            logprobs, entropy = action_logprobs(self.model, batch, temperature)
            result = grpo_loss(
                logprobs,
                batch.behaviour_logprobs,
                reference,
                batch.advantages,
                batch.action_mask,
                totals,
                clip=settings.clip,
                kl=settings.kl,
                aggregation=settings.aggregation,
            )
            result.loss.backward()
            diagnostics = diagnostics + result.diagnostics
            figures["loss"] += result.loss.item()
            figures["policy_loss"] += result.policy.item()
            figures["kl"] += result.kl.item() if result.kl is not None else 0.0
            figures["entropy"] += entropy.sum().item() / totals.tokens
        figures["replay_loss"] = self.learn_replay(rng)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, settings.max_grad_norm, error_if_nonfinite=True)
        figures["grad_norm"] = float(norm)
        self.optimizer.step()
        return figures | {
            "clip_share": diagnostics.clip_share,
            "behaviour_kl": diagnostics.behaviour_kl,
            "ratio_max": diagnostics.ratio_max,
        }

    def learn_replay(self, rng: random.Random) -> float:
        """Add the gradient of the weighted cross-entropy on generic text; returns the unweighted loss."""
        from tracewheel.batch import micro_batches
        from tracewheel.token_logprobs import action_logprobs

        if self.replay is None:
            return 0.0
        rows = self.replay.iloc[
            sorted(rng.sample(range(len(self.replay)), min(self.config.learner.replay_rows, len(self.replay))))
        ]
        batches = micro_batches(rows, [0.0] * len(rows), self.config.learner.micro_batch_tokens)
        tokens = sum(int(batch.action_mask.sum()) for batch in batches)
        total = 0.0
        for batch in batches:
            on_device = batch.to(self.config.policy.device)
            loss = -action_logprobs(self.model, on_device, 1.0)[0].sum() / tokens
            (self.config.learner.replay_weight * loss).backward()
            total += loss.item()
        return total


def _read_replay(config: RetrainConfig) -> pd.DataFrame | None:
    if config.learner.replay_path is None:
        return None
    table = read_table(Path(config.learner.replay_path))
    table = table.rename(columns={"input_ids": "token_ids", "assistant_masks": "action_mask"})
    table["logprobs"] = table["token_ids"].map(lambda ids: [0.0] * len(ids))
    return table
