"""The self-evolving curriculum: when variants are offered and withdrawn, that none is held out, and resuming."""

import json
import random

import pandas as pd
import pytest

from tracewheel.config import RetrainConfig, SamplerConfig
from tracewheel.core.errors import ConfigError, DataError, LeakError
from tracewheel.core.types import Task
from tracewheel.curation.leaks import check_leaks
from tracewheel.environments import ENVIRONMENTS
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.sampling.curriculum import SelfEvolvingSampler, make_sampler
from tracewheel.scoring.verifiers import make_verifier

EPISODES = pd.DataFrame({"task_id": [], "split": []})


def config(**values):
    return RetrainConfig.model_validate(
        {"name": "test", "environment": {"kind": "workspace"}, "sampler": {"kind": "self_evolving", **values}}
    )


def write_tasks(folder, tasks_by_split):
    rows = [task.to_record() | {"split": split} for split, tasks in tasks_by_split.items() for task in tasks]
    folder.mkdir(exist_ok=True)
    pd.DataFrame(rows).to_parquet(folder / "tasks.parquet")
    return folder


@pytest.fixture
def splits():
    rng = random.Random(3)
    train = [make_task(family, tier, rng) for family in FAMILIES for tier in (2, 3)]
    return {"train": train, "held_out": [make_task(family, 2, rng) for family in FAMILIES]}


@pytest.fixture
def curated(splits, tmp_path):
    return write_tasks(tmp_path / "curated", splits)


def fail(sampler, task, rounds=1):
    for _ in range(rounds):
        sampler.observe(task.id, 0, 4)


def offered(sampler):
    return sampler.select(10_000, 1)


def test_a_task_that_keeps_failing_gets_variants(splits, curated):
    sampler = make_sampler(config(), curated)
    hard, other = splits["train"][:2]
    fail(sampler, hard)
    assert sampler.evolve(curated) == [], "one failed round is not enough"
    fail(sampler, hard)
    sampler.observe(other.id, 1, 3)
    made = sampler.evolve(curated)
    assert len(made) == 2
    assert {(task.environment, task.family, task.verifier) for task in made} == {(hard.environment, hard.family, hard.verifier)}
    assert all(hard.tier - 1 <= task.tier <= hard.tier for task in made)
    assert set(offered(sampler)) == {task.id for task in [*splits["train"], *made]}
    assert sampler.variants(offered(sampler)) == sorted(made, key=lambda task: task.id)
    assert sampler.figures() == {"variants": 2.0}
    # Untried, so its weight is the target, 0.6; that of the failing task, the largest, is 1 - 0.4^7 (2 + 4 failures kept).
    assert sampler.weights()[made[0].id] == pytest.approx(0.6 / (1 - 0.4**7))
    fail(sampler, hard, rounds=2)
    assert sampler.evolve(curated) == [], "the task has its variants already"


def test_a_success_resets_the_count_of_failures(splits, curated):
    sampler = make_sampler(config(), curated)
    hard = splits["train"][0]
    fail(sampler, hard)
    sampler.observe(hard.id, 1, 3)
    fail(sampler, hard)
    sampler.observe(hard.id, 0, 0)
    assert sampler.evolve(curated) == [], "a round without a scored rollout does not count"
    fail(sampler, hard)
    assert len(sampler.evolve(curated)) == 2


def test_variants_that_are_always_solved_or_always_failed_are_withdrawn(splits, curated):
    sampler = make_sampler(config(), curated)
    hard = splits["train"][0]
    fail(sampler, hard, rounds=2)
    solved, failed = sampler.evolve(curated)
    for _ in range(2):
        sampler.observe(solved.id, 4, 0)
        sampler.observe(failed.id, 0, 4)
    fail(sampler, hard, rounds=2)
    fresh = sampler.evolve(curated)
    assert len(fresh) == 2 and not {task.id for task in fresh} & {solved.id, failed.id}
    assert not {solved.id, failed.id} & set(offered(sampler))
    assert not {solved.id, failed.id} & set(sampler.to_state()["evidence"])


def test_longest_failing_tasks_get_variants_first(splits, curated):
    sampler = make_sampler(config(), curated)
    first, second, third = splits["train"][:3]
    fail(sampler, first, rounds=2)
    fail(sampler, second, rounds=4)
    fail(sampler, third, rounds=3)
    made = sampler.evolve(curated)
    assert [task.family for task in made] == [each.family for each in (second, second, third, third, first, first)]
    assert sampler.figures() == {"variants": 6.0}


