"""The tasks of an iteration: as the sampler chose them, in the environment that training plays them in."""

from dataclasses import replace

import pandas as pd
import pytest
from pydantic import ValidationError

from tracewheel.config import ExplorationConfig, RetrainConfig, RolloutConfig, ScoreSections
from tracewheel.core.kind_table import give
from tracewheel.core.kinds import parse_kind
from tracewheel.curation.curated_folder import TASKS_FILE, load_tasks
from tracewheel.environments import make_environment
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.collect import collect
from tracewheel.rollout.order_book import OrderBook
from tracewheel.rollout.orders import Order
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.rollout.training_tasks import training_tasks, training_world
from tracewheel.rollout.trajectory_queue import TrajectoryQueue
from tracewheel.sampling.curriculum import make_sampler
from tracewheel.scoring.rubric import replay_turns
from tracewheel.scoring.score import score
from tracewheel.scoring.verifiers import make_verifier


class Keywords:
    """An environment's class without a model of its arguments."""

    def __init__(self, flaky: bool = False, noise_seed: int = 0) -> None: ...


NOISY = ExplorationConfig(environment_args={"lost_moves": 0.5})


@pytest.fixture
def folder(tasks, tmp_path):
    """A curated folder in which all but the last task are to train on."""
    rows = [task.to_record() | {"split": "train"} for task in tasks[:-1]]
    pd.DataFrame([*rows, tasks[-1].to_record() | {"split": "held_out"}]).to_parquet(tmp_path / TASKS_FILE)
    return tmp_path


def test_without_arguments_tasks_are_those_of_curation(folder, tasks):
    chosen = [tasks[3].id, tasks[1].id]
    played = training_tasks(ExplorationConfig(), folder, chosen, [], 7)
    assert played == ([tasks[3], tasks[1]], [])
    variant = replace(tasks[0], id="variant")
    played = training_tasks(ExplorationConfig(), folder, [tasks[2].id, "variant"], [variant], 7)
    assert played == ([tasks[2], variant], [variant])


def test_each_task_gets_the_arguments_of_training_beside_its_own(folder, tasks):
    variant = replace(tasks[0], id="variant", environment='{"args":{"noisy":true},"kind":"order_desk"}')
    played, made = training_tasks(NOISY, folder, [tasks[2].id, "variant"], [variant], 7)
    assert made == played, "scoring reads them beside the trajectories"
    assert played[0] == replace(tasks[2], environment='{"args":{"lost_moves":0.5,"noise_seed":7},"kind":"workspace"}')
    assert played[1] == replace(variant, environment='{"args":{"lost_moves":0.5,"noisy":true},"kind":"order_desk"}')


def test_the_noise_of_two_iterations_differs_unless_the_profile_fixes_it(tasks):
    def states(exploration, seed):
        environment = make_environment(training_world(exploration, "workspace", seed))
        return [len(environment.solution(task)) for task in tasks]

    assert states(NOISY, 1) == states(NOISY, 1)
    assert len({tuple(states(NOISY, seed)) for seed in range(5)}) == 5
    fixed = ExplorationConfig(environment_args={"lost_moves": 0.5, "noise_seed": 3})
    assert states(fixed, 1) == states(fixed, 2) == states(NOISY, 3)


def test_a_class_of_one_s_own_gets_the_seed_where_it_takes_one():
    give(own := "tracewheel.environments.workspace.environment:WorkspaceEnvironment")
    assert parse_kind(training_world(NOISY, own, 7)) == (own, {"lost_moves": 0.5, "noise_seed": 7})
    keywords = ExplorationConfig(environment_args={"flaky": True})
    assert parse_kind(training_world(keywords, f"{__name__}:Keywords", 7)).args == {"flaky": True, "noise_seed": 7}


