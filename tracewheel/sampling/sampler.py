"""Difficulty-weighted sampling: which tasks an iteration rolls out.

Each task has a Beta posterior of the policy's success on it, Beta(1 + successes, 1 + failures) with
decayed counts. With `pooling`, tasks of a family and tier tell of each other (`pooled`). Its weight is

- `difficulty`: the posterior probability that success is below the target, the regularised
  incomplete beta function I_target(1 + successes, 1 + failures): near 1 for what the policy fails,
  near 0 for a mastered task, and the target itself (for instance 0.6) for a task not yet tried;
- `learnability`: the posterior mean of p(1-p), which is the chance (halved) that two rollouts of the
  task differ, hence that its group carries a gradient;
- `uniform`: the same for all;
- `self_evolving`: as `difficulty`, with variants of failing tasks (`curriculum.py`).

No weight is below `FLOOR` times the largest, so no task is forgotten.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from tracewheel.config import SamplerConfig
from tracewheel.core.errors import DataError
from tracewheel.core.types import Task, content_hash
from tracewheel.curation.difficulty import PassCounts, beta_below
from tracewheel.scoring.rubric import success_of
from tracewheel.scoring.score import read_scores

Kin = Mapping[str, tuple[str, int]]  # family and tier by task id


def pooled(
    evidence: Mapping[str, tuple[float, float]], kin: Kin, attempts: float
) -> dict[tuple[str, int], tuple[float, float]]:
    """What to add to the successes and failures of each task, by family and tier.

    Args:
        evidence: Successes and failures by task id; those of tasks that are not in `kin` are left out.
        kin: Family and tier of each task.
        attempts: k, the number of attempts that kin counts for.
    """
    families: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    tiers: defaultdict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for task_id in sorted(evidence.keys() & kin.keys()):  # sums of floats depend on the order
        for counts in (families[kin[task_id][0]], tiers[kin[task_id]]):
            counts[0] += evidence[task_id][0]
            counts[1] += evidence[task_id][1]
    told = {}
    for family, tier in sorted(set(kin.values())):
        successes, failures = families[family]
        of_family = (1.0 + successes) / (2.0 + successes + failures)
        solved, failed = tiers[family, tier]
        rate = (attempts * of_family + solved) / (attempts + solved + failed)
        strength = min(attempts, successes + failures)
        told[family, tier] = (strength * rate, strength * (1.0 - rate))
    return told


STATE_VERSION = 1


FLOOR = 0.1  # of the largest weight
DECAY = 0.5  # the share of the evidence that is kept from run to run
RETAIN = 0.5  # that of a task's evidence when it is rolled out again, because the policy has changed since


class TaskSampler:
    """Chooses tasks by weight, without replacement, and learns from the outcomes of their rollouts.

    A choice depends on the seed, the iteration and the posterior alone, not on earlier calls: a
    sampler restored from its state continues exactly as the first would have.

    Args:
        config: Kind of weight, target and pooling.
        task_ids: The tasks to choose from; their order does not matter.
        seed: Seed of the choices.
        kin: Family and tier of each task, for `pooling`; a task that is not in it stands alone.
    """

    def __init__(self, config: SamplerConfig, task_ids: Iterable[str], seed: int, kin: Kin | None = None) -> None:
        self._config = config
        self._kin = dict(kin or {})
        self._task_ids = sorted(set(task_ids))
        self._curated_ids = list(self._task_ids)
        self._seed = seed
        self._evidence = PassCounts()

    def observe(self, task_id: str, successes: float, failures: float) -> None:
        """Add the outcomes of a task's rollouts. Leave unscored ones out: they are not failures.

        Earlier evidence of the task, which an earlier policy gave, is first shrunk to the share `RETAIN`.
        """
        self._evidence.observe(task_id, successes, failures, retain=RETAIN)

    def decay(self) -> None:
        """Shrink all evidence by the configured factor: call once at the start of a run.

        Tasks that are no longer offered are kept until little is left of their evidence.
        """
        self._evidence = self._evidence.decayed(DECAY)

    def posterior(self, task_id: str) -> tuple[float, float]:
        """(alpha, beta) of the task's Beta posterior; (1, 1) for a task not yet tried whose kin tells nothing either."""
        return self._posteriors([task_id])[task_id]

    def weights(self) -> dict[str, float]:
        """The weight of each task, the largest being 1."""
        raw = {task_id: self._raw_weight(*pair) for task_id, pair in self._posteriors(self._task_ids).items()}
        largest = max(raw.values(), default=0.0)
        if largest <= 0.0:
            return dict.fromkeys(raw, 1.0)
        return {task_id: max(weight / largest, FLOOR) for task_id, weight in raw.items()}

    def select(self, n: int, iteration: int, exclude: Collection[str] = ()) -> list[str]:
        """`n` different tasks for an iteration, or all of them when there are no more than `n`; none of `exclude`.

        Draws without replacement with probability proportional to weight, by the exponential keys of
        Efraimidis and Spirakis (2006): the n smallest of E_i / w_i, E_i standard exponential.
        """
        stream = np.random.default_rng(int(content_hash(["sampler", self._seed, iteration]), 16))
        draws = stream.exponential(size=len(self._task_ids))
        weights = self.weights()
        keys = {
            task_id: draw / weights[task_id] if weights[task_id] > 0 else math.inf
            for task_id, draw in zip(self._task_ids, draws.tolist(), strict=True)
        }
        left = [task_id for task_id in self._task_ids if task_id not in exclude]
        return sorted(left, key=lambda task_id: (keys[task_id], task_id))[:n]

    def evolve(self, curated: Path) -> list[Task]:
        """Change the pool of tasks after an iteration; returns the new tasks. This sampler's pool does not change.

        Args:
            curated: The folder of the curation stage.
        """
        return []

    def variants(self, task_ids: Iterable[str]) -> list[Task]:
        """Those of the given tasks that curation did not make."""
        return []

    def figures(self) -> dict[str, float]:
        """Figures of the sampler, as metrics."""
        return {}

    def to_state(self) -> dict[str, Any]:
        """The posterior as JSON types: `{"version", "evidence": {task id: [successes, failures]}}`."""
        return {"version": STATE_VERSION, "evidence": self._evidence.to_json()}

    def restore(self, state: Any) -> None:
        """Forget all that this sampler has learnt since it was in a state that `to_state` gave.

        Raises:
            DataError: this is not the state of a sampler.
        """
        vars(self).update(vars(self.from_state(self._config, self._curated_ids, self._seed, state, self._kin)))

    @classmethod
    def from_state(cls, config: SamplerConfig, task_ids: Iterable[str], seed: int, state: Any, kin: Kin | None = None) -> Self:
        """A sampler restored from a state.

        Raises:
            DataError: this is not the state of a sampler.
        """
        sampler = cls(config, task_ids, seed, kin)
        if not isinstance(state, Mapping) or state.get("version") != STATE_VERSION:
            raise DataError(f"not a sampler state of version {STATE_VERSION}")
        sampler._evidence = PassCounts.from_json(state.get("evidence"), "sampler state: 'evidence'")
        return sampler

    def _posteriors(self, task_ids: Iterable[str]) -> dict[str, tuple[float, float]]:
        own = {task_id: self._evidence.posterior(task_id) for task_id in task_ids}
        if not self._config.pooling:
            return own
        told = pooled(self._evidence, self._kin, self._config.pooling)
        for task_id in own.keys() & self._kin.keys():
            (alpha, beta), (successes, failures) = own[task_id], told[self._kin[task_id]]
            own[task_id] = (alpha + successes, beta + failures)
        return own

    def _raw_weight(self, alpha: float, beta: float) -> float:
        match self._config.kind:
            case "difficulty" | "self_evolving":
                return beta_below(alpha, beta, self._config.target)
            case "learnability":
                total = alpha + beta
                return alpha * beta / (total * (total + 1.0))
            case "uniform":
                return 1.0


def observe_scores(sampler: TaskSampler, scores: Path) -> None:
    """Give the sampler the outcomes of an iteration's rollouts; unscored ones are left out."""
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for score in read_scores(scores):
        success = success_of(score)
        if not math.isnan(success):
            counts[score.task_id][0 if success else 1] += 1
    for task_id, (successes, failures) in sorted(counts.items()):
        sampler.observe(task_id, successes, failures)
