"""What a reinforcement-learning loop returns: its candidates, and what was measured on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.engine.run import Policy
from tracewheel.core.store import Entry
from tracewheel.evaluation.ranking import Evaluation, comparable_rates
from tracewheel.sampling.guard import GuardEvent
from tracewheel.sampling.validation import Key, best_of

LOOP = "rl"  # its name in summaries, and in those of its policies


@dataclass(frozen=True)
class Candidate:
    """A policy with its evaluation on the validation split."""

    policy: Policy
    iteration: int
    evaluation: Entry

    @property
    def rates(self) -> dict[str, float | None]:
        """Greedy and sampled success; None where nothing was scored."""
        return {mode: self.evaluation.result[mode]["rate"] for mode in ("greedy", "sampled")}


@dataclass(frozen=True)
class Improvement:
    """The result of a loop.

    Attributes:
        candidates: The start, and each policy that was validated.
        updates: Iteration to the metrics of its update.
        rollouts: Loop to how it got its rollouts.
        guard: What the guard did, in order; iterations are those of its loop.
        rate_trials: Loop to the trials that found its learning rate.
        rescue: Loop to how many tasks it lost, how many were shown a solution, and how many of these it solved afterwards.
    """

    candidates: list[Candidate]
    updates: dict[int, dict[str, Any]] = field(default_factory=dict)
    rollouts: dict[str, dict[str, Any]] = field(default_factory=dict)
    guard: list[GuardEvent] = field(default_factory=list)
    rate_trials: dict[str, dict[str, Any]] = field(default_factory=dict)
    rescue: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def validation(self) -> dict[int, dict[str, float | None]]:
        """Iteration to greedy and sampled success on the validation split."""
        return {candidate.iteration: candidate.rates for candidate in self.candidates}

    @property
    def rates(self) -> dict[int, float | None]:
        """Iteration to what candidates are ranked by."""
        return candidate_rates({item.iteration: item for item in self.candidates})

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
        """The best candidate, on the tasks that are scored for all; ties go to the earliest.

        The start where no candidate can be ranked, because too few of its episodes were scored.
        """
        by_iteration = {item.iteration: item for item in sorted(self.candidates, key=lambda item: item.iteration)}
        best = best_of(candidate_rates(by_iteration))
        return self.candidates[0] if best is None else by_iteration[best]


def candidate_rates(candidates: Mapping[Key, Candidate]) -> dict[Key, float | None]:
    """The rates that candidates are ranked by; see `comparable_rates`."""
    evaluations = {key: Evaluation(item.evaluation.result, item.evaluation.path) for key, item in candidates.items()}
    return comparable_rates(evaluations)


def in_words(result: Mapping[str, Any]) -> str:
    """An evaluation's rates, and of how many tasks they are where not all were scored."""
    said = []
    for mode in ("greedy", "sampled"):
        rate, scored = result[mode]["rate"], result[mode]["n"]
        few = "" if scored == result["tasks"] else f" ({scored} of {result['tasks']} tasks scored)"
        said.append(f"{mode} {'unknown' if rate is None else f'{rate:.3f}'}{few}")
    return ", ".join(said)
