"""The policy-gradient learner: judged rows, optimiser steps, and the state between iterations.

What differs between algorithms is in the configuration and in pure functions (`advantages`, `losses`,
`kl`); this class only brings their arguments together. Every random choice follows from (seed,
iteration), and all that an algorithm remembers is in the state folder, so an update that is run again,
or resumed, gives the same bytes.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from tracewheel.config import GaeAdvantageConfig, OffPolicyConfig, PolicyGradientConfig, UpdateSections
from tracewheel.learner.backend import Backend
from tracewheel.learner.backends import loading, make_backend
from tracewheel.learner.batch import Batch, step_totals
from tracewheel.learner.credit import Judge
from tracewheel.learner.differences import Differences, differences_of
from tracewheel.learner.generic_text import GenericText
from tracewheel.learner.kernels.language_model import checkpoint_activations
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.learner.learning_rate import learning_rate
from tracewheel.learner.losses import (
    Diagnostics,
    StepTotals,
    aggregate,
    correction_shares,
    correction_weights,
    entropy_weight,
    kl_term,
    policy_loss,
)
from tracewheel.learner.losses.kl import Direction, adapted_weight, direction_at, k3
from tracewheel.learner.memory import Memory
from tracewheel.learner.mismatch import ACTION, CORRECTED, act_on, corrected
from tracewheel.learner.models import load_models
from tracewheel.learner.passes import Passes
from tracewheel.learner.per_token import spread
from tracewheel.learner.rows import Rows
from tracewheel.learner.value_learning import ValueLearner
from tracewheel.learner.versions import current_tokens
from tracewheel.policy.adapters import policy_of

if TYPE_CHECKING:
    import pandas as pd

OPTIMIZER = "optimizer.pt"


class Learner:
    """A policy, the reference it is held to, and what its algorithm needs.

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
        self.version = policy_of(state, config.policy.base).version
        with loading(config) as placed:
            self.models = load_models(placed, state, reference)
        if self.settings.gradient_checkpointing:
            checkpoint_activations(self.models.model)
        self.backend: Backend = make_backend(config, self.models)
        if (state / OPTIMIZER).is_file():
            self.backend.load(state / OPTIMIZER)
        self.text = GenericText(self.settings)
        self.memory = Memory.load(state, self.settings.kl)
        self.passes = Passes(self.settings, config.policy.device, self.models, self.backend)
        advantage = self.settings.advantage
        self.values = (
            ValueLearner(config, advantage, self.models, self.passes, state)
            if isinstance(advantage, GaeAdvantageConfig)
            else None
        )
        self.judge = Judge(config, self.passes, self.backend, self.memory, self.values, state)

    def save(self, out: Path, version: int) -> None:
        """Write the policy and all that the next update needs to `out`. Every process calls it; the first writes."""
        if not self.backend.rank:
            out.mkdir(parents=True, exist_ok=True)
        weights = self.backend.weights()
        self.backend.save(out / OPTIMIZER)
        if self.values:
            self.values.save_optimizer(out)
        if not self.backend.rank:
            self.models.save(out, self.config.policy.base, version, weights)
            self.memory.save(out)
            self.judge.save(out)
            if self.values:
                self.values.critic.save(out)
        self.backend.gather(None)  # no process goes on to read what is not written yet

    def learn(self, samples: pd.DataFrame, iteration: int) -> dict[str, float]:
        """Run the optimiser steps of one iteration; returns their figures, means over the steps.

        Args:
            samples: Trajectories with their `total`; see `samples.read_samples`.
            iteration: From 1; with the seed it fixes every random choice.
        """
        rng = random.Random(f"update-{self.config.seed}-{iteration}")
        rows, figures = self.judge.judge(samples, iteration, rng)
        figures["steps"] = 0.0
        if not len(rows):
            return figures
        if self.values:
            figures |= self.values.learn(rows, rng)
            if iteration <= self.values.config.warmup_iterations:
                return figures
        figures |= self._learn_policy(rows, iteration, rng)
        self.memory.kl_weight = adapted_weight(self.settings.kl, self.memory.kl_weight, figures.get("kl", math.nan))
        return figures

    def _learn_policy(self, rows: Rows, iteration: int, rng: random.Random) -> dict[str, float]:
        settings = self.settings
        if settings.kl.place == "loss" and self.memory.kl_weight:
            rows = self.passes.with_reference(rows)
        rows = Rows(rows.table, {**rows.extra, "current": current_tokens(rows.table, self.version, iteration - 1)})
        rows, off_policy, mismatch = self._prepared(rows)
        direction = direction_at(settings.kl, iteration, self.config.training.iterations)
        rate = learning_rate(self.config, iteration)
        steps: list[dict[str, float]] = []
        for _ in range(settings.epochs):
            for part in self.passes.parts(rows, rng):
                figures, differences = self._optimise(part, direction, rate, rng, off_policy, compare=not mismatch)
                steps.append(figures)
                mismatch = mismatch or (differences.figures() | act_on(settings.mismatch, differences.figures()))
        figures = {key: sum(step[key] for step in steps) / len(steps) for key in steps[0]}
        return figures | mismatch | {"steps": float(len(steps))}

    def _prepared(self, rows: Rows) -> tuple[Rows, OffPolicyConfig, dict[str, float]]:
        """The rows with what the loss compares with, how it does so, and, where a pass was made, the mismatch it shows.

        Without a pass of its own the mismatch is measured in the first step's.

        Raises:
            SamplerMismatchError: the profile says to stop.
        """
        settings = self.settings
        off_policy = settings.off_policy
        if off_policy.proximal == "behaviour" and settings.mismatch.action == "warn":
            return rows, off_policy, {}
        if "proximal" not in rows.extra:
            rows = self.passes.with_proximal(rows)
        mismatch = differences_of(rows).figures()
        mismatch |= act_on(settings.mismatch, mismatch)
        if mismatch.get(ACTION) == CORRECTED:
            off_policy = corrected(off_policy)
        if off_policy.proximal == "behaviour":
            rows = Rows(rows.table, {name: values for name, values in rows.extra.items() if name != "proximal"})
        return rows, off_policy, mismatch

    def _optimise(
        self, rows: Rows, direction: Direction, rate: float, rng: random.Random, off_policy: OffPolicyConfig, *, compare: bool
    ) -> tuple[dict[str, float], Differences]:
        """One optimiser step; returns its figures, and with `compare` how far sampler and trainer are apart."""
        settings = self.settings
        batches = self.passes.batches(rows)
        totals = step_totals(batches, settings.constant_length)
        bonus = entropy_weight(settings.entropy, math.inf if self.memory.entropy is None else self.memory.entropy)
        sums: defaultdict[str, float] = defaultdict(float)
        diagnostics, differences = Diagnostics(), Differences()
        for batch in self.backend.share(batches):
            logprobs, entropy = action_logprobs(
                self.backend.model, batch, layout=settings.layout, entropy_gradient=bonus != 0.0
            )
            if compare:
                differences.see_batch(logprobs.detach(), batch, spread(rows.extra["current"], batch))
            loss, parts, seen = self._loss(rows, batch, logprobs, entropy, bonus, direction, totals, off_policy)
            self.backend.backward(loss)
            diagnostics = diagnostics + seen
            for key, value in parts.items():
                sums[key] += value
        sums["replay_loss"] = self.learn_text(rng)
        norm = self.backend.step(rate)
        diagnostics = sum(self.backend.gather(diagnostics), Diagnostics())
        figures = {
            **self.backend.total(dict(sums)),
            "grad_norm": norm,
            "clip_share": diagnostics.clip_share,
            "behaviour_kl": diagnostics.behaviour_kl,
            "ratio_max": diagnostics.ratio_max,
        }
        if "proximal" in rows.extra:
            figures["correction_weight_mean"] = diagnostics.weight_mean
        self.memory.entropy = figures["entropy"]
        return figures, sum(self.backend.gather(differences), Differences()) if compare else differences

    def _loss(
        self,
        rows: Rows,
        batch: Batch,
        logprobs: Tensor,
        entropy: Tensor,
        bonus: float,
        direction: Direction,
        totals: StepTotals,
        off_policy: OffPolicyConfig,
    ) -> tuple[Tensor, dict[str, float], Diagnostics]:
        settings, mask = self.settings, batch.action_mask
        old, weights = batch.behaviour_logprobs, None
        parts: dict[str, float] = {"corrected_share": 0.0, "correction_cut_share": 0.0}
        if "proximal" in rows.extra:
            old = spread(rows.extra["proximal"], batch)
            weights = correction_weights(off_policy, old, batch.behaviour_logprobs, mask)
            shares = correction_shares(off_policy, weights, mask)
            parts = {name: count / max(totals.tokens, 1) for name, count in zip(parts, shares, strict=True)}
        found = policy_loss(
            settings.surrogate,
            logprobs,
            old,
            batch.advantages,
            mask,
            totals,
            aggregation=settings.aggregation,
            weights=weights,
            behaviour_logprobs=batch.behaviour_logprobs,
        )
        loss = found.loss
        parts |= {"policy_loss": loss.item(), "entropy": aggregate(entropy.detach(), mask, "token", totals).item()}
        if "reference" in rows.extra:
            reference = spread(rows.extra["reference"], batch)
            parts["kl"] = aggregate(k3(logprobs.detach(), reference), mask, "token", totals).item()
            if settings.kl.place == "loss":
                term = kl_term(settings.kl, direction, logprobs, reference, batch.behaviour_logprobs, mask)
                loss = loss + self.memory.kl_weight * aggregate(term, mask, settings.aggregation, totals)
        if bonus:
            loss = loss - bonus * aggregate(entropy, mask, settings.aggregation, totals)
        return loss, {**parts, "loss": loss.item()}, found.diagnostics

    def learn_text(self, rng: random.Random) -> float:
        """Add the gradient of the weighted cross-entropy on generic text; returns the unweighted loss."""
        batches = [batch.to(self.config.policy.device) for batch in self.text.draw(rng)]
        tokens = step_totals(batches).tokens
        total = 0.0
        for batch in self.backend.share(batches):
            loss = -action_logprobs(self.backend.model, batch, layout=self.settings.layout)[0].sum() / max(tokens, 1)
            self.backend.backward(self.settings.replay_weight * loss)
            total += loss.item()
        return total
