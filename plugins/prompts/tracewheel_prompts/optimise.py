"""GEPA over a prompt's parts (Agrawal et al. 2025): training tasks propose, a part of validation chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracewheel import DataError, LeakError, Task, success_of
from tracewheel_prompts.demonstrations import Pool, name_of
from tracewheel_prompts.feedback import record_of, shown, verified_states
from tracewheel_prompts.journal import Journal
from tracewheel_prompts.players import Player
from tracewheel_prompts.prompt import DEMONSTRATIONS, SYSTEM, TOOL, Prompt
from tracewheel_prompts.reflection import Reflector
from tracewheel_prompts.settings import PromptSettings

Candidate = dict[str, str]
MOST_FAILURES = 3


class Undecided(Exception):
    """A batch that decides nothing: it has no scores, or would cost more than is left."""


@dataclass(frozen=True)
class Found:
    """What optimising has found.

    Attributes:
        prompt: The best on validation; the start where nothing is better.
        candidates: Of each prompt that was tried on validation: `digest`, `parents`, `validation`, `prompt`.
        tokens: Sampled by the policy.
        iterations: Proposals.
        stopped: Why it ended.
        seen: Ids of the tasks that were played.
    """

    prompt: Prompt
    candidates: list[dict[str, Any]]
    tokens: int
    iterations: int
    stopped: str
    seen: list[str] = field(default_factory=list)


class PromptAdapter:
    """GEPA's view of a policy: evaluates candidates, and makes proposals of what went wrong.

    Args:
        settings: Budget and parts.
        player: The policy.
        start: The prompt to begin with.
        tools: The tools' descriptions by name, as they are.
        train: Tasks that proposals are made from.
        validation: Tasks that choose.
        curated: The curated folder; of its episodes those of `train` are read.
        journal: What was paid for already.
        reflector: Who rewrites.
    """

    def __init__(
        self,
        settings: PromptSettings,
        player: Player,
        start: Prompt,
        tools: Mapping[str, str],
        train: Sequence[Task],
        validation: Sequence[Task],
        curated: Path,
        journal: Journal,
        reflector: Reflector,
    ) -> None:
        self.settings, self.player, self.start, self.reflector = settings, player, start, reflector
        self._train = {task.id for task in train}
        self._allowed = self._train | {task.id for task in validation}
        self._curated, self._journal = curated, journal
        self.pool = Pool(curated, train, settings.longest, start.demonstrations)
        self._tools = dict(tools)
        self._used: dict[str, dict[str, Any]] = {}
        self._reached: dict[str, Any] = {}
        self._failures = 0
        self.tokens = self.iterations = 0
        self.stopped = ""
        self.failure: Exception | None = None
        self.seen: set[str] = set()

    def seed(self) -> Candidate:
        """The start's parts that may change, by name."""
        parts = self.settings.parts
        found: Candidate = {SYSTEM: self.start.system} if SYSTEM in parts else {}
        if "tools" in parts:
            found |= {f"{TOOL}{name}": self.start.tools.get(name, text) for name, text in self._tools.items()}
        if DEMONSTRATIONS in parts and len(self.pool):
            found[DEMONSTRATIONS] = " ".join(map(name_of, self.start.demonstrations))
        return found

    def prompt_of(self, candidate: Candidate) -> Prompt:
        """The prompt with a candidate's parts."""
        tools = {part.removeprefix(TOOL): text for part, text in candidate.items() if part.startswith(TOOL)}
        changed = {name: text for name, text in tools.items() if text != self._tools[name]}
        kept = {name: text for name, text in self.start.tools.items() if name not in tools}
        shown = self.pool.texts(candidate[DEMONSTRATIONS]) if DEMONSTRATIONS in candidate else self.start.demonstrations
        return Prompt(system=candidate.get(SYSTEM, self.start.system), tools=kept | changed, demonstrations=shown)

    def evaluate(self, batch: list[Task], candidate: Candidate, capture_traces: bool = False) -> Any:
        """Scores of a candidate on tasks."""
        from gepa.core.adapter import EvaluationBatch

        try:
            found = self._results(self.prompt_of(candidate), batch)
        except Undecided:
            raise
        except Exception as error:
            self.failure = error
            raise
        without = [task.id for task, one in zip(batch, found, strict=True) if one["score"] is None]
        self._failures = self._failures + 1 if without else 0
        if without:
            says = f"{len(without)} of {len(batch)} tasks have no score, the first is {without[0]}"
            if self._failures >= MOST_FAILURES:
                self.stopped = f"{MOST_FAILURES} batches in a row decided nothing: {says}"
            raise Undecided(says)
        scores = [one["score"] for one in found]
        return EvaluationBatch(outputs=found, scores=scores, trajectories=found if capture_traces else None)

    def make_reflective_dataset(self, candidate: Candidate, batch: Any, parts: list[str]) -> dict[str, list[dict[str, Any]]]:
        """What the reflection model reads, and of demonstrations, where the policy fails."""
        worst = sorted(batch.trajectories, key=lambda one: one["score"])
        records = [shown(one["record"]) for one in worst if one["record"] is not None]
        figures = [{"family": one["family"], "score": one["score"]} for one in worst]
        return {part: figures if part == DEMONSTRATIONS else records for part in parts}

    def propose_new_texts(
        self, candidate: Candidate, data: Mapping[str, Sequence[Mapping[str, Any]]], parts: list[str]
    ) -> Candidate:
        """New texts of parts."""
        most = self.settings.demonstrations
        try:
            return {
                part: self.pool.next(candidate[part], data[part], most)
                if part == DEMONSTRATIONS
                else self.reflector.rewrite(part, candidate[part], data[part])
                for part in parts
            }
        except Exception as error:  # GEPA would log it and go on
            self.failure = error
            raise

    def stop(self, state: Any) -> bool:
        """Whether GEPA is to end."""
        self.iterations = state.i + 1
        if not self.stopped and state.i + 1 >= self.settings.iterations:
            self.stopped = f"iterations: {self.settings.iterations} proposals were made"
        self.stopped = self.stopped or self.reflector.stopped
        self.failure = self.failure or self.reflector.failure
        return bool(self.stopped or self.failure)

    def _results(self, prompt: Prompt, tasks: list[Task]) -> list[dict[str, Any]]:
        keys = [f"{prompt.digest} {task.id}" for task in tasks]
        fresh = {key: task for key, task in zip(keys, tasks, strict=True) if key not in self._used}
        if strange := sorted({task.id for task in fresh.values()} - self._allowed):
            raise LeakError(f"task {strange[0]} is neither of training nor of the part of validation that chooses")
        most = len(fresh) * self.settings.samples * self.player.most_tokens
        if fresh and self.tokens + most > self.settings.tokens:
            self.stopped = (
                f"tokens: {self.tokens:,} of {self.settings.tokens:,} are sampled, and the next {len(fresh)} tasks may "
                f"take {most:,}"
            )
            raise Undecided(self.stopped)
        kept = {key: self._journal.get(key) for key in fresh}
        # Of the start, which comes first, an episode without a score has ended the run: its cause may be gone now.
        missing = [task for key, task in fresh.items() if kept[key] is None or (not self._used and kept[key]["score"] is None)]
        if missing:
            self._play(prompt, missing)
        for key, task in fresh.items():
            self._used[key] = self._journal.get(key)
            self.tokens += self._used[key]["tokens"]
            self.seen.add(task.id)
        return [self._used[key] for key in keys]

    def _play(self, prompt: Prompt, tasks: list[Task]) -> None:
        episodes: dict[str, list[Any]] = {task.id: [] for task in tasks}
        for episode in self.player.play(prompt, tasks):
            episodes[episode.trajectory.task_id].append(episode)
        failed = [
            task for task in tasks if task.id in self._train and not all(success_of(one.score) for one in episodes[task.id])
        ]
        if new := [task for task in failed if task.id not in self._reached]:
            known = verified_states(self._curated, new)
            self._reached |= {task.id: known.get(task.id) for task in new}
        for task in tasks:
            scored = [one for one in episodes[task.id] if one.score.total is not None]
            worst = min(scored, key=lambda one: one.score.total, default=None)
            record, before = None, self._journal.get(f"{prompt.digest} {task.id}")
            if worst is not None and task.id in self._train:
                record = record_of(task, worst.trajectory, worst.score, self._reached.get(task.id))
            self._journal.put(
                f"{prompt.digest} {task.id}",
                {
                    "score": sum(one.score.total for one in scored) / len(scored) if scored else None,
                    "success": sum(success_of(one.score) for one in scored) / len(scored) if scored else None,
                    "tokens": sum(one.tokens for one in episodes[task.id]) + (before["tokens"] if before else 0),
                    "family": task.family,
                    "record": record,
                },
            )


