"""What every environment with a task generator promises, tried on many of its tasks."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tracewheel.core.types import canonical_json
from tracewheel.environments import (
    ENVIRONMENTS,
    NearMisser,
    Restorable,
    TaskMaker,
    close_environment,
    make_environment,
    share_resources,
)
from tracewheel.environments.base import repeat
from tracewheel.environments.episode import play_calls, turn_messages
from tracewheel.scoring.verifiers import episode_from, make_verifier, verdict_of

OWN = ["examples.marketing_environment:Marketing"]  # a team's own class promises the same
ELSEWHERE = {"reasoning_gym"}  # needs another project: bridged/test_reasoning_gym.py
GENERATORS = (
    sorted(kind for kind, found in ENVIRONMENTS.items() if hasattr(found, "make_tasks") and kind not in ELSEWHERE) + OWN
)
SEED = 20
QUICK, THOROUGH = 16, 200


def opened(kind):
    environment = make_environment(kind)
    share_resources(environment, kind)
    return environment


def reward(environment, task, calls):
    """The verifier's total after these calls from the task's start."""
    messages = play_calls(environment, task, calls)
    return judged(environment, task, messages)


def judged(environment, task, messages):
    state = environment.snapshot()
    start = next((place for place, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    return verdict_of(make_verifier(task.verifier), task, state, lambda: episode_from(messages, start, state)).total


def check_rewards(kind, n):
    environment = opened(kind)
    tasks = environment.make_tasks(n, SEED)
    assert len({task.fingerprint for task in tasks}) == n
    assert {task.family for task in tasks} == set(environment.families)
    assert {task.tier for task in tasks} == set(environment.tiers)
    assert [task.id for task in tasks] == [task.id for task in opened(kind).make_tasks(n, SEED)]
    wrong = []
    for task in tasks:
        assert reward(environment, task, environment.solution(task)) == 1.0, task
        assert reward(environment, task, []) == 0.0, task
        misses = environment.near_misses(task)
        wrong += [(task.id, name) for name, calls in misses.items() if reward(environment, task, calls) != 0.0]
        assert misses or n < THOROUGH, task
    close_environment(environment)
    assert wrong == []


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_solver_scores_one_and_a_no_op_and_near_misses_zero(kind):
    check_rewards(kind, QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("kind", GENERATORS)
def test_the_same_on_two_hundred_tasks(kind):
    check_rewards(kind, THOROUGH)


@pytest.mark.parametrize("kind", GENERATORS)
def test_an_episode_goes_on_from_a_snapshot(kind):
    first, second = opened(kind), opened(kind)
    assert isinstance(first, TaskMaker) and isinstance(first, Restorable) and isinstance(first, NearMisser)
    for task in first.make_tasks(QUICK, SEED):
        calls = first.solution(task)
        middle = random.Random(task.id).randint(0, len(calls) - 1)
        messages = play_calls(first, task, calls[:middle])
        second.restore(task, first.snapshot())
        assert canonical_json(second.snapshot()) == canonical_json(first.snapshot())
        for number, (tool, args) in enumerate(calls[middle:], middle):
            observation = repeat(second, tool, args)
            messages += turn_messages(number, tool, args, None if observation.done else observation.text)
        assert judged(second, task, messages) == 1.0, task


@pytest.mark.parametrize("kind", GENERATORS)
def test_sixty_four_at_once_in_any_order_are_as_one_at_a_time(kind):
    maker = opened(kind)
    tasks = maker.make_tasks(QUICK, SEED)
    plays = []
    for task in tasks:
        ways = {"solved": maker.solution(task), "nothing": [], **maker.near_misses(task)}
        plays += [(task, calls) for calls in list(ways.values())[:4]]
    alone = [reward(opened(kind), task, calls) for task, calls in plays]
    order = list(range(len(plays)))
    random.Random(SEED).shuffle(order)
    with ThreadPoolExecutor(64) as pool:
        together = dict(zip(order, pool.map(lambda place: reward(opened(kind), *plays[place]), order), strict=True))
    assert [together[place] for place in range(len(plays))] == alone