def test_variants_are_reproducible_and_solvable(splits):
    environment = WorkspaceEnvironment()
    for task in splits["train"]:
        made = environment.variants(task, 5, seed=1)
        assert made == environment.variants(task, 5, seed=1) != environment.variants(task, 5, seed=2)
        for variant in made:
            assert variant.goal["selector"]["value"] == task.goal["selector"]["value"] or task.family in ("pattern", "prefix")
            environment.reset(variant)
            for name, arguments in solution(variant):
                environment.step(name, arguments)
            assert make_verifier(variant.verifier).verify(variant, environment.snapshot())[0] == 1.0


class Narrow(WorkspaceEnvironment):
    """Its generator mostly makes tasks that exist already."""

    kind = "workspace"
    made: tuple[Task, ...] = ()

    def variants(self, task, n, seed):
        return [*Narrow.made, *super().variants(task, 1, seed)]


def test_held_out_trained_and_repeated_tasks_are_not_offered(splits, curated, monkeypatch):
    monkeypatch.setitem(ENVIRONMENTS, "workspace", Narrow)
    reworded = Task(**{**splits["held_out"][0].__dict__, "id": "another-id", "prompt": "In other words."})
    renamed = Task(**{**splits["held_out"][1].__dict__, "id": "a-third-id", "fingerprint": "another"})
    monkeypatch.setattr(Narrow, "made", (splits["held_out"][2], reworded, renamed, splits["train"][1]))
    sampler = make_sampler(config(), curated)
    fail(sampler, splits["train"][0], rounds=2)
    made = sampler.evolve(curated)
    assert len(made) == 2
    assert not {task.id for task in made} & {task.id for task in (*Narrow.made,)}
    everything = [task.to_record() | {"split": split} for split, tasks in splits.items() for task in tasks]
    check_leaks(pd.DataFrame(everything + [task.to_record() | {"split": "train"} for task in made]), EPISODES)
    for leak in (splits["held_out"][2], reworded, renamed):
        with pytest.raises(LeakError):
            check_leaks(pd.DataFrame([*everything, leak.to_record() | {"split": "train"}]), EPISODES)


def test_tasks_of_the_reserve_are_not_offered(splits, curated, monkeypatch):
    monkeypatch.setitem(ENVIRONMENTS, "workspace", Narrow)
    sampler = make_sampler(config(), curated)
    fail(sampler, splits["train"][0], rounds=2)
    monkeypatch.setattr(Narrow, "made", ())
    offered = sampler.evolve(curated)[0]
    write_tasks(curated / "aside", {"reserve": [offered]})
    (curated / "aside" / "tasks.parquet").rename(curated / "reserve.parquet")
    again = make_sampler(config(), curated)
    monkeypatch.setattr(Narrow, "made", (offered,))
    fail(again, splits["train"][0], rounds=2)
    assert offered.id not in {task.id for task in again.evolve(curated)}
    sampler.keep_clear_of(curated)
    assert offered.id not in sampler.select(10_000, 1)


def test_a_variant_that_cannot_be_judged_is_not_offered(splits, curated, monkeypatch):
    monkeypatch.setitem(ENVIRONMENTS, "workspace", Narrow)
    task = splits["train"][0]
    unjudgeable = Task(**{**task.__dict__, "id": "broken", "fingerprint": "broken", "goal": {}})
    monkeypatch.setattr(Narrow, "made", (unjudgeable,))
    sampler = make_sampler(config(), curated)
    fail(sampler, task, rounds=2)
    assert "broken" not in {variant.id for variant in sampler.evolve(curated)}


def run(sampler, curated, iterations):
    """Run iterations in which even tasks fail and odd ones are solved sometimes."""
    chosen = []
    for iteration in iterations:
        picked = sampler.select(6, iteration)
        for task_id in picked:
            successes = 0 if int(task_id[-1], 16) % 2 == 0 else iteration % 5
            sampler.observe(task_id, successes, 4 - successes)
        made = sampler.evolve(curated)
        chosen.append((picked, [task.id for task in made]))
    return chosen


