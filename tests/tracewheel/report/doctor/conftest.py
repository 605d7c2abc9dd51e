"""Runs on disk as the loop leaves them: real episodes of scripted replies, scored by the real stage.

A healthy run learns: each iteration solves more of its tasks. A fault is planted by other replies, which
makes it real, or by altering stored records, where no reply could cause it.
"""

import copy
import functools
import json
import random
import shutil

import pandas as pd
import pytest

from tracewheel.config import RetrainConfig
from tracewheel.core.files import read_table, write_json, write_records
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.report.doctor import GUARD_FILE, LOOP_FILE, read_records
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.scoring.score import score

ITERATIONS, SAMPLES = 6, 4
SKILL = {1: 0.4, 2: 0.45, 3: 0.5, 4: 0.65, 5: 0.7, 6: 0.75}
# As measured in healthy runs of the shipped profile.
METRICS = {
    "steps": 4.0, "kl": 0.02, "behaviour_kl": 0.001, "entropy": 0.03, "grad_norm": 0.1,
    "sampler_mismatch_mean": 2e-7, "sampler_mismatch_max": 4e-6, "clip_share": 0.003, "truncated_share": 0.0,
}  # fmt: skip
LATE = (5, 6)


@pytest.fixture(scope="session")
def config(config):
    """With a reference, so that there is a KL to look at."""
    kl = config.learner.kl.model_copy(update={"weight": 0.01})
    return config.model_copy(update={"learner": config.learner.model_copy(update={"kl": kl})})


@pytest.fixture(scope="session")
def doctor_tasks():
    """Eight tasks of two tiers."""
    rng = random.Random(17)
    return [make_task(family, tier, rng) for tier in (1, 2) for family in FAMILIES]


@pytest.fixture(scope="session")
def words(call_text, solution_words):
    """The replies of an episode: a solution, or one cut off at a random call."""

    def speak(task, solves, rng):
        solution = solution_words(task)
        if solves:
            return solution
        return [*solution[: rng.randrange(1, len(solution) - 1)], call_text("finish")]

    return speak


@pytest.fixture(scope="session")
def episodes_of(renderer, scripted_engine, doctor_tasks, words):
    """The trajectories of one iteration.

    `say(task, solves, rng)` gives the replies of an episode instead of a healthy policy's.
    """

    def roll(number, seed, say=None, **settings):
        rng = random.Random(f"{seed}-{number}")
        tasks = [task for task in doctor_tasks for _ in range(SAMPLES)]
        solved = set(rng.sample(range(len(tasks)), round(SKILL[number] * len(tasks))))
        scripts = [(say or words)(task, index in solved, rng) for index, task in enumerate(tasks)]
        limits = {"max_tokens": 400, "max_turn_tokens": 48, **settings}
        config = RetrainConfig.model_validate({"name": "test", "rollout": limits}).rollout
        engine = scripted_engine(renderer, scripts, policy_version=number - 1)
        return run_episodes(engine, renderer, config, RolloutPlan(doctor_tasks, samples=SAMPLES, seed=seed))

    return roll


def validation(skill, seed, tasks=60):
    """A `results.parquet`: each task has a difficulty of its own, so that policies agree on which are hard."""
    rng = random.Random(seed)
    hard = [rng.random() for _ in range(tasks)]
    rows = [
        {"task_id": f"v{number}", "family": FAMILIES[number % 4], "tier": 2, "greedy": float(difficulty < skill),
         "sampled_successes": int(rng.random() < 0.1 + 0.8 * (difficulty < skill)), "sampled_attempts": 1}
        for number, difficulty in enumerate(hard)
    ]  # fmt: skip
    return pd.DataFrame(rows)


class RunFolder:
    """A run's record and store on disk."""

    def __init__(self, folder, tasks):
        self.folder, self.record, self.store, self._tasks = folder, folder / "run", folder / "store", tasks
        self.record.mkdir(parents=True)
        self.store.mkdir()
        self._loop = {"start_version": 0, "curated": "curate-0", "iterations": {}, "validations": {}}
        (self.store / "curate-0").mkdir()
        pd.DataFrame([task.to_record() for task in tasks]).to_parquet(self.store / "curate-0" / "tasks.parquet")

    def add(self, number, trajectories, config, metrics):
        """An iteration's rollout, its real scores, and an update that left new weights."""
        names = {kind: f"{kind}-{number:016}" for kind in ("rollout", "score", "update")}
        for name in names.values():
            shutil.rmtree(self.store / name, ignore_errors=True)
            (self.store / name).mkdir()
        write_records(self.store / names["rollout"] / "trajectories.parquet", trajectories)
        score(config, self._tasks, self.store / names["rollout"] / "trajectories.parquet", self.store / names["score"])
        generated = sum(sum(item.action_mask) for item in trajectories) / len(trajectories)
        write_json(self.store / names["update"] / "metrics.json", {"generated_tokens": generated, **metrics})
        adapter = self.store / names["update"] / "adapter"
        adapter.mkdir()
        write_json(adapter / "adapter.json", {"base_hash": "any", "version": number})
        (adapter / "adapter_model.safetensors").write_bytes(f"weights {number}".encode())
        self._loop["iterations"][str(number)] = {
            "rollouts": [names["rollout"]], "scores": [names["score"]], "update": names["update"],
        }  # fmt: skip

    def validate(self, number, table):
        folder = self.store / f"evaluate-{number:016}"
        folder.mkdir(exist_ok=True)
        table.to_parquet(folder / "results.parquet")
        self._loop["validations"][str(number)] = folder.name

    def copy(self, folder, iterations):
        """The first iterations of the run, elsewhere."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        other = copy.copy(self)
        other.folder, other.record, other.store = folder, folder / "run", folder / "store"
        other._loop = {
            kind: {number: made for number, made in value.items() if int(number) <= iterations}
            if isinstance(value, dict)
            else value
            for kind, value in self._loop.items()
        }
        return other

    def write(self):
        (self.record / LOOP_FILE).write_text(json.dumps(self._loop))
        (self.record / GUARD_FILE).write_text("[]")

    def file(self, kind, number, name):
        return self.store / f"{kind}-{number:016}" / name

    def alter(self, kind, numbers, name, change):
        """Change a stored table, row by row, or a stored JSON file."""
        for number in numbers:
            path = self.file(kind, number, name)
            if path.suffix == ".json":
                write_json(path, change(json.loads(path.read_text())))
            else:
                pd.DataFrame([change(row) for row in read_table(path).to_dict("records")]).to_parquet(path)

    def read(self, config):
        return read_records(config, self.record, self.store)


@pytest.fixture(scope="session")
def healthy_run(episodes_of, doctor_tasks, config, tmp_path_factory):
    """A healthy run of a seed, made once."""

    @functools.cache
    def build(seed):
        run = RunFolder(tmp_path_factory.mktemp("healthy") / f"run-{seed}", doctor_tasks)
        run.validate(0, validation(0.5, seed))
        for number in range(1, ITERATIONS + 1):
            run.add(number, episodes_of(number, seed), config, METRICS)
            if number % 2 == 0:
                run.validate(number, validation(SKILL[number], seed))
        return run

    return build


@pytest.fixture
def make_run(tmp_path, healthy_run, episodes_of, config):
    """A run; `say` and `settings` apply to the iterations in `late`, the others are healthy."""

    def build(seed=0, *, late=LATE, say=None, iterations=ITERATIONS, **settings):
        run = healthy_run(seed).copy(tmp_path / f"run-{seed}", iterations)
        for number in late if say or settings else ():
            run.add(number, episodes_of(number, seed, say, **settings), config, METRICS)
        run.write()
        return run

    return build
