"""What a reinforcement-learning loop returns: its candidates, and what was measured on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tasks.run import Policy
from tracewheel.core.store import Entry
from tracewheel.sampling.specialists import family_rate
from tracewheel.sampling.validation import validation_rate


@dataclass(frozen=True)
class Candidate:
    """A policy with its evaluation on the validation split."""

    policy: Policy
    iteration: int
    evaluation: Entry

    @property
    def rates(self) -> dict[str, float]:
        """Greedy and sampled success."""
        return {mode: self.evaluation.result[mode]["rate"] for mode in ("greedy", "sampled")}

    @property
    def rate(self) -> float:
        """What candidates are ranked by."""
        return validation_rate(self.evaluation.result)


@dataclass(frozen=True)
class Improvement:
    """The result of one loop or of several.

    Attributes:
        candidates: The start, and each policy that was validated.
        updates: Iteration to the metrics of its update.
        rollouts: Loop to how it got its rollouts.
    """

    candidates: list[Candidate]
    updates: dict[int, dict[str, Any]] = field(default_factory=dict)
    rollouts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def validation(self) -> dict[int, dict[str, float]]:
        """Iteration to greedy and sampled success on the validation split."""
        return {candidate.iteration: candidate.rates for candidate in self.candidates}

    @property
    def evaluations(self) -> dict[int, Entry]:
        """Iteration to evaluation on the validation split."""
        return {candidate.iteration: candidate.evaluation for candidate in self.candidates}

    @property
    def objectives(self) -> dict[str, dict[str, float | None]]:
        """Candidate to its mean on each objective, on the validation split; empty when the rubric has none."""
        results = {candidate.policy.name: candidate.evaluation.result for candidate in self.candidates}
        return {name: result["objectives"] for name, result in results.items() if "objectives" in result}

    @property
    def best(self) -> Candidate:
        """The best candidate; ties go to the earliest."""
        return max(self.candidates, key=lambda candidate: (candidate.rate, -candidate.iteration))

    def best_on(self, families: tuple[str, ...]) -> Candidate:
        """The best candidate on the tasks of some families; ties go to the earliest."""
        rates = {item.iteration: family_rate(item.evaluation.result, families) for item in self.candidates}
        return max(self.candidates, key=lambda candidate: (rates[candidate.iteration], -candidate.iteration))

    def extend(self, later: Improvement) -> None:
        """Add a later loop from the same start, its iterations counted from the last of these."""
        before = len(self.updates)
        self.candidates.extend(replace(item, iteration=before + item.iteration) for item in later.candidates[1:])
        self.updates.update({before + iteration: metrics for iteration, metrics in later.updates.items()})
        self.rollouts.update(later.rollouts)


def in_words(result: Mapping[str, Any]) -> str:
    """An evaluation's rates, and of how many tasks they are where not all were scored."""
    said = []
    for mode in ("greedy", "sampled"):
        rate, scored = result[mode]["rate"], result[mode]["n"]
        few = "" if scored == result["tasks"] else f" ({scored} of {result['tasks']} tasks scored)"
        said.append(f"{mode} {'unknown' if rate is None else f'{rate:.3f}'}{few}")
    return ", ".join(said)
