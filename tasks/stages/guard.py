"""The guard during training: it judges each iteration, and takes the loop back to the best one or stops it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tasks.engine.run import Run
from tasks.engine.stage import Context, stage_task
from tasks.records.improvement import LOOP
from tracewheel.config import GoBackSections, UpdateSections
from tracewheel.core.store import Entry
from tracewheel.learner.learning_rate import learning_rate
from tracewheel.policy.adapters import renumber
from tracewheel.report.doctor import GUARD_FILE, read_families
from tracewheel.rollout.rollout import TRAJECTORIES_FILE
from tracewheel.sampling.guard import Action, Alarm, GuardEvent, IterationFigures, best_before, count_episodes, judge
from tracewheel.sampling.sampler import TaskSampler
from tracewheel.sampling.validation import best_of
from tracewheel.scoring.flaws import offered_tools
from tracewheel.scoring.score import SCORES_FILE

METRICS = ("entropy", "kl", "grad_norm")
SLOWER = 0.3  # what the learning rate is multiplied by each time


@stage_task("go_back", code="tracewheel.policy.adapters", sections=GoBackSections)
def go_back_to(context: Context[GoBackSections], *, state: Entry, iteration: int) -> dict[str, Any]:
    """The state of an earlier iteration, under this iteration's policy version."""
    renumber(state.path, context.out, version=iteration)
    return {}


class Guard:
    """Judges a loop's iterations. What it does follows from stored results, so a resumed loop does the same.

    Args:
        run: The run.
        curated: What it learns from.
        sampler: Forgets what lost policies played.
    """

    def __init__(self, run: Run, curated: Entry, sampler: TaskSampler) -> None:
        self.run = run
        self.events: list[GuardEvent] = []
        self._curated, self._sampler = curated, sampler
        self._history: list[IterationFigures] = []
        self._posteriors: dict[int, dict[str, Any]] = {0: sampler.to_state()}
        self._families: dict[str, str] = {}
        self.figures: dict[str, float] = {}  # the iteration's, as metrics
        if run.config.guard.enabled:
            run.record.write(GUARD_FILE, [])

    def see(
        self,
        iteration: int,
        rates: Mapping[int, float | None],
        *,
        rollouts: Sequence[Entry],
        scores: Sequence[Entry],
        update: Entry,
        last: bool,
    ) -> GuardEvent | None:
        """Judge an iteration, and decide what to do about an alarm.

        Args:
            iteration: The iteration that was just updated on.
            rates: Iteration to success on the validation split, of the candidates so far; 0 is the start.
            rollouts, scores, update: The iteration's entries.
            last: Whether no iteration follows.

        Returns:
            What is to be done; None while all is well, or where no iteration follows.
        """
        config = self.run.config.guard
        self.figures = {"learning_rate": learning_rate(UpdateSections.of(self.run.config), iteration)}
        files = [entry.path / TRAJECTORIES_FILE for entry in rollouts]
        if not config.enabled:
            return None
        tools = offered_tools(self.run.config.environment.spec)
        tasks = count_episodes(files, [entry.path / SCORES_FILE for entry in scores], tools)
        metrics = {name: float(update.result[name]) for name in METRICS if update.result.get(name) is not None}
        self._history.append(IterationFigures(iteration, tasks, metrics))
        self._posteriors = {number: state for number, state in self._posteriors.items() if number >= iteration - 2}
        self._posteriors[iteration] = self._sampler.to_state()
        self._families = self._families or read_families(self._curated.path)
        alarm = judge(self._history, best=best_of(rates) or 0, families=self._families)
        self.figures["guard_alarm"] = float(alarm is not None)
        if not alarm:
            return None
        event = self._act(iteration, alarm, rates, last=last)
        return None if event.action == "note" else event

    def _act(self, iteration: int, alarm: Alarm, rates: Mapping[int, float | None], *, last: bool) -> GuardEvent:
        config = self.run.config
        to = best_before(alarm, rates, config.rollout.lag)
        used = sum(event.action == "go_back" for event in self.events)
        action: Action = "note" if last else "go_back" if used < config.guard.attempts else "stop"
        rate = config.learner.rate() * (SLOWER if action == "go_back" else 1.0)
        event = GuardEvent(iteration, action, alarm.since, to, rate, tuple(item.to_record() for item in alarm.signals), LOOP)
        self.events.append(event)
        if action == "go_back":
            learner = config.learner.model_copy(update={"learning_rate": rate})
            self.run = replace(self.run, config=config.model_copy(update={"learner": learner}))
            kept = min(to + 1, alarm.since - 1)
            self._history = [item for item in self._history if item.number <= kept]
            self._sampler.restore(self._posteriors[alarm.since - 1])
        self.run.record.write(GUARD_FILE, [item.to_record() for item in self.events])
        self.run.reporter.say(f"guard, {event.sentence}")
        return event