class _Log:
    def __init__(self, path: Path) -> None:
        self._path = path

    def log(self, message: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{message}\n")


def optimise(adapter: PromptAdapter, train: list[Task], validation: list[Task], log: Path) -> Found:
    """Run GEPA until a budget or the proposals are spent.

    Raises:
        DataError: the start cannot be scored, or the budget does not reach for it.
        Exception: what the policy's engine or the reflection's endpoint raised.
    """
    import gepa

    settings = adapter.settings
    try:
        result = gepa.optimize(
            seed_candidate=adapter.seed(),
            trainset=train,
            valset=validation,
            adapter=adapter,
            reflection_minibatch_size=min(settings.minibatch, len(train)),
            stop_callbacks=adapter.stop,
            logger=_Log(log),
            track_best_outputs=False,
            raise_on_exception=False,
            seed=settings.seed,
        )
    except Undecided as error:
        raise DataError(f"the start cannot be judged on validation: {error}") from error
    if adapter.failure is not None:
        raise adapter.failure
    prompts = [adapter.prompt_of(candidate) for candidate in result.candidates]
    candidates = [
        {"digest": prompt.digest, "parents": [one for one in parents if one is not None], "validation": score}
        | {"prompt": prompt.model_dump(mode="json")}
        for prompt, parents, score in zip(prompts, result.parents, result.val_aggregate_scores, strict=True)
    ]
    best = prompts[result.best_idx]
    return Found(best, candidates, adapter.tokens, adapter.iterations, adapter.stopped, sorted(adapter.seen))
