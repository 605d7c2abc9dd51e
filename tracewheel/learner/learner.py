"""The policy-gradient learner: advantages, optimiser steps, and the state between iterations.

Algorithms differ in configuration and in pure functions (`advantages`, `losses`); this class calls these
functions. Every random choice follows from (seed, iteration), and all that an algorithm carries over is in the
state folder, so an update that is repeated or resumed gives the same bytes.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tracewheel.config import GaeAdvantageConfig, OffPolicyConfig, PolicyGradientConfig, SurrogateConfig, UpdateSections
from tracewheel.core.progress import report
from tracewheel.learner.advantage_estimator import AdvantageEstimator, LearnerState
from tracewheel.learner.backends.backend import Backend
from tracewheel.learner.backends.select import make_policy_backend, models_loading
from tracewheel.learner.batch import REPLAY_WEIGHT, Batch, TokenisedText, replay_text, step_totals
from tracewheel.learner.fidelity import row_figures
from tracewheel.learner.forward_passes import ForwardPasses
from tracewheel.learner.kernels.language_model import checkpoint_activations
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.learner.learning_rate import learning_rate
from tracewheel.learner.losses.aggregation import StepTotals, aggregate, positive_example_loss
from tracewheel.learner.losses.policy import Diagnostics, PolicyTokens, policy_loss
from tracewheel.learner.losses.ratios import adapted_weight, correction_shares, correction_weights, k3, kl_term
from tracewheel.learner.mismatch import MismatchStatistics, act_on, corrected, mismatch_of, resolved, with_dual_clip
from tracewheel.learner.models import load_models
from tracewheel.learner.per_token import add_cross_entropy, pad_per_token
from tracewheel.learner.policy_versions import current_tokens, version_in_run
from tracewheel.learner.scored_trajectories import succeeded
from tracewheel.learner.trajectory_table import TrajectoryTable
from tracewheel.learner.turn_masks import with_masks
from tracewheel.learner.value_learner import ValueLearner
from tracewheel.policy.adapters import policy_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Positives:
    """Which of the step's N rows are successes [N], and how many action tokens these have."""

    rows: Tensor
    tokens: int

    @classmethod
    def of(cls, trajectories: pd.DataFrame, batches: Sequence[Batch]) -> Positives:
        """Those of the rows that a step's batches, on all processes, were cut from."""
        found = cls(torch.from_numpy(succeeded(trajectories)), 0)
        return cls(found.rows, sum(int(batch.action_mask[found.flags(batch)].sum()) for batch in batches))

    def flags(self, batch: Batch) -> Tensor:
        """Which rows of a batch are successes [B]; rows of padding, at position -1, are none."""
        flags = self.rows.to(batch.rows.device)[batch.rows.clamp(min=0)]
        return flags & (batch.rows >= 0)


OPTIMIZER = "optimizer.pt"


@dataclass(frozen=True)
class _Iteration:
    """What holds for all optimiser steps of an iteration."""

    learning_rate: float
    off_policy: OffPolicyConfig
    surrogate: SurrogateConfig


@dataclass(frozen=True)
class _Step:
    """What holds for all micro-batches of an optimiser step."""

    iteration: _Iteration
    totals: StepTotals
    positives: Positives


