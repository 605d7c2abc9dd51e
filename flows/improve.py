"""The reinforcement-learning loop of the diagram, from a starting policy to the best on the validation split."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flows.sources import Source, episodes_of, is_last, open_source, score_files
from tasks.engine.run import Policy, Run
from tasks.records.doctor import Watch
from tasks.records.improvement import LOOP, Candidate, Improvement, in_words
from tasks.stages.evaluate import evaluate_policy
from tasks.stages.guard import Guard, go_back_to
from tasks.stages.rescue import Rescue
from tasks.stages.rollout import roll_out
from tasks.stages.score import score_trajectories
from tasks.stages.update import kept_between_updates, try_learning_rates, update_policy
from tracewheel.core.store import Entry
from tracewheel.curation.curated_folder import VALIDATION
from tracewheel.sampling.dynamic_sampling import sampling_figures, success_of_rounds
from tracewheel.sampling.sampler import TaskSampler
from tracewheel.sampling.validation import validates


def validate(run: Run, curated: Entry, policy: Policy, iteration: int = 0) -> Candidate:
    """Evaluate a policy on the validation split."""
    evaluation = evaluate_policy(run, policy=policy, curated=curated, split=VALIDATION)
    run.reporter.say(f"{policy.name} on the validation split: {in_words(evaluation.result)}")
    return Candidate(policy, iteration, evaluation)


def with_learning_rate(run: Run, curated: Entry, start: Policy, sampler: TaskSampler) -> tuple[Run, dict[str, Any]]:
    """The run with a number for a learning rate `auto`, and the trials that found it; they play the first iteration's tasks."""
    if run.config.learner.learning_rate != "auto":
        return run, {}
    state = start.entry
    assert state is not None
    if run.config.rollout.mode != "sync":
        start = replace(start, version=0)
    rolled_out = roll_out(run, **Source(run, curated, sampler).first_round(start, 1))
    scored = score_trajectories(run, curated=curated, trajectories=rolled_out, iteration=1)
    found = try_learning_rates(run, trajectories=rolled_out, scores=scored, state=state)
    learner = run.config.learner.model_copy(update={"learning_rate": found.result["learning_rate"]})
    return replace(run, config=run.config.model_copy(update={"learner": learner})), found.result


def improve(run: Run, curated: Entry, start: Policy, sampler: TaskSampler) -> Improvement:
    """Sample tasks, roll out, score, update; every few iterations, validate.

    Where the guard raises the alarm, the loop goes back to its best iteration with a lower learning rate, or stops.
    """
    run, trials = with_learning_rate(run, curated, start, sampler)
    training = run.config.training
    if run.config.rollout.mode != "sync":
        start = replace(start, version=0)  # staleness counts from 0, whatever a champion's version is
    assert start.entry is not None
    policy, state, reference = start, start.entry, start.entry
    states = {0: start.entry}
    found = Improvement([validate(run, curated, start)])
    watch, guard, rescue = Watch(run, curated, start), Guard(run, curated, sampler), Rescue(run, curated)
    watch.see(0, found.evaluations)
    progress = run.driver.progress(training.iterations)
    used = 0
    with open_source(run, curated, sampler) as source, kept_between_updates():
        for iteration in range(1, training.iterations + 1):
            trajectories, scores = source.gather(policy, iteration, used)
            update = state = update_policy(
                guard.run,
                trajectories=trajectories,
                scores=scores,
                state=state,
                reference=reference,
                iteration=iteration,
                **rescue.see(iteration, trajectories, scores),
            )
            used += episodes_of(trajectories)
            last = is_last(run, iteration, used)
            event = guard.see(iteration, found.rates, rollouts=trajectories, scores=scores, update=update, last=last)
            if event:
                state = go_back_to(run, state=states[event.to], iteration=iteration)
            states[iteration] = state
            policy = run.adapted(f"{LOOP}-{iteration}", state, version=iteration)
            if event:
                source.went_back(policy)
            elif not last:
                source.updated(policy)
            figures = {
                "success": success_of_rounds([entry.result for entry in scores]),
                **sampling_figures(run.config.learner, score_files(scores)),
                **sampler.figures(),
                **guard.figures,
                **rescue.figures,
            }
            found.updates[iteration] = {**update.result, **figures}
            if run.tracking:
                run.tracking.log_iteration(iteration, found.updates[iteration])
            if not event and (last or validates(training, iteration)):
                found.candidates.append(validate(run, curated, policy, iteration))
            watch.see(iteration, found.evaluations, rollouts=trajectories, scores=scores, update=update)
            progress(iteration)
            if last or (event and event.action == "stop"):
                break
        found.rollouts[LOOP] = source.summary()
    found.guard.extend(guard.events)
    found.rescue.update({LOOP: rescue.summary} if rescue.summary else {})
    found.rate_trials.update({LOOP: trials} if trials else {})
    return found
