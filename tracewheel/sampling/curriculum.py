"""The self-evolving curriculum: tasks that keep failing get variants, and variants are withdrawn when they have served.

The environment's own task generator makes the variants. Each belongs to the training split of the task it
comes from, and none has the fingerprint, or the starting point and goal, of any task of any split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tracewheel.config import SamplerConfig, SamplerSections
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.files import read_table
from tracewheel.core.types import Task, content_hash
from tracewheel.curation.curated_folder import TASKS_FILE, all_tasks
from tracewheel.curation.replay import no_op_problem
from tracewheel.environments import VariantMaker, make_environment, open_environment
from tracewheel.sampling.sampler import Kin, TaskSampler

if TYPE_CHECKING:
    import pandas as pd

# A task that failed in every rollout of so many rounds in a row gets so many variants; a variant goes when it was solved, or
# failed, in as many rounds.
AFTER, PER_TASK = 2, 2
LIMIT = 64  # of the variants at a time
ATTEMPTS = 4  # calls of the generator when it makes tasks that exist already


class SelfEvolvingSampler(TaskSampler):
    """Weighs tasks as `difficulty` does, and offers variants of those that keep failing.

    Besides the posterior its state holds, for each task, the rounds in a row that it was failed (below 0) or
    solved (above 0), how often it got variants, and the variants themselves. What `evolve` makes depends on
    that state, the seed and the curated tasks alone: a restored sampler makes the same.
    """

    def __init__(self, config: SamplerConfig, task_ids: Iterable[str], seed: int, kin: Kin | None = None) -> None:
        super().__init__(config, task_ids, seed, kin)
        self._streaks: dict[str, int] = {}
        self._generations: dict[str, int] = {}
        self._variants: dict[str, Task] = {}
        self._origins: dict[str, str] = {}

    def observe(self, task_id: str, successes: float, failures: float) -> None:
        """Add the outcomes of a task's rollouts, which are one round of it."""
        super().observe(task_id, successes, failures)
        rounds = self._streaks.get(task_id, 0)
        if successes + failures == 0:
            return
        self._streaks[task_id] = min(rounds, 0) - 1 if not successes else max(rounds, 0) + 1 if not failures else 0

    def evolve(self, curated: Path) -> list[Task]:
        """Withdraw the variants that were solved or failed too, and make new ones of tasks that keep failing.

        Args:
            curated: The folder of the curation stage; no variant equals one of its tasks, in a split or the reserve.

        Returns:
            The new variants.

        Raises:
            ConfigError: the environment of a failing task has no task generator.
            DataError: its generator fails.
        """
        self._withdraw([name for name in self._variants if abs(self._streaks.get(name, 0)) >= AFTER])
        failing = [name for name in self._curated_ids if self._streaks.get(name, 0) <= -AFTER]
        if not failing:
            return []
        table = all_tasks(curated)
        by_id = {task.id: task for task in _tasks_of(table[table["id"].isin(failing)])}
        taken = _identities(_tasks_of(table)) | _identities(self._variants.values())
        made: list[Task] = []
        for origin in sorted(failing, key=lambda name: (self._streaks[name], name)):
            living = sum(parent == origin for parent in self._origins.values())
            wanted = min(PER_TASK - living, LIMIT - len(self._variants))
            if wanted <= 0:
                continue
            fresh = self._make(by_id[origin], wanted, taken)
            self._offer(fresh, origin)
            self._streaks[origin] = 0
            self._generations[origin] = self._generations.get(origin, 0) + 1
            made += fresh
        return made

    def variants(self, task_ids: Iterable[str]) -> list[Task]:
        return [self._variants[task_id] for task_id in sorted(set(task_ids)) if task_id in self._variants]

    def figures(self) -> dict[str, float]:
        return {"variants": float(len(self._variants))}

    def keep_clear_of(self, curated: Path) -> None:
        """Withdraw the variants that equal a task of a split or the reserve now, or whose origin is no longer trained on."""
        if not self._variants:
            return
        taken = _identities(_tasks_of(all_tasks(curated)))
        trained = set(self._curated_ids)
        self._withdraw(
            [name for name, task in self._variants.items() if self._origins[name] not in trained or _identities([task]) & taken]
        )

    def to_state(self) -> dict[str, Any]:
        """The posterior, and under `curriculum` the rounds, the generations, and the variants with their origins."""
        variants = [
            {"origin": self._origins[name], "task": self._variants[name].to_record()} for name in sorted(self._variants)
        ]
        curriculum = {
            "streaks": {name: rounds for name, rounds in sorted(self._streaks.items()) if rounds},
            "generations": dict(sorted(self._generations.items())),
            "variants": variants,
        }
        return super().to_state() | {"curriculum": curriculum}

    @classmethod
    def from_state(cls, config: SamplerConfig, task_ids: Iterable[str], seed: int, state: Any, kin: Kin | None = None) -> Self:
        """A sampler restored from a state; the state of another kind of sampler has no variants.

        Raises:
            DataError: this is not the state of a sampler.
        """
        sampler = super().from_state(config, task_ids, seed, state, kin)
        curriculum = state.get("curriculum", {"streaks": {}, "generations": {}, "variants": []})
        try:
            sampler._streaks = {name: int(rounds) for name, rounds in curriculum["streaks"].items()}
            sampler._generations = {name: int(count) for name, count in curriculum["generations"].items()}
            for item in curriculum["variants"]:
                sampler._offer([Task.from_record(item["task"])], item["origin"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"sampler state: 'curriculum' is not what a sampler wrote: {error!r}") from error
        return sampler

    def _offer(self, tasks: Iterable[Task], origin: str) -> None:
        for task in tasks:
            self._variants[task.id] = task
            self._origins[task.id] = origin
            self._kin[task.id] = (task.family, task.tier)
        self._task_ids = sorted({*self._curated_ids, *self._variants})

    def _withdraw(self, names: Iterable[str]) -> None:
        for name in names:
            del self._variants[name], self._origins[name], self._kin[name]
            self._evidence.pop(name, None)
            self._streaks.pop(name, None)
        self._task_ids = sorted({*self._curated_ids, *self._variants})

    def _make(self, task: Task, wanted: int, taken: set[str]) -> list[Task]:
        """At most `wanted` valid variants that are no taken task; their identities are added to `taken`."""
        with open_environment(task.environment) as environment:
            if not isinstance(environment, VariantMaker):
                raise ConfigError(_no_generator(task.environment))
            fresh: list[Task] = []
            for attempt in range(ATTEMPTS):
                seed = int(content_hash(["variants", self._seed, task.id, self._generations.get(task.id, 0), attempt], 8), 16)
                try:
                    candidates = environment.variants(task, wanted, seed)
                except Exception as error:  # it may be anyone's code
                    raise DataError(f"environment '{task.environment}' makes no variants of {task.id}: {error!r}") from error
                for candidate in candidates:
                    identities = _identities([candidate])
                    if len(fresh) < wanted and not identities & taken and not no_op_problem(candidate, environment):
                        fresh.append(candidate)
                        taken |= identities
                if len(fresh) == wanted:
                    break
            return fresh


def sampler_kind(config: SamplerConfig) -> type[TaskSampler]:
    """The class of the profile's sampler."""
    return SelfEvolvingSampler if config.kind == "self_evolving" else TaskSampler


def make_sampler(config: SamplerSections, curated: Path, state: Mapping[str, Any] | None = None) -> TaskSampler:
    """The sampler of a run over the training tasks of a curation, at its start or from a state.

    Raises:
        ConfigError: the curriculum evolves, but the environment has no task generator.
        DataError: the state is not a sampler's, or the tasks cannot be read.
    """
    if config.sampler.kind == "self_evolving" and not isinstance(make_environment(config.environment.spec), VariantMaker):
        raise ConfigError(_no_generator(config.environment.kind))
    table = read_table(curated / TASKS_FILE)
    train = table[table["split"] == "train"]
    task_ids = train["id"].tolist()
    kin = {str(row["id"]): (str(row["family"]), int(row["tier"])) for row in train.to_dict("records")}
    kind = sampler_kind(config.sampler)
    if not state:
        return kind(config.sampler, task_ids, config.seed, kin)
    sampler = kind.from_state(config.sampler, task_ids, config.seed, state, kin)
    if isinstance(sampler, SelfEvolvingSampler):
        sampler.keep_clear_of(curated)
    return sampler


def _tasks_of(table: pd.DataFrame) -> list[Task]:
    return [Task.from_record({str(name): value for name, value in row.items()}) for row in table.to_dict("records")]


def _identities(tasks: Iterable[Task]) -> set[str]:
    """All that identifies a task: its id, its fingerprint, its starting point and goal."""
    found = set()
    for task in tasks:
        found |= {
            f"id {task.id}",
            f"fingerprint {task.fingerprint}",
            f"content {content_hash([task.initial_state, task.goal])}",
        }
    return found


def _no_generator(environment: str) -> str:
    return (
        f"sampler.kind 'self_evolving' needs an environment with a method variants(task, n, seed), which "
        f"'{environment}' has not; choose another sampler.kind"
    )