class Learner:
    """A policy, its reference, and the state of its algorithm.

    Args:
        config: The profile; `config.learner` is a `PolicyGradientConfig`.
        state: The folder of the previous update, or of the policy to start from.
        reference: The policy that KL is measured to: its folder, or the state that holds it.

    Raises:
        AdapterMismatchError: an adapter belongs to another base.
        DataError: the state is of another algorithm.
    """

    def __init__(self, config: UpdateSections, state: Path, reference: Path) -> None:
        assert isinstance(config.learner, PolicyGradientConfig)
        self.config = config
        self.settings: PolicyGradientConfig = config.learner
        self.mismatch = resolved(config)
        with models_loading(self.settings, config.policy) as policy:
            self.models = load_models(config.model_copy(update={"policy": policy}), state, reference)
        if self.settings.gradient_checkpointing:
            checkpoint_activations(self.models.model)
        self.backend: Backend = make_policy_backend(config, self.models)
        if (state / OPTIMIZER).is_file():
            self.backend.load(state / OPTIMIZER)
        self.replay_text = replay_text(self.settings, config.policy.base)
        self.solutions = self._read_solutions(None)
        self.passes = ForwardPasses(self.settings, config.policy.device, self.models, self.backend)
        advantage = self.settings.advantage
        self.values = (
            ValueLearner(config, advantage, self.models, self.passes, state)
            if isinstance(advantage, GaeAdvantageConfig)
            else None
        )
        self._read(state)

    def resume(self, state: Path) -> bool:
        """Continue from the folder of an update, as a new learner would, with the models that are loaded.

        Returns:
            Whether it could: the folder must hold an update of this algorithm, with weights of the same names.

        Raises:
            AdapterMismatchError: the policy belongs to another base.
            DataError: the state is of another algorithm.
        """
        weights = self.models.stored(state)
        if weights is None or not (state / OPTIMIZER).is_file() or (self.values and not self.values.stored(state)):
            return False
        self.backend.set_weights(weights)
        self.backend.load(state / OPTIMIZER)
        if self.values:
            self.values.resume(state)
        self._read(state)
        return True

    def _read(self, state: Path) -> None:
        """Read what the algorithm carries from update to update, apart from weights and optimisers."""
        self.version = policy_of(state, self.config.policy.base).version
        self.carried = LearnerState.load(state, self.settings.kl)
        self.advantages = AdvantageEstimator(self.config, self.passes, self.backend, self.carried, self.values, state)

    def save(self, out: Path, version: int) -> None:
        """Write the policy and the state of the next update to `out`. Every process calls it; the first writes."""
        if not self.backend.rank:
            out.mkdir(parents=True, exist_ok=True)
        weights = self.backend.weights()
        self.backend.save(out / OPTIMIZER)
        if self.values:
            self.values.save_optimizer(out)
        if not self.backend.rank:
            self.models.save(out, self.config.policy.base, version, weights)
            self.carried.save(out)
            if self.values:
                self.values.critic.save(out)
        self.backend.gather(None)  # no process reads the files before they are written

    def learn(self, trajectories: pd.DataFrame, iteration: int, solutions: Path | None = None) -> dict[str, float]:
        """Run the optimiser steps of one iteration; returns their figures, means over the steps.

        Args:
            trajectories: Trajectories with their `total`, as `read_scored_trajectories` gives them.
            iteration: From 1; with the seed it fixes every random choice. The policy's version afterwards.
            solutions: A file that `find_solutions` wrote.

        Raises:
            DataError: the solutions cannot be read.
        """
        self.solutions = self._read_solutions(solutions)
        figures = self._learn(with_masks(trajectories, self.config.policy.base), iteration)
        self.version = self.advantages.version = iteration
        return figures

    def _learn(self, trajectories: pd.DataFrame, iteration: int) -> dict[str, float]:
        rng = random.Random(f"update-{self.config.seed}-{iteration}")
        table, figures = self.advantages.estimate(trajectories, iteration)
        figures["steps"] = 0.0
        if steps := self._imitation_first(trajectories, iteration):
            return figures | self.imitate(steps, iteration, rng)
        if not len(table):
            return figures | self.imitate(self.settings.epochs * self.settings.minibatches, iteration, rng)
        if self.values:
            warmup = iteration <= self.values.config.warmup_iterations
            figures |= self.values.learn(table, rng, warmup=warmup)
            if warmup:
                return figures
        figures |= self._learn_policy(table, iteration, rng)
        observed_kl = figures.get("kl", math.nan)
        self.carried.kl_weight = adapted_weight(self.settings.kl, self.carried.kl_weight, observed_kl)
        return figures

    def _read_solutions(self, path: Path | None) -> TokenisedText:
        settings, base = self.settings, self.config.policy.base
        rows = settings.lost_tasks.rows if settings.lost_tasks else 0
        return TokenisedText(path, base, "learner.lost_tasks", rows, settings.micro_batch_tokens)

    def _imitation_first(self, trajectories: pd.DataFrame, iteration: int) -> int:
        """The optimiser steps of an update that only imitates: the first one, where most groups are lost; else 0."""
        lost = self.settings.lost_tasks
        if iteration != 1 or not lost or not self.solutions:
            return 0
        scored = trajectories[trajectories["success"].notna()]
        share = (scored.groupby("group")["success"].max() == 0.0).mean()
        return lost.at_start * self.solutions.steps if share > lost.MOST else 0

    def imitate(self, steps: int, iteration: int, rng: random.Random) -> dict[str, float]:
        """Optimiser steps on solutions of lost tasks and replay text alone; without solutions none."""
        figures: defaultdict[str, float] = defaultdict(float)
        if not self.solutions:
            return {}
        for _ in range(steps):
            for name, loss in self.backend.total(self.learn_texts(rng)).items():
                figures[name] += loss / steps
            figures["grad_norm"] += self.backend.step(learning_rate(self.config, iteration)) / steps
        return {**figures, "steps": float(steps)}

    def learn_texts(self, rng: random.Random) -> dict[str, float]:
        """Add the gradients of the weighted cross-entropies on replay text and on solutions; returns the unweighted losses."""
        lost = self.settings.lost_tasks
        texts = {"replay_loss": (self.replay_text, REPLAY_WEIGHT)}
        if lost and self.solutions:
            texts["solutions_loss"] = (self.solutions, lost.weight)
        losses = {}
        for name, (text, weight) in texts.items():
            batches = [batch.to(self.config.policy.device) for batch in text.draw(rng)]
            losses[name] = add_cross_entropy(self.backend, batches, self.settings.layout, weight)
        return losses

    def _learn_policy(self, table: TrajectoryTable, iteration: int, rng: random.Random) -> dict[str, float]:
        settings = self.settings
        if settings.kl.place == "loss" and self.carried.kl_weight:
            table = self.passes.with_reference(table)
        table = table.with_per_token(
            "current", current_tokens(table.frame, self.version, version_in_run(self.version, iteration))
        )
        table, off_policy, mismatch = self._prepared(table)
        choices = _Iteration(
            learning_rate(self.config, iteration),
            off_policy,
            with_dual_clip(settings.surrogate) if self.mismatch.action == "correct" else settings.surrogate,
        )
        steps: list[dict[str, float]] = []
        for _ in range(settings.epochs):
            minibatches = self.passes.minibatches(table, rng)
            report(len(steps), settings.epochs * len(minibatches), "steps")
            for minibatch in minibatches:
                figures, statistics = self._optimise(minibatch, choices, rng, measure_mismatch=not mismatch)
                steps.append(figures)
                report(len(steps), settings.epochs * len(minibatches), "steps")
                mismatch = mismatch or (statistics.figures() | act_on(self.mismatch, statistics.figures()))
        figures = {key: sum(step[key] for step in steps) / len(steps) for key in steps[0]}
        return figures | mismatch | {"steps": float(len(steps))}

    def _prepared(self, table: TrajectoryTable) -> tuple[TrajectoryTable, OffPolicyConfig, dict[str, float]]:
        """The rows with the proximal log-probabilities the loss needs, the off-policy settings, and the mismatch.

        The mismatch is empty when no pass is needed before the first step: that step measures it.

        Raises:
            SamplerMismatchError: sampler and trainer disagree, and the profile says to stop.
        """
        settings = self.settings
        off_policy = settings.off_policy
        if off_policy.proximal == "behaviour" and self.mismatch.action == "warn" and not self.config.certifies:
            return table, off_policy, {}
        if "proximal" not in table.per_token:
            table = self.passes.with_proximal(table)
        mismatch = mismatch_of(table).figures()
        mismatch |= act_on(self.mismatch, mismatch)
        if self.config.certifies:
            mismatch |= row_figures(table, self.mismatch.threshold)
        if self.mismatch.action == "correct":
            off_policy = corrected(off_policy)
        if off_policy.proximal == "behaviour":
            table = table.without_per_token("proximal")
        return table, off_policy, mismatch

    def _optimise(
        self, table: TrajectoryTable, choices: _Iteration, rng: random.Random, *, measure_mismatch: bool
    ) -> tuple[dict[str, float], MismatchStatistics]:
        """One optimiser step; returns its figures and, if asked for, the mismatch of sampler and trainer."""
        settings = self.settings
        batches = self.passes.batches(table)
        step = _Step(choices, step_totals(batches, settings.constant_length), Positives.of(table.frame, batches))
        sums: defaultdict[str, float] = defaultdict(float)
        diagnostics, mismatch = Diagnostics(), MismatchStatistics()
        for batch in self.backend.shard(batches):
            logprobs, entropy = action_logprobs(
                self.backend.model, batch, layout=settings.layout, entropy_gradient=settings.entropy.bonus != 0.0
            )
            if measure_mismatch:
                mismatch.observe_batch(logprobs.detach(), batch, pad_per_token(table.per_token["current"], batch))
            loss, parts, observed = self._loss(table, batch, logprobs, entropy, step)
            self.backend.backward(loss)
            diagnostics = diagnostics + observed
            for key, value in parts.items():
                sums[key] += value
        sums.update(self.learn_texts(rng))
        norm = self.backend.step(choices.learning_rate)
        diagnostics = sum(self.backend.gather(diagnostics), Diagnostics())
        figures = {
            **self.backend.total(dict(sums)),
            "grad_norm": norm,
            "clip_share": diagnostics.clip_share,
            "behaviour_kl": diagnostics.behaviour_kl,
            "ratio_max": diagnostics.ratio_max,
        }
        if "proximal" in table.per_token:
            figures["correction_weight_mean"] = diagnostics.weight_mean
        self.carried.entropy = figures["entropy"]
        if measure_mismatch:
            mismatch = sum(self.backend.gather(mismatch), MismatchStatistics())
        return figures, mismatch

    def _loss(
        self, table: TrajectoryTable, batch: Batch, logprobs: Tensor, entropy: Tensor, step: _Step
    ) -> tuple[Tensor, dict[str, float], Diagnostics]:
        """The loss of a micro-batch, its parts, and the diagnostics of its policy term."""
        settings, mask, totals = self.settings, batch.action_mask, step.totals
        old, weights = batch.behaviour_logprobs, None
        parts: dict[str, float] = {"corrected_share": 0.0, "correction_cut_share": 0.0}
        if "proximal" in table.per_token:
            off_policy = step.iteration.off_policy
            old = pad_per_token(table.per_token["proximal"], batch)
            weights = correction_weights(off_policy, old, batch.behaviour_logprobs, mask)
            shares = correction_shares(off_policy, weights, mask)
            parts = {name: count / max(totals.tokens, 1) for name, count in zip(parts, shares, strict=True)}
        tokens = PolicyTokens(logprobs, old, batch.advantages, mask, weights, batch.behaviour_logprobs)
        found = policy_loss(step.iteration.surrogate, tokens, totals, settings.aggregation)
        loss = found.loss
        parts |= {"policy_loss": loss.item(), "entropy": aggregate(entropy.detach(), mask, "token", totals).item()}
        if "reference" in table.per_token:
            reference = pad_per_token(table.per_token["reference"], batch)
            parts["kl"] = aggregate(k3(logprobs.detach(), reference), mask, "token", totals).item()
            if settings.kl.place == "loss":
                # A weight holds the ratio of the start of the update to the sampler, capped: the KL's ratio takes it over.
                corrects = step.iteration.off_policy.correction != "none" and settings.kl.corrected
                factors = weights if corrects else None
                sampler = batch.behaviour_logprobs if factors is None else old
                term = kl_term(settings.kl, logprobs, reference, sampler, mask)
                term = term if factors is None else term * factors
                loss = loss + self.carried.kl_weight * aggregate(term, mask, settings.aggregation, totals)
        if settings.entropy.bonus:
            loss = loss - settings.entropy.bonus * aggregate(entropy, mask, settings.aggregation, totals)
        if settings.positive_examples.weight:
            positive = positive_example_loss(logprobs, mask, step.positives.flags(batch), step.positives.tokens)
            parts["positive_loss"] = positive.item()
            loss = loss + settings.positive_examples.weight * positive
        return loss, {**parts, "loss": loss.item()}, found.diagnostics
