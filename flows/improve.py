"""The reinforcement-learning loop of the diagram, from a starting policy to the best on the validation split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tasks.artifacts import LoopProgress
from tasks.evaluate import evaluate_and_log, evaluate_policy
from tasks.rollout import roll_out
from tasks.run import Policy, Run
from tasks.score import score_trajectories
from tasks.update import update_policy
from tracewheel.sampler import TaskSampler
from tracewheel.schedule import VALIDATION_SAMPLES, observe_scores, validates, validation_rate
from tracewheel.store import Entry


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
        return validation_rate(self.evaluation.result)


@dataclass(frozen=True)
class Improvement:
    """What the loop came to: each candidate, and each update's metrics by iteration."""

    candidates: list[Candidate]
    updates: dict[int, dict[str, Any]]

    @property
    def validation(self) -> dict[int, dict[str, float]]:
        """Iteration to greedy and sampled success on the validation split."""
        return {candidate.iteration: candidate.rates for candidate in self.candidates}

    @property
    def best(self) -> Candidate:
        """The best candidate; of equals the earliest."""
        return max(self.candidates, key=lambda candidate: (candidate.rate, -candidate.iteration))


def validate(run: Run, curated: Entry, policy: Policy, iteration: int = 0) -> Candidate:
    """Evaluate a policy on the validation split."""
    evaluation = evaluate_and_log(run, policy=policy, curated=curated, split="validation", samples=VALIDATION_SAMPLES)
    candidate = Candidate(policy, iteration, evaluation)
    rates = ", ".join(f"{mode} {rate:.3f}" for mode, rate in candidate.rates.items() if rate is not None)
    run.reporter.say(f"{policy.name} on the validation split: {rates}")
    return candidate


def with_harder_tier(run: Run, curated: Entry, found: Improvement) -> dict[int, dict[str, float]]:
    """The validation curve with each candidate's greedy success on the harder tier beside it. Nothing is chosen by it."""
    curve = found.validation
    for candidate in found.candidates:
        entry = evaluate_policy(run, policy=candidate.policy, curated=curated, split="harder", samples=1)
        curve[candidate.iteration]["harder_greedy"] = entry.result["greedy"]["rate"]
    return curve


def improve(run: Run, curated: Entry, start: Policy, sampler: TaskSampler) -> Improvement:
    """Sample tasks, roll out, score, update; every few iterations, validate."""
    assert start.entry is not None
    training = run.config.training
    policy, state, reference = start, start.entry, start.entry
    found = Improvement([validate(run, curated, start)], {})
    progress = None if run.planning else LoopProgress(training.iterations)
    for iteration in range(1, training.iterations + 1):
        task_ids = sampler.select(training.tasks_per_iteration, iteration)
        trajectories = roll_out(run, policy=policy, curated=curated, task_ids=task_ids, iteration=iteration)
        scores = score_trajectories(run, curated=curated, trajectories=trajectories, iteration=iteration)
        observe_scores(sampler, scores.path / "scores.parquet")
        state = update_policy(
            run, trajectories=trajectories, scores=scores, state=state, reference=reference, iteration=iteration
        )
        policy = run.adapted(f"rl-{iteration}", state, version=iteration)
        found.updates[iteration] = {**state.result, "success": scores.result["success"]}
        if run.tracking:
            run.tracking.log_iteration(iteration, found.updates[iteration])
        if validates(training, iteration):
            found.candidates.append(validate(run, curated, policy, iteration))
        if progress:
            progress.reached(iteration)
    return found