@pytest.mark.parametrize("stop", [0, 2, 5, 7])
def test_a_resumed_curriculum_equals_an_uninterrupted_one(stop, curated):
    settings = config()
    whole = make_sampler(settings, curated)
    expected = run(whole, curated, range(1, 11))
    assert sum(len(made) for _, made in expected) >= 4, "the test needs variants"
    first = make_sampler(settings, curated)
    begun = run(first, curated, range(1, stop + 1))
    state = json.loads(json.dumps(first.to_state()))
    second = make_sampler(settings, curated, state)
    assert begun + run(second, curated, range(stop + 1, 11)) == expected
    assert second.to_state() == whole.to_state()


def test_another_curation_drops_held_out_variants_and_those_without_their_task(splits, curated, tmp_path):
    sampler = make_sampler(config(), curated)
    kept, gone = splits["train"][0], splits["train"][1]
    fail(sampler, kept, rounds=2)
    fail(sampler, gone, rounds=2)
    made = sampler.evolve(curated)
    origins = {item["task"]["id"]: item["origin"] for item in sampler.to_state()["curriculum"]["variants"]}
    of_kept = [task for task in made if origins[task.id] == kept.id]
    later = {"train": [task for task in splits["train"] if task != gone], "held_out": [*splits["held_out"], of_kept[0]]}
    resumed = make_sampler(config(), write_tasks(tmp_path / "later", later), sampler.to_state())
    assert resumed.variants(offered(resumed)) == [of_kept[1]]


def test_samplers_read_each_others_state(splits, curated):
    plain = make_sampler(RetrainConfig(name="t"), curated)
    plain.observe(splits["train"][0].id, 3, 1)
    evolving = make_sampler(config(), curated, plain.to_state())
    assert evolving.posterior(splits["train"][0].id) == (4.0, 2.0)
    fail(evolving, splits["train"][0], rounds=2)
    evolving.evolve(curated)
    back = make_sampler(RetrainConfig(name="t"), curated, evolving.to_state())
    assert set(offered(back)) == {task.id for task in splits["train"]}
    assert (back.evolve(curated), back.variants(offered(back)), back.figures()) == ([], [], {})


@pytest.mark.parametrize(
    "curriculum", [[], {"streaks": {}}, {"streaks": {}, "generations": {}, "variants": [{"origin": "a", "task": {}}]}]
)
def test_a_bad_state_is_a_data_error(curriculum):
    state = {"version": 1, "evidence": {}, "curriculum": curriculum}
    with pytest.raises(DataError, match="'curriculum' is not what a sampler wrote"):
        SelfEvolvingSampler.from_state(SamplerConfig(kind="self_evolving"), [], 0, state)


class Bare:
    """An environment without a task generator."""

    kind = "workspace"
    tools, task_from_log = WorkspaceEnvironment.tools, WorkspaceEnvironment.task_from_log
    reset, step, snapshot = WorkspaceEnvironment.reset, WorkspaceEnvironment.step, WorkspaceEnvironment.snapshot


class Broken(WorkspaceEnvironment):
    def variants(self, task, n, seed):
        raise RuntimeError("no ideas left")


def test_an_environment_without_a_generator_is_refused_at_the_start(splits, curated, monkeypatch):
    monkeypatch.setitem(ENVIRONMENTS, "workspace", Bare)
    with pytest.raises(ConfigError, match="'self_evolving' needs an environment with a method variants"):
        make_sampler(config(), curated)
    make_sampler(RetrainConfig(name="t"), curated)


def test_a_generator_that_fails_is_named(splits, curated, monkeypatch):
    monkeypatch.setitem(ENVIRONMENTS, "workspace", Broken)
    sampler = make_sampler(config(), curated)
    fail(sampler, splits["train"][0], rounds=2)
    with pytest.raises(DataError, match=f"'workspace' makes no variants of {splits['train'][0].id}.*no ideas left"):
        sampler.evolve(curated)


def test_tasks_and_variants_pool_what_they_tell_of_each_other(splits, curated):
    pooling = config(pooling=4.0)
    sampler = make_sampler(pooling, curated)
    fail(sampler, splits["train"][0], rounds=2)
    (made, *_) = sampler.evolve(curated)
    again = make_sampler(pooling, curated, sampler.to_state())
    for each in (sampler, again):
        assert each.posterior(made.id)[1] > 1.0, "its family has failed"
    assert sampler.weights() == again.weights()
