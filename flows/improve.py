"""The reinforcement-learning loop of the diagram, from a starting policy to the best on the validation split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.artifacts import LoopProgress
from tasks.doctor import Watch
from tasks.evaluate import evaluate_and_log, evaluate_policy
from tasks.rollout import roll_out
from tasks.run import Policy, Run
from tasks.score import score_trajectories
from tasks.update import update_policy
from tracewheel.dynamic_sampling import refill_size, sampling_figures
from tracewheel.sampler import TaskSampler
from tracewheel.schedule import (
    VALIDATION_SAMPLES,
    has_room,
    observe_scores,
    rollout_temperature,
    validates,
    validation_rate,
)
from tracewheel.score import SCORES_FILE
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
    def evaluations(self) -> dict[int, Entry]:
        """Iteration to evaluation on the validation split."""
        return {candidate.iteration: candidate.evaluation for candidate in self.candidates}

    @property
    def objectives(self) -> dict[str, dict[str, float | None]]:
        """Candidate to what it came to on each objective, on the validation split; empty when the rubric has none."""
        results = {candidate.policy.name: candidate.evaluation.result for candidate in self.candidates}
        return {name: result["objectives"] for name, result in results.items() if "objectives" in result}

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


def gather(
    run: Run, curated: Entry, policy: Policy, sampler: TaskSampler, iteration: int, used: int
) -> tuple[list[Entry], list[Entry]]:
    """An iteration's rollouts and their scores: one round, or with dynamic sampling until enough groups carry a signal.

    `used` is how many episodes of the training's budget earlier iterations took.
    """
    trajectories: list[Entry] = []
    scores: list[Entry] = []
    tried: list[str] = []
    wanted = run.config.training.tasks_per_iteration
    while task_ids := sampler.select(wanted, iteration, exclude=tried):
        rolled_out = roll_out(
            run,
            policy=policy,
            curated=curated,
            task_ids=task_ids,
            variants=[task.to_record() for task in sampler.variants(task_ids)],
            iteration=iteration,
            temperature=rollout_temperature(run.config, iteration),
            refill=len(trajectories),
        )
        scored = score_trajectories(run, curated=curated, trajectories=rolled_out, iteration=iteration)
        observe_scores(sampler, scored.path / SCORES_FILE)
        trajectories.append(rolled_out)
        scores.append(scored)
        tried += task_ids
        wanted = refill_size(run.config, score_files(scores), used + episodes_of(trajectories))
    return trajectories, scores


def episodes_of(trajectories: list[Entry]) -> int:
    return sum(round(entry.result["episodes"]) for entry in trajectories)


def score_files(scores: list[Entry]) -> list[Path]:
    return [entry.path / SCORES_FILE for entry in scores]


def success_of_rounds(scores: list[Entry]) -> dict[str, float | None]:
    """The share of successes over the scored episodes of all rounds; None when nothing was scored."""
    rounds = [entry.result for entry in scores if entry.result["scored"]]
    if len(rounds) == 1:
        return {"success": rounds[0]["success"]}
    successes = sum(result["success"] * result["scored"] for result in rounds)
    return {"success": successes / sum(result["scored"] for result in rounds) if rounds else None}


def improve(run: Run, curated: Entry, start: Policy, sampler: TaskSampler, *, name: str = "rl", before: int = 0) -> Improvement:
    """Sample tasks, roll out, score, update; every few iterations, validate.

    Policies are called after `name`; the tracker counts from the iterations that the run had `before`.
    """
    assert start.entry is not None
    training = run.config.training
    policy, state, reference = start, start.entry, start.entry
    found = Improvement([validate(run, curated, start)], {})
    watch = Watch(run, curated, start)
    watch.see(0, found.evaluations)
    progress = None if run.planning else LoopProgress(training.iterations)
    used = 0
    for iteration in range(1, training.iterations + 1):
        trajectories, scores = gather(run, curated, policy, sampler, iteration, used)
        sampler.evolve(curated.path)
        state = update_policy(
            run, trajectories=trajectories, scores=scores, state=state, reference=reference, iteration=iteration
        )
        policy = run.adapted(f"{name}-{iteration}", state, version=iteration)
        figures = {**success_of_rounds(scores), **sampling_figures(run.config, score_files(scores)), **sampler.figures()}
        found.updates[iteration] = {**state.result, **figures}
        if run.tracking:
            run.tracking.log_iteration(before + iteration, found.updates[iteration])
        used += episodes_of(trajectories)
        last = iteration == training.iterations or not has_room(run.config, used)
        if last or validates(training, iteration):
            found.candidates.append(validate(run, curated, policy, iteration))
        watch.see(iteration, found.evaluations, rollouts=trajectories, scores=scores, update=state)
        if progress:
            progress.reached(iteration)
        if last:
            break
    return found