def test_orders_of_asynchronous_training_hold_them(folder, tasks, tmp_path):
    profile = {"name": "t", "training": {"tasks_per_iteration": 3}, "rollout": {"exploration": NOISY.model_dump()}}
    config = RetrainConfig.model_validate(profile)
    queue = TrajectoryQueue.open(tmp_path / "queue.sqlite", "test", 1)
    queue.publish(PolicyRef("base"))
    OrderBook(queue, config, folder, make_sampler(config, folder)).order(1)
    orders = queue.lease("worker", 9)
    assert {order.load_task().environment for order in orders} == {
        training_world(NOISY, "workspace", seed) for seed in {order.seed for order in orders}
    }
    assert all(order.variant for order in orders)
    queue.close()


def test_an_episode_with_noise_is_solved_and_repeated(tasks, renderer, scripted_engine, call_text):
    """A policy that looks makes a lost move again; the replay of turn rewards loses the same moves."""
    for task in (replace(task, environment=training_world(NOISY, task.environment, 7)) for task in tasks):
        calls = make_environment(task.environment).solution(task)
        engine = scripted_engine(renderer, [[call_text(name, **arguments) for name, arguments in calls]])
        config = RolloutConfig(max_tokens=4000, max_turn_tokens=400, max_turns=40)
        trajectory = run_episodes(engine, renderer, config, RolloutPlan([task], samples=1, seed=0))[0]
        assert trajectory.stop_reason == "finished"
        assert make_verifier(task.verifier).verify(task, trajectory.final_state)[0] == 1.0
        assert replay_turns(task, trajectory)[-1] == trajectory.final_state


def test_groups_of_a_task_with_other_noise_that_are_claimed_together_keep_their_turn_rewards(
    folder, tasks, tmp_path, renderer, scripted_engine, call_text
):
    """Orders of two iterations for one task; each trajectory is replayed in the environment that it was played in."""
    config = RetrainConfig.model_validate({"name": "t", "rubric": {"turn_rewards": True}})
    queue = TrajectoryQueue.open(tmp_path / "queue.sqlite", "test", 1)
    queue.publish(PolicyRef("base"))
    worlds = [training_world(NOISY, tasks[0].environment, seed) for seed in (1, 2)]
    solutions = [make_environment(world).solution(tasks[0]) for world in worlds]
    assert solutions[0] != solutions[1], "the two meet other noise"
    for number, world in enumerate(worlds):
        order = Order(
            number, 1, replace(tasks[0], environment=world).to_record(), variant=True, samples=1, seed=number, temperature=1.0
        )
        queue.issue([order])
    for order, calls in zip(queue.lease("worker", 9), solutions, strict=True):
        engine = scripted_engine(renderer, [[call_text(name, **arguments) for name, arguments in calls]])
        limits = RolloutConfig(max_tokens=4000, max_turn_tokens=400, max_turns=40)
        played = run_episodes(engine, renderer, limits, RolloutPlan([order.load_task()], samples=1, seed=order.seed))
        queue.complete(order, "worker", [order.own(trajectory) for trajectory in played])
    collect(config.rollout, queue.claim(1, 2, 0), tmp_path)
    queue.close()
    metrics = score(ScoreSections.of(config), load_tasks(folder, "train"), tmp_path / "trajectories.parquet", tmp_path)
    assert (metrics["success"], metrics["without_turn_rewards"]) == (1.0, 0)


@pytest.mark.parametrize("kind", ["recorded:logs", "several"])
def test_a_recording_and_several_environments_take_none(kind):
    profile = {"name": "t", "environment": {"kind": kind}, "rollout": {"exploration": NOISY.model_dump()}}
    with pytest.raises(ValidationError, match=rf"environment_args: environment '{kind}' takes none"):
        RetrainConfig.model_validate(profile)


def test_a_profile_without_them_reads_as_before():
    assert "environment_args" not in ExplorationConfig(epsilon=0.1).model_dump()
    assert ExplorationConfig.model_validate(NOISY.model_dump()) == NOISY
