"""Rescue of lost tasks: which tasks a loop loses, verified solutions for them, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tasks.engine.run import Run
from tasks.engine.stage import Context, stage_task
from tracewheel.config import LostTasksConfig, SolutionSections, TeachSections
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.store import Entry
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import TRAIN, load_tasks
from tracewheel.learner.solutions import TEACHER, find_solutions
from tracewheel.sampling.lost_tasks import LOST_FILE, REMEDY, LostTasks, in_words
from tracewheel.scoring.score import SCORES_FILE
from tracewheel.teacher.teach import teach


@stage_task("teach", code="tracewheel.teacher.teach", sections=TeachSections)
def teach_tasks(context: Context[TeachSections], *, curated: Entry, task_ids: list[str]) -> dict[str, Any]:
    """Let the profile's teacher play training tasks. An endpoint that does not answer teaches nothing, and ends no run."""
    assert context.reuse is not None
    wanted = set(task_ids)
    tasks = [task for task in load_tasks(curated.path, TRAIN) if task.id in wanted]
    journal = context.reuse / f"teach-{content_hash([curated.digest, task_ids])}.jsonl"
    journal.parent.mkdir(parents=True, exist_ok=True)
    try:
        return teach(context.config, tasks, context.out, journal=journal)
    except InfrastructureError as error:
        context.reporter.say(f"the teacher taught nothing: {error}")
        return {"demonstrations": 0, "stopped": str(error)}


@stage_task("solutions", code="tracewheel.learner.solutions", sections=SolutionSections)
def solve_tasks(
    context: Context[SolutionSections],
    *,
    curated: Entry,
    task_ids: list[str],
    rollouts: list[Entry],
    scores: list[Entry],
    taught: list[Entry],
) -> dict[str, Any]:
    """Verified solutions of lost tasks, tokenised. The rollouts with their scores are those in which some were once solved."""
    return find_solutions(
        context.config,
        curated.path,
        task_ids,
        context.out,
        own=[(played.path, scored.path) for played, scored in zip(rollouts, scores, strict=True)],
        taught=[entry.path for entry in taught],
    )


class Rescue:
    """Watches which tasks a loop loses, and finds solutions of them for the update.

    What it does follows from stored results, so a resumed loop does the same.

    Args:
        run: The run.
        curated: What it learns from.
    """

    def __init__(self, run: Run, curated: Entry) -> None:
        self._run, self._curated = run, curated
        self.settings = run.config.learner.lost_tasks if run.config.learner.kind != "dpo" else None
        kin = {task.id: (task.family, task.tier) for task in load_tasks(curated.path, TRAIN)}
        self._lost = LostTasks(self.settings.after_groups if self.settings else 1, kin)
        self._played: dict[int, tuple[Sequence[Entry], Sequence[Entry]]] = {}
        self._taught: list[Entry] = []
        self._asked: set[str] = set()
        self._shown: dict[str, dict[str, Any]] = {}  # task id to what was shown first, and where
        self._shares: list[float] = []  # of lost groups, by iteration
        self.figures: dict[str, float] = {}  # the iteration's, as metrics

    def see(self, iteration: int, rollouts: Sequence[Entry], scores: Sequence[Entry]) -> dict[str, Entry]:
        """Take in an iteration; returns the solutions for its update, as an argument of it, if there are any."""
        self._lost.observe(iteration, [entry.path / SCORES_FILE for entry in scores])
        self.figures = {} if self._lost.share is None else {"lost_groups": self._lost.share}
        self._shares += self.figures.values()
        if self.settings is None:
            self._advise(iteration)
            return {}
        self._played[iteration] = rollouts, scores
        lost = self._lost.ids
        if not lost:
            return {}
        found = self._solve(lost)
        if unsolved := self._to_teach(found):
            self._asked.update(unsolved)
            self._taught.append(teach_tasks(self._run, curated=self._curated, task_ids=unsolved))
            found = self._solve(lost)
        sources: dict[str, str] = found.result["sources"]
        for task_id, source in sources.items():
            self._shown.setdefault(task_id, {"source": source, "from": iteration})
        self.figures |= {"lost_tasks": float(len(lost)), "rescued_tasks": float(len(sources))}
        self._note(iteration, lost)
        return {"solutions": found} if sources else {}

    @property
    def summary(self) -> dict[str, Any]:
        """What was lost, shown, and won afterwards; empty where nothing is rescued, and little was lost at first."""
        if not self._shares or (self.settings is None and self._shares[0] <= LostTasksConfig.MOST):
            return {}
        won = sum(self._lost.won_in.get(task_id, 0) > shown["from"] for task_id, shown in self._shown.items())
        shown, lost = Counter(one["source"] for one in self._shown.values()), self._lost.ids
        unsolved, given = len({*lost} - self._shown.keys()), shown if self.settings else None
        words = in_words(self._shares[0], self._shares[-1], given, won, len(self._asked), unsolved)
        return {"lost": len(lost), "shown": dict(shown), "won_afterwards": won, "says": words}

    def _solve(self, lost: list[str]) -> Entry:
        earlier = sorted({self._lost.won_in[task_id] for task_id in lost if task_id in self._lost.won_in})
        rounds = [self._played[number] for number in earlier]
        return solve_tasks(
            self._run,
            curated=self._curated,
            task_ids=lost,
            rollouts=[entry for rollouts, _ in rounds for entry in rollouts],
            scores=[entry for _, scores in rounds for entry in scores],
            taught=[entry for entry in self._taught if entry.result["demonstrations"]],
        )

    def _to_teach(self, found: Entry) -> list[str]:
        """The training tasks that were played and lost, that no other source solves and the teacher was not asked for yet."""
        assert self.settings is not None
        if TEACHER not in self.settings.sources or self._run.config.teacher is None:
            return []
        training = {task.id for task in load_tasks(self._curated.path, TRAIN)}
        return [task_id for task_id in self._lost.played if task_id in training - self._asked - found.result["sources"].keys()]

    def _note(self, iteration: int, lost: list[str]) -> None:
        shown = [self._shown[task_id]["source"] for task_id in lost if task_id in self._shown]
        by_source = ", ".join(f"{shown.count(source)} from {source}" for source in dict.fromkeys(shown)) or "none"
        share = "no" if self._lost.share is None else f"{self._lost.share:.0%} of"
        solved = f"of {len(lost)} lost tasks {len(shown)} have a solution ({by_source})"
        self._run.reporter.say(f"iteration {iteration}: {share} groups lost whole; {solved}")
        tasks = {
            task_id: {**self._shown.get(task_id, {}), "lost": task_id in lost, "won_in": self._lost.won_in.get(task_id)}
            for task_id in sorted({*lost, *self._shown})
        }
        self._run.record.write(LOST_FILE, tasks)

    def _advise(self, iteration: int) -> None:
        """Say at the start that most groups teach nothing, and what helps."""
        if iteration == 1 and self._lost.share is not None and self._lost.share > LostTasksConfig.MOST:
            self._run.reporter.say(
                f"{self._lost.share:.0%} of the first groups are lost whole, and no sample of theirs teaches anything: {REMEDY}"
            )
