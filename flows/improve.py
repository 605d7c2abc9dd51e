"""The reinforcement-learning loop of the diagram, from a starting policy to the best on the validation split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flows.sources import episodes_of, is_last, open_source, score_files
from tasks.doctor import Watch
from tasks.evaluate import evaluate_and_log, evaluate_policy
from tasks.run import Policy, Run
from tasks.update import update_policy
from tracewheel.core.store import Entry
from tracewheel.sampling.dynamic_sampling import sampling_figures
from tracewheel.sampling.sampler import TaskSampler
from tracewheel.sampling.schedule import VALIDATION_SAMPLES, validates, validation_rate


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
    """What the loop came to: each candidate, each update's metrics by iteration, and by loop how it got its rollouts."""

    candidates: list[Candidate]
    updates: dict[int, dict[str, Any]]
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
    run.reporter.say(f"{policy.name} on the validation split: {in_words(evaluation.result)}")
    return candidate


def in_words(result: Mapping[str, Any]) -> str:
    """An evaluation's rates, and of how few tasks they are where not all were scored: those left out are no failures."""
    said = []
    for mode in ("greedy", "sampled"):
        rate, scored = result[mode]["rate"], result[mode]["n"]
        few = "" if scored == result["tasks"] else f" ({scored} of {result['tasks']} tasks scored)"
        said.append(f"{mode} {'unknown' if rate is None else f'{rate:.3f}'}{few}")
    return ", ".join(said)


def with_harder_tier(run: Run, curated: Entry, found: Improvement) -> dict[int, dict[str, float]]:
    """The validation curve with each candidate's greedy success on the harder tier beside it. Nothing is chosen by it."""
    curve = found.validation
    for candidate in found.candidates:
        entry = evaluate_policy(run, policy=candidate.policy, curated=curated, split="harder", samples=1)
        curve[candidate.iteration]["harder_greedy"] = entry.result["greedy"]["rate"]
    return curve


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
    training = run.config.training
    if run.config.rollout.mode != "sync":
        start = replace(start, version=0)  # staleness is counted from it, and a champion has a number of its own
    assert start.entry is not None
    policy, state, reference = start, start.entry, start.entry
    found = Improvement([validate(run, curated, start)], {})
    watch = Watch(run, curated, start)
    watch.see(0, found.evaluations)
    progress = run.driver.progress(training.iterations)
    used = 0
    with open_source(run, curated, sampler, name) as source:
        for iteration in range(1, training.iterations + 1):
            trajectories, scores = source.gather(policy, iteration, used)
            state = update_policy(
                run, trajectories=trajectories, scores=scores, state=state, reference=reference, iteration=iteration
            )
            policy = run.adapted(f"{name}-{iteration}", state, version=iteration)
            used += episodes_of(trajectories)
            last = is_last(run, iteration, used)
            if not last:
                source.updated(policy)
            figures = {
                **success_of_rounds(scores),
                **sampling_figures(run.config.learner, score_files(scores)),
                **sampler.figures(),
            }
            found.updates[iteration] = {**state.result, **figures}
            if run.tracking:
                run.tracking.log_iteration(before + iteration, found.updates[iteration])
            if last or validates(training, iteration):
                found.candidates.append(validate(run, curated, policy, iteration))
            watch.see(iteration, found.evaluations, rollouts=trajectories, scores=scores, update=state)
            progress(iteration)
            if last:
                break
        found.rollouts[name] = source.summary()
    return found
